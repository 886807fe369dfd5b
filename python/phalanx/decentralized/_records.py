"""What a run writes while it trains: losses and accuracies, one number a line."""

from __future__ import annotations

import json
import os
from typing import Any, Iterator, Mapping, Optional

ACCURACIES = "val_accuracies.txt"


class Records:
    """Follows the records of a run, and keeps two text files up to date with them."""

    def __init__(self, run_dir: str, losses: str, accuracies: str = ACCURACIES) -> None:
        self._source = os.path.join(run_dir, "metrics.jsonl")
        self._losses, self._accuracies = losses, accuracies
        self._offset = 0
        self._clear()

    def _clear(self) -> None:
        for path in (self._losses, self._accuracies):
            with open(path, "w", encoding="utf-8"):
                pass
        self._offset = 0

    def update(self) -> None:
        """Appends what is new. A run that went back to a checkpoint has shorter records: all is written again."""
        try:
            size = os.path.getsize(self._source)
        except FileNotFoundError:
            return
        if size < self._offset:
            self._clear()
        if size == self._offset:
            return
        losses, accuracies = [], []
        for line in self._new_lines():
            if "val_loss" not in line:
                losses.append(line.get("loss"))
            elif line.get("val_acc") is not None:
                accuracies.append(line["val_acc"])
        _append(self._losses, losses)
        _append(self._accuracies, accuracies)

    def _new_lines(self) -> Iterator[Mapping[str, Any]]:
        with open(self._source, "rb") as file:
            file.seek(self._offset)
            for text in file:
                if not text.endswith(b"\n"):
                    return
                self._offset += len(text)
                yield json.loads(text)


def _append(path: str, values: list[Optional[float]]) -> None:
    if values:
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(f"{'nan' if value is None else value}\n" for value in values)
