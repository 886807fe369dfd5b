"""Finding runs: the index of what was run, here or by all hosts that share a database."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Mapping, Optional, Tuple

import numpy as np

from . import _phalanx
from ._arrays import Array
from ._run import Path, Run


@dataclass(frozen=True)
class RunRecord:
    """What the ledger knows of a run."""

    name: str
    uid: str
    """Identifies the run, wherever its directory is copied."""
    state: str
    """``running``, ``finished``, ``failed`` or ``interrupted``."""
    reason: Optional[str]
    """Why it failed or was interrupted."""
    model: str
    run_dir: str
    host: str
    started: Optional[datetime]
    ended: Optional[datetime]
    steps: int
    wall_seconds: float
    params: Mapping[str, str]
    """The run file, flattened: ``train.batch``."""
    last: Mapping[str, float]
    """The last value of every metric; one that is not a number is NaN."""
    best: Mapping[str, float]
    """The best value of every metric: the least where the name says that lower is better, else the most."""
    tags: Mapping[str, str]
    directory: str
    """The directory of runs that was asked for."""

    def curve(self, metric: str) -> Tuple[Array, Array]:
        """Steps and values of a metric, as they were recorded."""
        steps, values = _phalanx.run_curve(self.directory, self.uid, metric)
        return np.asarray(steps, dtype=np.int64), np.asarray(values, dtype=np.float64)

    def open(self, model: Any = None) -> Run:
        """Opens the run with its model; see :meth:`Run.open`."""
        return Run.open(self.run_dir, model)

    def __repr__(self) -> str:
        return f"<RunRecord {self.name}: {self.state}, {self.model}, {self.steps} steps>"


def runs(
    directory: Path = "runs",
    *,
    where: Optional[str] = None,
    sort: Optional[str] = None,
    limit: Optional[int] = None,
) -> list[RunRecord]:
    """Finds runs, in the order in which they began unless ``sort`` says another.

    ``where`` and ``sort`` are those of ``phalanx run list``: ``where='val_acc > 0.97 and train.batch = 64'``,
    ``sort='-val_acc'``. With ``PHALANX_LEDGER=postgres://…`` these are the runs of all hosts.
    """
    path = os.fspath(directory)
    found = json.loads(_phalanx.find_runs(path, where, sort, limit))
    return [_record(row, path) for row in found]


def _record(row: Mapping[str, Any], directory: str) -> RunRecord:
    return RunRecord(
        name=row["name"],
        uid=row["uid"],
        state=row["state"],
        reason=row["reason"],
        model=row["model"],
        run_dir=row["dir"],
        host=row["host"],
        started=_time(row["started_ms"]),
        ended=_time(row["ended_ms"]),
        steps=row["steps"],
        wall_seconds=row["wall_s"],
        params=row.get("params", {}),
        last=_numbers(row.get("last", {})),
        best=_numbers(row.get("best", {})),
        tags=row.get("tags", {}),
        directory=directory,
    )


def _time(milliseconds: Optional[int]) -> Optional[datetime]:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def _numbers(values: Mapping[str, Optional[float]]) -> Mapping[str, float]:
    return {name: float("nan") if value is None else value for name, value in values.items()}
