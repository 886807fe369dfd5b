"""`examples/streaming`: simulations, a store and a trainer that follows them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "streaming"


@pytest.mark.parametrize("local", [(), ("--local", "4")], ids=["one process", "four replicas"])
def test_a_trainer_follows_the_simulations(tmp_path: pathlib.Path, local: "tuple[str, ...]") -> None:
    run = tmp_path / "run"
    command = [sys.executable, str(EXAMPLE / "run_all.py"), "--pause", "0.02", "--run-dir", str(run), *local]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    sizes = [sum(line["pass"] == number for line in steps) for number in range(1, 61)]
    assert sizes == sorted(sizes) and sizes[-1] == 2 * 40 * 32 // 64, "passes grow to all samples"
    valid = [line["val_loss"] for line in lines if "val_loss" in line]
    assert len(valid) == 6 and valid[-1] < valid[0] / 4, valid
    assert (run / "model.safetensors").is_file()
