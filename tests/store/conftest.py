"""Starts real servers for the tests: `PHALANX` names the program, `phalanx` in `target/debug` when not given."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import pytest
import redis

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PHALANX", str(ROOT / "target" / "debug" / "phalanx"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Store:
    """A store process, which may be killed and started again at the same addresses."""

    def __init__(self, *options):
        self.port = free_port()
        self.directory = tempfile.TemporaryDirectory()
        self.unix = os.path.join(self.directory.name, "store.sock")
        self.options = options
        self.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def command(self):
        command = [PROGRAM, "--output", "quiet", "store", "serve", "--bind", self.address, "--unix", self.unix]
        return [*command, *self.options]

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        # It says its address when it listens.
        assert self.process.stdout.readline().strip() == self.address

    def start_in(self, seconds):
        """Starts the server after a while, without waiting for it."""
        command = ["sh", "-c", f'sleep {seconds}; exec "$@"', "sh", *self.command]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        code = self.process.wait(timeout=20)
        self.directory.cleanup()
        return code


@pytest.fixture
def store():
    store = Store()
    yield store
    store.end()


class Domain:
    """Directories of Phalanx that no other test uses, and nodes in a domain."""

    def __init__(self, name):
        self.name = name
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        kinds = ["RUNTIME", "CONFIG", "STATE", "CACHE"]
        self.environment = {**os.environ, **{f"PHALANX_{kind}_DIR": str(self.path / kind) for kind in kinds}}
        self.nodes = {}

    def run(self, *words):
        return subprocess.run([PROGRAM, *words], env=self.environment, capture_output=True, text=True, check=True).stdout

    def command(self, *options):
        return [PROGRAM, "--output", "json", "node", "--domain", self.name, "--no-mdns", "--store", *options]

    def start(self, label, *options):
        """Starts a node with a store; gives the port of the store."""
        node = subprocess.Popen(self.command(*options), env=self.environment, stdout=subprocess.PIPE, text=True)
        self.nodes[label] = node
        return int(json.loads(node.stdout.readline())["store"].rsplit(":", 1)[1])

    def end(self):
        for node in self.nodes.values():
            node.terminate()
        for node in self.nodes.values():
            node.wait(timeout=20)
        self.directory.cleanup()


class Shards:
    """Three nodes that share a store, each of which keeps its part in a directory."""

    def __init__(self):
        self.domain = Domain("shared")
        self.ports = [free_port() for _ in range(3)]
        self.addresses = [f"127.0.0.1:{port}" for port in self.ports]

    def start_all(self):
        for index in range(3):
            self.start(index)
        until(lambda: all(self.knows_all(port) for port in self.ports))

    def options(self, index):
        directory = self.domain.path / f"part{index}"
        bind = ["--store-bind", self.addresses[index], "--memory", "1GiB"]
        return ["--store-shard", f"{index + 1}/3", "--store-persist", str(directory), *bind]

    def start(self, index):
        assert self.domain.start(index, *self.options(index)) == self.ports[index]

    def start_in(self, seconds, index):
        """Starts a node after a while, without waiting for it."""
        command = ["sh", "-c", f'sleep {seconds}; exec "$@"', "sh", *self.domain.command(*self.options(index))]
        node = subprocess.Popen(command, env=self.domain.environment, stdout=subprocess.DEVNULL)
        self.domain.nodes[index] = node

    def kill(self, index):
        node = self.domain.nodes[index]
        node.kill()
        node.wait()

    def knows_all(self, port):
        with redis.Redis(port=port) as node:
            return len({entry[2][1] for entry in node.execute_command("CLUSTER", "SLOTS")}) == 3

    def client(self, index):
        return redis.Redis(port=self.ports[index])

    def flush(self):
        for index in range(3):
            with self.client(index) as node:
                node.flushall()


def until(is_so):
    """Waits for something that no event tells of, under a deadline."""
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module")
def running_shards():
    shards = Shards()
    try:
        shards.start_all()
        yield shards
    finally:
        shards.domain.end()


@pytest.fixture
def shards(running_shards):
    running_shards.flush()
    return running_shards
