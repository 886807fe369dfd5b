"""The same client on every kind of store: of a domain, shared by nodes, and a Redis cluster."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
from typing import Any, Callable, Iterator, List

import numpy as np
import pytest

from phalanx.errors import StoreError, StoreKeyError
from phalanx.store import Dataset, Store

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "streaming"
PATIENCE = 60
# Large enough for shared memory.
LARGE = np.arange(1 << 18, dtype="float64")


def until(is_so: "Callable[[], Any]") -> Any:
    """Waits for something that no event tells of, under a deadline."""
    end = time.monotonic() + PATIENCE
    while True:
        found = is_so()
        if found:
            return found
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Directories of Phalanx that no other test uses, also for this process."""
    for kind in ("RUNTIME", "CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"PHALANX_{kind}_DIR", str(tmp_path / kind))
    return tmp_path


def phalanx(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "phalanx", *words], check=True, capture_output=True)


@pytest.fixture
def node(home: pathlib.Path) -> "Iterator[Callable[..., str]]":
    """Starts nodes with stores; gives where a store is."""
    nodes: "List[subprocess.Popen[str]]" = []

    def start(domain: str, *options: str) -> str:
        command = [sys.executable, "-m", "phalanx", "--output", "json", "node", "--no-mdns", "--domain", domain]
        nodes.append(subprocess.Popen([*command, "--store", *options], stdout=subprocess.PIPE, text=True))
        out = nodes[-1].stdout
        assert out is not None
        return str(json.loads(out.readline())["store"])

    yield start
    for process in nodes:
        process.terminate()
    for process in nodes:
        process.wait(timeout=20)


def check_everything(store: Store) -> None:
    """Tensors, datasets and lists."""
    tensors = {f"t{n}": np.full((3, 4), n, dtype="float32") for n in range(20)}
    store.put_all({**tensors, "large": LARGE})
    for name, value in store.get_all(tensors).items():
        assert np.array_equal(value, tensors[name])
    assert np.array_equal(store.get("large"), LARGE)
    store.copy("t1", "copied")
    store.rename("copied", "renamed")
    assert np.array_equal(store.get("renamed"), tensors["t1"]) and not store.exists("copied")
    assert store.delete("renamed")
    with pytest.raises(StoreKeyError):
        store.get("renamed")
    store.wait("large", timeout=PATIENCE)
    for n in range(5):
        dataset = Dataset(f"d{n}")
        dataset.add_tensor("x", np.full(4, n))
        dataset.add_metadata("label", f"number {n}", "and more")
        store.put_dataset(dataset)
        assert store.append("list", dataset) == n + 1
    store.wait_for_length("list", 5, timeout=PATIENCE)
    found = store.datasets("list")
    assert [int(each.tensors["x"][0]) for each in found] == list(range(5))
    assert [each.metadata["label"] for each in found] == [[f"number {n}", "and more"] for n in range(5)]
    store.copy_list("list", "other")
    assert store.length("other") == 5 and store.delete_list("other")
    store.rename_dataset("d0", "e0")
    assert store.dataset_exists("e0") and not store.dataset_exists("d0")


def check_streams(store: Store, other: Store, stream: str) -> None:
    """A producer, and trainers that connected elsewhere."""
    with store.producer(stream, "sim", expected_producers=1, timeout=PATIENCE) as producer:
        for number in range(10):
            producer.put({"x": np.arange(number * 10, number * 10 + 10), "big": np.zeros((10, 4000))})
    options: Any = {"mode": "static", "batch": 8, "seed": 3, "passes": 1, "timeout": PATIENCE}
    whole = [batch["x"].tolist() for batch in other.reader(stream, "one", **options)]
    assert sorted(value for batch in whole for value in batch) == list(range(100))
    readers = [each.reader(stream, "two", rank=rank, ranks=2, **options) for rank, each in enumerate((store, other))]
    shares = zip(*(list(reader) for reader in readers))
    assert [[value for share in step for value in share["x"].tolist()] for step in shares] == whole
    assert other.stream_info(stream)["stream"]["samples"] == 100


def test_the_store_of_a_domain(node: "Callable[..., str]") -> None:
    phalanx("domain", "new", "lab")
    address = node("lab")
    with Store(domain="lab") as store, Store(f"phalanx://lab@127.0.0.1:{address.rsplit(':', 1)[1]}") as other:
        check_everything(store)
        check_streams(store, other, "data")
        assert other.streams() == ["data"]


def shared_by_two(node: "Callable[..., str]") -> "List[str]":
    """Two nodes of domain `pair` that share a store; gives where their parts are."""
    addresses = [node("pair", "--store-shard", part, "--memory", "1GiB") for part in ("1/2", "2/2")]

    def knows_both() -> bool:
        with Store(domain="pair") as store:
            return len({tuple(entry[2][:2]) for entry in store.command("CLUSTER", "SLOTS")}) == 2

    until(knows_both)
    return addresses


