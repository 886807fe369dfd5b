"""Runs the built program: `PHALANX` names it, `phalanx` in `target/debug` when not given."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PHALANX", str(ROOT / "target" / "debug" / "phalanx"))
DIGITS = ROOT / "examples" / "digits" / "digits.npz"

RUN_FILE = f"""
[model]
zoo = "mlp"
input = [1, 8, 8]
[data]
train = {{ file = "{DIGITS}", x = "x_train", y = "y_train" }}
valid = {{ file = "{DIGITS}", x = "x_test", y = "y_test" }}
scale = 0.0625
[train]
loss = "cross_entropy"
batch = 64
seed = 42
"""


class Runs:
    """A directory with runs of the program."""

    def __init__(self, directory):
        self.directory = directory

    def phalanx(self, *args):
        done = subprocess.run([PROGRAM, *map(str, args)], cwd=self.directory, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *args):
        return subprocess.Popen([PROGRAM, *map(str, args)], cwd=self.directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def run_file(self, train):
        (self.directory / "run.toml").write_text(RUN_FILE + train + "\n")

    def train(self, name, train="epochs = 2"):
        self.run_file(train)
        self.phalanx("train", "run.toml", "--run-dir", f"runs/{name}", "--output", "quiet")
        return self.directory / "runs" / name

    def metrics(self, name):
        """The recorded values by metric: a list of steps and values each."""
        found = {}
        for line in (self.directory / "runs" / name / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            for key, value in record.items():
                if key not in ("step", "pass", "unix_ms") and isinstance(value, (int, float)):
                    found.setdefault(key, []).append((record["step"], value))
        return found


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path)
