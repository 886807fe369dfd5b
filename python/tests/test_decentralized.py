"""Provider programs that train a model together."""

from __future__ import annotations

import doctest
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import phalanx
from phalanx.decentralized import Node, Trainer, clusterize, model_fusion, set_seed
from phalanx.decentralized import _optim
from phalanx.decentralized._optim import learning_rates, optimizer_settings
from phalanx.decentralized._pool import read_pool
from phalanx.decentralized._records import Records

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
LIMIT = 120
EPOCHS = 25


def project(folder, nodes=3):
    (folder / "node_data").mkdir()
    pool = {
        str(i): {"IP": f"0.0.0.0:{8080 + i}", "benchmarks": {"ram": 2, "bandwidth": 100}} for i in range(nodes)
    }
    (folder / "node_data" / "node_configs.json").write_text(json.dumps(pool))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PHALANX_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path


def squares(outputs, batch):
    assert batch[0] is None
    return torch.nn.functional.mse_loss(outputs, batch[1])


PROVIDER = """
import sys, numpy as np, torch
from phalanx.decentralized import Node, Trainer, set_seed
set_seed(5)
rng = np.random.default_rng(0)
x = rng.normal(size=(96, 6)).astype("float32")
y = np.stack([x[:, 0] * x[:, 1], x[:, 2]], axis=1)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=16, shuffle=True)
def squares(outputs, batch):
    return torch.nn.functional.mse_loss(outputs, batch[1])
options = eval(sys.argv[2]) if len(sys.argv) > 2 else {}
node = Node(sys.argv[1], torch.optim.SGD, optimizer_params={"lr": 0.05, "momentum": 0.9}, criterion=squares,
            **options.get("node", {}))
trainer = Trainer(node, loader, loader, val_freq=6, epochs=4, batch_size=16, save=True, **options.get("trainer", {}))
trainer.train()
print("worth", trainer.evaluate())
"""


def network():
    torch.manual_seed(3)
    layers = [torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)]
    return torch.nn.Sequential(*layers)


def start(program, *arguments, **environment):
    command = [sys.executable, str(program), *arguments]
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(programs, within=LIMIT):
    """The output of programs that all end well."""
    try:
        outputs = [program.communicate(timeout=within)[0] for program in programs]
    finally:
        for program in programs:
            program.kill()
    for program, output in zip(programs, outputs):
        assert program.returncode == 0, output
    return outputs


def run_providers(folder, options="{}", order=(2, 0, 1)):
    program = folder / "provider.py"
    program.write_text(PROVIDER)
    outputs = finish([start(program, f"node_{i}", options) for i in order])
    return [float(line) for line in (folder / "losses.txt").read_text().split()], outputs


def test_three_providers_compute_what_one_process_does(folder):
    project(folder)
    (cluster,) = clusterize(network(), (torch.zeros(16, 6),))
    assert [member.role for member in cluster.members] == ["root", "stem", "leaf"]
    losses, outputs = run_providers(folder)
    assert len(losses) == 24
    rng = np.random.default_rng(0)
    x = rng.normal(size=(96, 6)).astype("float32")
    y = np.stack([x[:, 0] * x[:, 1], x[:, 2]], axis=1)
    told = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
    run = phalanx.fit(network(), train=(x, y), loss="mse", optimizer=told, batch=16, epochs=4, seed=5, progress=False)
    assert np.allclose(losses, run.metrics["loss"], rtol=1e-5, atol=1e-6)
    fused = model_fusion(0)
    module = network()
    module.load_state_dict(torch.load("trained/trained_state_dict.pt", weights_only=True), strict=True)
    assert list(fused) == list(module.state_dict())
    for name, value in run.state_dict().items():
        assert np.allclose(fused[name].numpy(), value, atol=1e-5)
    worth = [line for output in outputs for line in output.splitlines() if line.startswith("worth {")]
    assert len(worth) == 1


def test_two_clusters_average_their_parameters_with_rates_of_a_scheduler(folder):
    project(folder, nodes=4)
    clusters = clusterize(network(), (torch.zeros(16, 6),), clusters=2)
    assert [len(cluster.members) for cluster in clusters] == [2, 2]
    options = (
        '{"node": {"reduce_factor": 2, "lr_scheduler": torch.optim.lr_scheduler.StepLR, '
        '"lr_scheduler_params": {"step_size": 2, "gamma": 0.1}}}'
    )
    losses, _ = run_providers(folder, options, order=(3, 1, 0, 2))
    assert len(losses) == 12 and losses[-1] < losses[0]
    assert model_fusion(0).keys() == model_fusion(1).keys()
    lines = (folder / "node_data" / "runs" / "0001" / "metrics.jsonl").read_text().splitlines()
    rates = [line["lr"] for line in map(json.loads, lines) if "val_loss" not in line]
    assert np.allclose(rates, [0.05] * 6 + [0.005] * 6)


