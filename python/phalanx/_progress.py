"""What a run shows while it trains."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any, Callable, Iterator, Mapping, Optional, TextIO, Union

Show = Callable[[Mapping[str, Any]], None]


@contextlib.contextmanager
def shown(progress: Union[bool, Show, None]) -> Iterator[Optional[Callable[[str], None]]]:
    """A function of the progress as JSON; None if nothing is shown."""
    if callable(progress):
        show = progress
        yield lambda text: show(json.loads(text))
    elif progress if progress is not None else is_watched():
        line = _Line(sys.stderr)
        try:
            yield lambda text: line.show(json.loads(text))
        finally:
            line.end()
    else:
        yield None


def is_watched() -> bool:
    """Whether a person looks: in a terminal or a notebook."""
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


class _Line:
    """One line that is written over and over."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._width = 0
        self._began = time.monotonic()
        self._first: Optional[int] = None

    def show(self, now: Mapping[str, Any]) -> None:
        text = self._waiting(now) if now["waiting"] else self._going(now)
        self._out.write("\r" + text.ljust(self._width))
        self._width = len(text)
        self._out.flush()

    def end(self) -> None:
        if self._width:
            self._out.write("\n")
            self._out.flush()

    def _waiting(self, now: Mapping[str, Any]) -> str:
        # The reason of a stream is a whole sentence already.
        reason = now["waiting"].removeprefix("waiting: ")
        return f"waiting: {reason}"[:100]

    def _going(self, now: Mapping[str, Any]) -> str:
        step, steps = now["step"], now["steps"]
        # Where the samples come from a stream, nobody knows how many steps there will be.
        parts = [f"step {step}" if steps is None else f"step {step}/{steps}"]
        if now["loss"] is not None:
            parts.append(f"loss {now['loss']:.4f}")
        if now["val_loss"] is not None:
            parts.append(f"val_loss {now['val_loss']:.4f}")
        if now["val_acc"] is not None:
            parts.append(f"val_acc {now['val_acc']:.2%}")
        parts.append(f"{now['samples_per_s']:.0f} samples/s")
        if self._first is None:
            self._first = step
        done = step - self._first
        if done > 0 and steps is not None and step < steps:
            left = (time.monotonic() - self._began) / done * (steps - step)
            parts.append(f"{left:.0f} s left")
        return ", ".join(parts)
