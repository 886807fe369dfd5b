"""Starts real servers for the tests: `PHALANX` names the program, `phalanx` in `target/debug` when not given."""

import os
import pathlib
import signal
import socket
import subprocess
import tempfile

import pytest

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
