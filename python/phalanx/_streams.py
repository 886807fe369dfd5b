"""Producers and readers of streams; ``phalanx.store`` is the public module."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from . import _phalanx
from ._arrays import Array
from ._dataset import storable
from .errors import InputError, StoreTimeout

__all__ = ["StreamBatch", "StreamProducer", "StreamReader"]

OnWait = Callable[[str], Any]

_DTYPES = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "bool": "bool",
}


def stream_settings(
    retention: Optional[str], budget: Optional[int], expected_producers: Optional[int]
) -> Optional[str]:
    """Settings of a stream as the store reads them; nothing if none is given."""
    if retention is None and budget is None and expected_producers is None:
        return None
    if retention not in (None, "keep", "free"):
        raise InputError(f"there is no retention {retention!r}", "it is 'keep' or 'free'")
    return json.dumps(
        {
            "expected_producers": expected_producers,
            "retention": "Free" if retention == "free" else "Keep",
            "budget": budget,
            "producer_silence": None,
            "trainer_silence": None,
        }
    )


def read_mode(
    mode: str,
    min_samples: int,
    new_samples: int,
    window: Optional[int],
    capacity: Optional[int],
    steps: Optional[int],
) -> Any:
    """A mode as the store reads it."""
    if mode == "static":
        return "Static"
    if mode == "grow":
        return {"Grow": {"min_samples": min_samples, "new_samples": new_samples}}
    if mode == "once":
        if window is None:
            raise InputError("mode 'once' needs a `window`: how many samples are shuffled together")
        return {"Once": {"window": window}}
    if mode == "reservoir":
        if capacity is None:
            raise InputError("mode 'reservoir' needs a `capacity`: how many samples are kept")
        return {"Reservoir": {"capacity": capacity, "min_samples": min_samples, "steps": steps}}
    raise InputError(f"there is no mode {mode!r}", "modes are 'static', 'grow', 'once' and 'reservoir'")


class StreamProducer:
    """Appends uploads to a stream; ``Store.producer`` makes one.

    As a context it closes when the block ends, which says that there are no more samples; after an error it does not,
    and counts as lost: the same program may be started again.
    """

    def __init__(self, producer: _phalanx.StreamProducer, timeout: Optional[float], on_wait: Optional[OnWait]) -> None:
        self._producer, self._timeout, self._on_wait = producer, timeout, on_wait

    @property
    def next(self) -> int:
        """The number of the next upload; after a restart, of the first that has not arrived."""
        return self._producer.next

    @property
    def has_closed(self) -> bool:
        """Whether it closed before it was started again: there is nothing left to do."""
        return self._producer.has_closed

    def put(self, fields: Mapping[str, Any], *, timeout: Optional[float] = None) -> int:
        """Appends arrays whose first dimension counts samples; gives the number of the upload, which then counts.

        Waits while there is no room, at most ``timeout`` seconds; ``on_wait`` of the producer is told why.
        """
        named = [(name, storable(value, name)) for name, value in fields.items()]
        return self._producer.put(named, self._timeout if timeout is None else timeout, self._on_wait)

    def close(self) -> None:
        """Says that there are no more samples."""
        self._producer.close()

    def __enter__(self) -> "StreamProducer":
        return self

    def __exit__(self, kind: Optional[type], *_error: object) -> None:
        if kind is None:
            self.close()
        else:
            self._producer.abandon()


class StreamBatch(Dict[str, Array]):
    """Arrays by name, and where they stand in the stream."""

    def __init__(self, arrays: Mapping[str, Array], samples: List[int], state: Dict[str, int]) -> None:
        super().__init__(arrays)
        self.samples = samples
        """Which samples these are, by order of arrival."""
        self.state = state
        """The place after this batch, for ``resume=``."""


class StreamReader:
    """Reads a stream batch by batch; ``Store.reader`` makes one. Iterating goes through all passes.

    As a context it closes when the block ends: the run needs no more samples. After an error it does not: samples are
    kept, and the run may go on later.
    """

    def __init__(
        self,
        run: _phalanx.StreamRun,
        *,
        rank: int,
        ranks: int,
        member: Optional[_phalanx.StreamMember],
        commits: bool,
        timeout: Optional[float],
        on_wait: Optional[OnWait],
    ) -> None:
        self._run, self._rank, self._ranks, self._member = run, rank, ranks, member
        self._commits, self._timeout, self._on_wait = commits, timeout, on_wait
        cursor = run.cursor
        self._state: Optional[Dict[str, int]] = None if cursor is None else json.loads(cursor)
        self._fields: Optional[List[Tuple[str, str, Tuple[int, ...]]]] = None
        self._ending: Optional[str] = None

    @property
    def state(self) -> Optional[Dict[str, int]]:
        """The place after the last batch, for a checkpoint and ``resume=``; None before the first."""
        return None if self._state is None else dict(self._state)

    @property
    def ending(self) -> Optional[str]:
        """Why there are no more batches, when there are none."""
        return self._ending

    def fields(self) -> Dict[str, Tuple[str, Tuple[int, ...]]]:
        """Types and shapes of one sample, by name; waits for the first upload."""
        return {name: (dtype, shape) for name, dtype, shape in self._described()}

    def _described(self) -> List[Tuple[str, str, Tuple[int, ...]]]:
        if self._fields is None:
            known = json.loads(self._run.fields(self._timeout))
            self._fields = [(one["name"], _DTYPES[one["dtype"]], tuple(one["sample_shape"])) for one in known]
        return self._fields

    def _batch(self, cursor: str, step: int, rank: int, ranks: int) -> StreamBatch:
        samples, parts = self._run.read(cursor, step, rank, ranks)
        arrays: Dict[str, Array] = {}
        for (name, dtype, shape), part in zip(self._described(), parts):
            arrays[name] = np.frombuffer(part, dtype=dtype).reshape((len(samples), *shape))
        state = {**json.loads(cursor), "step": step + 1}
        return StreamBatch(arrays, samples, state)

    def _gave_up(self, reason: str) -> StoreTimeout:
        return StoreTimeout(f"gave up after {self._timeout} s; {reason}")

    def __iter__(self) -> Iterator[StreamBatch]:
        return self._shares() if self._member is not None else self._passes()

    def _passes(self) -> Iterator[StreamBatch]:
        at = self._state or {"pass": 0, "step": 0}
        number, step = at["pass"], at["step"]
        while True:
            what, told = self._run.next_pass(number, self._timeout, self._waits)
            if what == "waiting":
                raise self._gave_up(told)
            if what == "finished":
                self._ending = told
                return
            steps = self._run.steps(told)
            while step < steps:
                batch = self._batch(told, step, self._rank, self._ranks)
                step += 1
                self._state = batch.state
                yield batch
                if self._commits:
                    # The batch was used when the next one is asked for.
                    self._run.commit(number, step)
            number, step = number + 1, 0

    def _waits(self, reason: str) -> None:
        if self._on_wait is not None:
            self._on_wait(reason)

    def _shares(self) -> Iterator[StreamBatch]:
        done = False
        assert self._member is not None
        while True:
            what, told = self._member.next(done, self._timeout, self._waits)
            if what == "waiting":
                raise self._gave_up(told)
            if what == "finished":
                self._ending = told
                return
            share = json.loads(told)
            cursor = share["cursor"]
            batch = self._batch(json.dumps(cursor), cursor["step"], share["rank"], share["ranks"])
            self._state = batch.state
            yield batch
            done = True

    def commit(self, state: Optional[Dict[str, int]] = None) -> None:
        """Says that everything up to a place is in a checkpoint and will not be repeated; the last batch if none is
        given. In streams that free samples these may then be freed."""
        at = state or self._state
        if at is not None:
            self._run.commit(at["pass"], at["step"])

    def close(self) -> None:
        """Says that the run needs no more samples."""
        if self._member is not None:
            self._member.leave()
            self._run.abandon()
        else:
            self._run.close()

    def __enter__(self) -> "StreamReader":
        return self

    def __exit__(self, kind: Optional[type], *_error: object) -> None:
        if kind is None:
            self.close()
        else:
            self._run.abandon()
