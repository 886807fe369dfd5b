"""Collectives between ranks that the launcher starts."""

from __future__ import annotations

import pathlib

import pytest
from launching import launch


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_operation_of_numpy_in_any_order(ranks: int) -> None:
    said = launch(ranks, "collectives.py", "numpy", ranks).stdout
    assert said.count("checked ") == ranks


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_operation_of_torch_in_any_order(ranks: int) -> None:
    pytest.importorskip("torch")
    said = launch(ranks, "collectives.py", "torch", ranks).stdout
    assert said.count("checked ") == ranks


def test_refusals_are_told_to_all_ranks(tmp_path: pathlib.Path) -> None:
    assert launch(3, "refusals.py", tmp_path).stdout.count("done") == 3


def test_a_killed_rank_ends_operations_of_the_others_within_a_second(tmp_path: pathlib.Path) -> None:
    launch(3, "killed.py", tmp_path, code=137)
    killed = float((tmp_path / "killed").read_text())
    for rank in (0, 2):
        when, reason = (tmp_path / f"lost{rank}").read_text().split(" ", 1)
        assert reason == "rank 1 is lost"
        assert 0 <= float(when) - killed < 1.0
        assert (tmp_path / f"again{rank}").exists()


def test_stalls_are_told_with_the_name_and_the_ranks() -> None:
    said = launch(2, "stalled.py", PHALANX_STALL_REPORT_S="1", PHALANX_STALL_LIMIT_S="2")
    assert said.stdout.count("done") == 2
    assert "late" in said.stderr and "missing=[1]" in said.stderr


def test_ctrl_c_ends_a_wait(tmp_path: pathlib.Path) -> None:
    launch(2, "interrupted.py")
