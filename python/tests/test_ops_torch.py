"""Training with torch on ranks that the launcher starts."""

from __future__ import annotations

import pathlib

import pytest
from launching import launch

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
