"""Training with torch on ranks that the launcher starts."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import pytest
from launching import PROGRAMS, launch

pytest.importorskip("torch")


def test_training_on_ranks_is_training_with_the_whole_batch() -> None:
    assert launch(4, "training.py").stdout.count("done") == 4


def test_elastic_training_goes_on_from_the_last_commit(tmp_path: pathlib.Path) -> None:
    said = launch(3, "elastic.py", tmp_path, options=("--min", "2")).stdout
    assert said.count("resets [3]") == 2 and said.count("resets []") == 1


def test_a_program_for_horovod_runs_as_it_is() -> None:
    said = launch(2, "with_horovod.py", options=("--compat",))
    assert said.stdout.count("done") == 2
    assert said.stderr.count("phalanx.compat: serves") == 1
    assert "sitecustomize" not in said.stderr
    assert "there is no `horovod.spark` here" in said.stderr


def test_the_example_learns(tmp_path: pathlib.Path) -> None:
    example = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python-data-parallel" / "train.py"
    said = launch(2, str(example), "--epochs", 3, cwd=tmp_path).stdout.splitlines()
    assert [line.split(":")[0] for line in said] == ["[0] pass 1", "[0] pass 2", "[0] pass 3"]
    assert float(said[-1].split(", ")[1].split("%")[0]) > 85
    assert (tmp_path / "digits.pt").exists()


def test_a_rank_that_comes_later_is_let_in_at_a_commit(tmp_path: pathlib.Path) -> None:
    domain = f"grow-{os.getpid()}"
    environment = {**os.environ, "PHALANX_RUNTIME_DIR": str(tmp_path / "runtime")}

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "phalanx", words[0], "--domain", domain, "--no-mdns", *words[1:]]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)

    node = ("node", "--cores", "2", "--allow-exec", "--output", "quiet")
    program = (sys.executable, str(PROGRAMS / "growing.py"), str(tmp_path))
    nodes = [start(*node)]
    try:
        ranks = start("launch", "--min", "2", "--max", "3", "--", *program)
        try:
            deadline = time.monotonic() + 60
            while not (tmp_path / "trains").exists():
                assert ranks.poll() is None and time.monotonic() < deadline, ranks.communicate()[0]
                time.sleep(0.02)
            # It has room for two, and one may come.
            nodes.append(start(*node))
            said = ranks.communicate(timeout=120)[0]
        finally:
            ranks.kill()
            ranks.wait()
    finally:
        for process in nodes:
            process.terminate()
            process.wait()
    assert ranks.returncode == 0, said
    assert said.count("resets [3]") == 2 and said.count("resets []") == 1, said
    assert said.count("placed: ") == 2, said
