"""Prometheus' own parser accepts what nodes, drivers and stores serve at /metrics."""

import json
import signal
import subprocess
import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from conftest import PROGRAM


def families(url):
    """What is served, by name: a dictionary of labels and values each."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in found and family.documentation
        found[family.name] = {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
    return found


@pytest.fixture
def started(tmp_path):
    processes = []

    def start(*args):
        command = [PROGRAM, "--output", "json", *args]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def test_a_node(started):
    node = json.loads(started("node", "--domain", "prometheus-test", "--cores", "2", "--memory", "1GiB", "--metrics", "0").stdout.readline())
    assert node["metrics"].startswith("http://127.0.0.1:")
    served = families(node["metrics"])
    assert served["phalanx_node_cores"] == {(): 2} and served["phalanx_node_memory_bytes"] == {(): 1 << 30}
    assert served["phalanx_node_jobs"] == {(("state", "running"),): 0}
    assert served["phalanx_domain_nodes"] == {(("state", "running"),): 1}
    assert served["process_resident_memory_bytes"][()] > 1 << 20


def test_a_store_counts_commands(started):
    store = json.loads(started("store", "serve", "--bind", "127.0.0.1:0", "--metrics", "0").stdout.readline())
    before = families(store["metrics"])
    subprocess.run(["redis-cli", "-u", f"redis://{store['address']}", "set", "a", "b"], check=True, capture_output=True)
    after = families(store["metrics"])
    assert (before["phalanx_store_keys"], after["phalanx_store_keys"]) == ({(): 0}, {(): 1})
    assert after["phalanx_store_commands"][()] > before["phalanx_store_commands"][()]
    assert after["phalanx_store_used_bytes"][()] > 0


def test_a_driver_tells_how_far_it_is(started, tmp_path, runs):
    runs.run_file("epochs = 100000")
    driver = started("train", "run.toml", "--run-dir", "run", "--metrics", "0")
    url = next(line for line in driver.stderr if line.startswith("metrics at ")).split()[-1]
    # Waits for the first reported step, not for time.
    while not (served := families(url)).get("phalanx_run_steps", {}).get((), 0):
        assert driver.poll() is None
    assert served["phalanx_run_info"][(("model", "mlp"), ("run", "run"))] == 1
    later = families(url)
    assert later["phalanx_run_step"][()] >= served["phalanx_run_step"][()] >= 1
    assert later["phalanx_run_samples_per_second"][()] > 0 and later["phalanx_run_loss"][()] > 0
    assert later["phalanx_run_waiting"] == {(): 0}