@pytest.mark.parametrize("has_key", [False, True])
def test_a_store_that_nodes_of_a_domain_share(node: "Callable[..., str]", has_key: bool) -> None:
    if has_key:
        phalanx("domain", "new", "pair")
    shared_by_two(node)
    with Store(domain="pair") as store, Store(domain="pair") as other:
        check_everything(store)
        names = [f"stream{n}" for n in range(4)]
        for name in names:
            check_streams(store, other, name)
        assert store.streams() == names
        assert store.delete_stream("stream1") and not other.delete_stream("stream1")
        assert other.streams() == ["stream0", "stream2", "stream3"]


def test_a_run_follows_simulations_through_a_shared_store(
    node: "Callable[..., str]", home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`examples/streaming`, where producers are given the node that does not have the stream."""
    addresses = shared_by_two(node)
    with Store(domain="pair") as store:
        holder = store.command("CLUSTER", "KEYSLOT", "heat") // 8192
    folder = home / "example"
    shutil.copytree(EXAMPLE, folder)
    simulate = [sys.executable, "simulate.py"]
    subprocess.run([*simulate, "--write", "valid.npz"], cwd=folder, check=True)
    monkeypatch.setenv("PHALANX_STORE", addresses[1 - holder])
    options = ["--uploads", "20", "--pause", "0.01"]
    simulations = [subprocess.Popen([*simulate, name, *options], cwd=folder) for name in ("sim-1", "sim-2")]
    monkeypatch.setenv("PHALANX_STORE", "phalanx://pair")
    train = ["train", "run.toml", "--local", "2", "--set", "train.epochs=20", "--run-dir", "run"]
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", *train], cwd=folder, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert [simulation.wait(PATIENCE) for simulation in simulations] == [0, 0]
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(line["pass"] for line in lines if "loss" in line) == 20
    assert sum(line["pass"] == 20 for line in lines if "loss" in line) == 2 * 20 * 32 // 64
    words = [sys.executable, "-m", "phalanx", "--output", "json", "store", "watch", "--once", "--domain", "pair"]
    shown = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)["streams"]
    assert [(stream["name"], stream["stream"]["samples"]) for stream in shown] == [("heat", 2 * 20 * 32)]


def _free_ports(count: int) -> "List[int]":
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture
def redis_cluster(tmp_path: pathlib.Path) -> "Iterator[List[str]]":
    """Three masters of a Redis cluster; gives their addresses."""
    if shutil.which("redis-server") is None:
        assert "PHALANX_REQUIRE_REDIS" not in os.environ, "redis-server is not installed"
        pytest.skip("redis-server is not installed")
    ports = _free_ports(6)
    masters = list(zip(ports[:3], ports[3:]))
    servers = []
    for port, bus in masters:
        folder = tmp_path / str(port)
        folder.mkdir()
        options = {"port": port, "bind": "127.0.0.1", "cluster-enabled": "yes", "cluster-port": bus, "save": ""}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        servers.append(subprocess.Popen(["redis-server", *words], cwd=folder, stdout=subprocess.DEVNULL))

    def ask(port: int, *words: object) -> str:
        command = ["redis-cli", "-p", str(port), *(str(word) for word in words)]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    ranges = [(0, 5460), (5461, 10922), (10923, 16383)]
    for number, ((port, _bus), (first, last)) in enumerate(zip(masters, ranges)):
        until(lambda: ask(port, "ping") == "PONG")  # noqa: B023
        assert ask(port, "cluster", "set-config-epoch", number + 1) == "OK"
        assert ask(port, "cluster", "addslotsrange", first, last) == "OK"
    for port, _bus in masters[1:]:
        assert ask(port, "cluster", "meet", "127.0.0.1", *masters[0]) == "OK"
    until(lambda: all("cluster_state:ok" in ask(port, "cluster", "info") for port, _bus in masters))
    until(lambda: all("cluster_known_nodes:3" in ask(port, "cluster", "info") for port, _bus in masters))
    yield [f"127.0.0.1:{port}" for port, _bus in masters]
    for server in servers:
        server.kill()
        server.wait()


def test_a_redis_cluster_by_its_address_alone(redis_cluster: "List[str]") -> None:
    for address in (redis_cluster[1], f"redis+cluster://{','.join(redis_cluster)}"):
        with Store(address) as store:
            check_everything(store)
            with pytest.raises(StoreError, match="only a phalanx store has"):
                store.streams()
            for key in ("list", "e0", "d1", "d2", "d3", "d4"):
                _ = store.delete_list(key) if key == "list" else store.delete_dataset(key)
