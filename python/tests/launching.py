"""Starts the programs of the folder `ranks` as ranks, by the real launcher."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any, Optional

PROGRAMS = pathlib.Path(__file__).resolve().parent / "ranks"


def launch(
    ranks: int,
    program: str,
    *arguments: Any,
    options: tuple[str, ...] = (),
    code: int = 0,
    cwd: Optional[pathlib.Path] = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; gives what it said."""
    command = [sys.executable, "-m", "phalanx", "launch", "-n", str(ranks), *options, "--", sys.executable]
    command += [str(PROGRAMS / program), *map(str, arguments)]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )
    assert ended.returncode == code, f"{ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended
