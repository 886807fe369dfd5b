"""Local nodes, domains and plans."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import phalanx


def start_node(domain):
    command = [sys.executable, "-m", "phalanx", "node", "--domain", domain, "--output", "quiet", "--no-mdns"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert node.stdout.readline()
    return node


@pytest.fixture
def domain():
    name = f"py-{os.getpid()}-{time.monotonic_ns() % 1_000_000}"
    nodes = [start_node(name) for _ in range(2)]
    yield name
    for node in nodes:
        node.terminate()
    for node in nodes:
        node.wait(timeout=10)


def test_local_nodes_train_what_one_process_trains(proto, data):
    here = phalanx.fit(proto, data, valid=data, epochs=3, batch=20)
    seen = []
    nodes = phalanx.fit(proto, data, valid=data, epochs=3, batch=20, local=2, progress=seen.append)
    np.testing.assert_allclose(nodes.metrics["loss"], here.metrics["loss"], atol=1e-5)
    assert nodes.run_dir is None and sorted(nodes.state_dict()) == sorted(here.state_dict())
    assert len(seen[-1]["nodes"]) == 2


def test_the_model_is_cut_into_stages(data, tmp_path):
    x = np.random.default_rng(0).normal(size=(64, 784)).astype("float32")
    y = (x[:, 0] > 0).astype("int64")
    here = phalanx.fit("mlp", (x, y), epochs=2)
    run = phalanx.fit(
        "mlp", (x, y), epochs=2, local=2, stages=2, run_dir=tmp_path / "run", settings={"formation.measure": False}
    )
    np.testing.assert_allclose(run.metrics["loss"], here.metrics["loss"], atol=1e-4)
    assert phalanx.fuse(run.run_dir).stages == 2


def test_a_domain_is_seen_and_trains(proto, data, domain):
    found = phalanx.nodes(domain)
    assert len(found) == 2 and {node.kind for node in found} == {"computing"}
    assert all(node.cores >= 1 and node.memory_bytes > 0 for node in found)
    run = phalanx.fit(proto, data, epochs=2, replicas=2, nodes=phalanx.Domain(domain))
    here = phalanx.fit(proto, data, epochs=2)
    np.testing.assert_allclose(run.metrics["loss"], here.metrics["loss"], atol=1e-5)


def test_wrong_domains_are_told(tmp_path):
    with pytest.raises(phalanx.InputError):
        phalanx.nodes("not a name!")
    (tmp_path / "key").write_text("nonsense")
    with pytest.raises(phalanx.InputError, match="key"):
        phalanx.nodes(phalanx.Domain("lab", key=str(tmp_path / "key")))
    with pytest.raises(phalanx.InputError, match="patience"):
        phalanx.nodes(patience=-1)


def test_the_key_of_a_domain_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("PHALANX_CONFIG_DIR", str(tmp_path))
    monkeypatch.delenv("PHALANX_KEY", raising=False)
    assert phalanx.Domain("lab").key_file is None
    subprocess.run([sys.executable, "-m", "phalanx", "domain", "new", "lab"], check=True, capture_output=True)
    assert phalanx.Domain("lab").key_file == str(tmp_path / "domains" / "lab.key")
    assert phalanx.nodes("lab", patience=0.1) == []


def test_a_plan_says_who_holds_what(tmp_path):
    machines = [phalanx.Machine("desk", 8 << 30, 80.0), phalanx.Machine("old", 8 << 30, 20.0)]
    plan = phalanx.plan("resnet-18", machines, batch=64, stages=2)
    (stages,) = plan.replicas
    assert [stage.node for stage in stages] == ["desk", "old"]
    assert stages[0].end_op == stages[1].first_op and stages[0].first_op == 0
    assert stages[0].end_op - stages[0].first_op > 0 and plan.samples_per_second > 0
    assert "desk" in str(plan) and plan.bottleneck
    pool = tmp_path / "pool.toml"
    pool.write_text('[[node]]\nname = "a"\nmemory = "8GiB"\nspeed = 50.0\n[[node]]\nname = "b"\nmemory = "8GiB"\n')
    assert {stage.node for replica in phalanx.plan("mlp", pool, stages=2).replicas for stage in replica} == {"a", "b"}


def test_plans_that_cannot_be_made_are_told(tmp_path):
    small = [phalanx.Machine("tiny", 1 << 10, 1.0)]
    with pytest.raises(phalanx.TrainingError):
        phalanx.plan("resnet-18", small)
    (tmp_path / "pool.toml").write_text("nonsense")
    with pytest.raises(phalanx.InputError, match="pool file"):
        phalanx.plan("mlp", tmp_path / "pool.toml")
    with pytest.raises(phalanx.InputError, match="pool file"):
        phalanx.plan("mlp", tmp_path / "missing.toml")