def copy_example(folder):
    for name in ("digits.py", "form_clusters.py", "provider.py", "fuse.py", "node_data/node_configs.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(EXAMPLES / "python-decentralized" / name, folder / name)
    return {"DIGITS": str(EXAMPLES / "digits" / "digits.npz"), "EPOCHS": str(EPOCHS)}


def wait_for(what, within=LIMIT):
    until = time.monotonic() + within
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_example_survives_a_killed_provider_and_reaches_97_percent(folder):
    environment = copy_example(folder)
    finish([start(folder / "form_clusters.py", **environment)])
    programs = {i: start(folder / "provider.py", f"node_{i}", **environment) for i in (2, 1, 0)}
    try:
        losses = folder / "losses.txt"
        wait_for(lambda: losses.exists() and len(losses.read_text().split()) > 100)
        programs[1].send_signal(signal.SIGKILL)
        programs[1].wait()
        programs[1] = start(folder / "provider.py", "node_1", **environment)
        outputs = finish(list(programs.values()))
    finally:
        for program in programs.values():
            program.kill()
    assert len(losses.read_text().split()) == EPOCHS * 17
    accuracies = [float(line) for line in (folder / "val_accuracies.txt").read_text().split()]
    assert accuracies[-1] >= 0.97, accuracies
    assert any("accuracy 9" in output for output in outputs)
    (fused,) = finish([start(folder / "fuse.py", **environment)])
    assert float(fused.split()[1].rstrip("%")) >= 97, fused


def test_mistakes_are_told_before_anything_runs(folder):
    project(folder)
    with pytest.raises(phalanx.ConfigError, match="node_5"):
        Node("node_5", criterion=squares)
    clusterize(network(), (torch.zeros(16, 6),))
    with pytest.raises(phalanx.ConfigError) as caught:
        Node("node_5", criterion=squares)
    assert "node_0, node_1, node_2" in caught.value.hint
    with pytest.raises(phalanx.ConfigError, match="no criterion"):
        Node("node_0")
    with pytest.raises(phalanx.ConfigError) as caught:
        Node("node_0", torch.optim.LBFGS, criterion=squares)
    assert "SGD, Adam, AdamW, RMSprop, Adagrad" in caught.value.hint
    with pytest.raises(phalanx.ConfigError, match="maximize"):
        optimizer_settings(torch.optim.Adam, {"maximize": True})
    node = Node("node_0", criterion=squares)
    with pytest.raises(phalanx.InputError, match="no samples"):
        Trainer(node).train()
    with pytest.raises(phalanx.InputError, match="no trained part"):
        model_fusion(0)
    with pytest.raises(phalanx.ConfigError, match="2 clusters"):
        clusterize(network(), (torch.zeros(16, 6),), clusters=2)


def test_ctrl_c_ends_a_provider_that_waits_for_the_others(folder):
    project(folder)
    clusterize(network(), (torch.zeros(16, 6),))
    x, y = np.zeros((32, 6), "float32"), np.zeros((32, 2), "float32")
    for name in ("node_1", "node_0"):
        sent = []

        def interrupt():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(1.0, interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            Trainer(Node(name, criterion=squares), (x, y), epochs=1, batch_size=16).train()
        assert time.monotonic() - sent[0] < 0.4


def test_nodes_on_several_machines_need_a_key(folder):
    project(folder)
    path = folder / "node_data" / "node_configs.json"
    pool = json.loads(path.read_text())
    pool["1"]["IP"] = "198.51.100.7:8081"
    path.write_text(json.dumps(pool))
    found = read_pool("node_data")
    with pytest.raises(phalanx.ConfigError, match="other machines cannot reach"):
        found.domain(found.providers[0])
    for node in pool.values():
        node["IP"] = node["IP"].replace("0.0.0.0", "198.51.100.6")
    path.write_text(json.dumps(pool))
    found = read_pool("node_data")
    with pytest.raises(phalanx.ConfigError, match="has no key") as caught:
        found.domain(found.providers[0])
    assert "phalanx domain new" in caught.value.hint


def test_learning_rates_are_a_table_of_changes():
    assert doctest.testmod(_optim).failed == 0
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR
    told = learning_rates(torch.optim.SGD, {"lr": 0.1}, cosine, {"T_max": 10}, (5, 2), False)
    assert told["steps"] == list(range(10)) and told["rates"][0] == 0.1
    assert learning_rates(torch.optim.SGD, {"lr": 0.1}, None, None, (5, 2), True) is None
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    with pytest.raises(phalanx.ConfigError, match="losses"):
        learning_rates(torch.optim.SGD, {"lr": 0.1}, plateau, {}, (5, 2), True)


def test_records_follow_a_run_that_goes_back(tmp_path):
    source = tmp_path / "metrics.jsonl"
    losses, accuracies = tmp_path / "losses.txt", tmp_path / "accuracies.txt"
    records = Records(str(tmp_path), str(losses), str(accuracies))
    records.update()
    source.write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n{"val_loss": 1, "val_acc": 0.9}\n{"st')
    records.update()
    assert losses.read_text() == "0.5\n0.4\n" and accuracies.read_text() == "0.9\n"
    source.write_text('{"step": 1, "loss": 0.5}\n')
    records.update()
    assert losses.read_text() == "0.5\n" and accuracies.read_text() == ""


def test_a_seed_is_remembered():
    set_seed(11)
    first = torch.rand(2)
    set_seed(11)
    assert torch.equal(first, torch.rand(2))
