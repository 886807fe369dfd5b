"""Futures as arguments of other calls: results go from node to node, are freed, and are computed again."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Callable, Iterator

import numpy as np
import pytest

from phalanx.jobs import Executor

TIMEOUT = 60.0
# Scaled up by hand for measurements: 32 million numbers are 256 MB.
NUMBERS = int(os.environ.get("PHALANX_CHAIN_NUMBERS", "1000000"))


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(local=2) as executor:
        yield executor


def make(count: int) -> Any:
    return np.arange(count, dtype="float64")


def same(x: Any) -> Any:
    return x


def plus_one(x: Any) -> Any:
    return x + 1


def total(x: Any) -> float:
    return float(x.sum())


def place(x: Any) -> int:
    """The inode of the shared memory in which an array lies."""
    address = x.__array_interface__["data"][0]
    with open("/proc/self/maps") as maps:
        for line in maps:
            words = line.split()
            low, high = (int(part, 16) for part in words[0].split("-"))
            if low <= address < high:
                return int(words[4])
    return 0


def parent(_x: Any) -> int:
    return os.getppid()


def until(is_so: "Callable[[], bool]") -> None:
    """Waits for something that no event tells of, under a deadline."""
    end = time.monotonic() + TIMEOUT
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_chain_of_calls_never_copies_what_it_passes_on(executor: Executor) -> None:
    first = executor.submit(make, NUMBERS)
    places = [executor.submit(place, first)]
    last = first
    for _ in range(10):
        last = executor.submit(same, last)
        places.append(executor.submit(place, last))
    assert len({place.result(timeout=TIMEOUT) for place in places} - {0}) == 1
    assert executor.submit(total, last).result(timeout=TIMEOUT) == NUMBERS * (NUMBERS - 1) / 2
    assert first._is_away, "the result did not come here"
    assert last.result(timeout=TIMEOUT)[-1] == NUMBERS - 1
    assert place(last.result()) == places[0].result(), "the caller maps it, too"


def test_results_are_taken_from_anywhere_in_the_arguments(executor: Executor) -> None:
    large, small = executor.submit(make, 5_000), executor.submit(pow, 2, 5)

    def add(pair: Any, *, more: Any) -> Any:
        assert pair[0] is more["again"], "one result is one object"
        return float(pair[0].sum()) + pair[1]

    whole = 5_000 * 4_999 / 2 + 32
    assert executor.submit(add, [large, small], more={"again": large}).result(timeout=TIMEOUT) == whole
    large.result(timeout=TIMEOUT), small.result(timeout=TIMEOUT)
    assert executor.submit(add, [large, small], more={"again": large}).result(timeout=TIMEOUT) == whole


def test_calls_take_results_that_are_being_settled(executor: Executor) -> None:
    # Small results reach their futures while calls that take them are submitted.
    sums = []
    for number in range(300):
        part = executor.submit(pow, number, 1)
        sums.append(executor.submit(pow, part, 2))
    assert [each.result(timeout=TIMEOUT) for each in sums] == [number**2 for number in range(300)]


def test_a_call_fails_as_the_one_whose_result_it_takes(executor: Executor) -> None:
    def fail() -> None:
        raise ValueError("broken")

    failed = executor.submit(fail)
    with pytest.raises(ValueError, match="broken"):
        executor.submit(plus_one, failed).result(timeout=TIMEOUT)
    # Known to have failed when the next one is submitted.
    with pytest.raises(ValueError, match="broken"):
        executor.submit(plus_one, failed).result(timeout=TIMEOUT)


def test_futures_are_arguments_of_their_own_executor_only(executor: Executor) -> None:
    import pickle

    future = executor.submit(make, 10)
    with pytest.raises(TypeError, match="of its executor"):
        pickle.dumps(future)
    with Executor(local=1) as other:
        with pytest.raises(TypeError, match="of its executor"):
            other.submit(plus_one, future)


def test_a_late_result_is_a_timeout_and_can_be_asked_for_again(executor: Executor) -> None:
    def slow(x: Any) -> Any:
        time.sleep(0.3)
        return x

    future = executor.submit(slow, executor.submit(make, 5_000))
    with pytest.raises((TimeoutError, FutureTimeout)):
        future.result(timeout=0.01)
    assert future.result(timeout=TIMEOUT)[7] == 7


def segments(process: str) -> "dict[str, int]":
    """The shared memory that a process has mapped: how many bytes, by the name of the segment."""
    mapped: "dict[str, int]" = {}
    with open(f"/proc/{process}/maps") as maps:
        for line in maps:
            words = line.split()
            if len(words) > 5 and words[5].startswith("/memfd:phalanx-"):
                low, high = (int(part, 16) for part in words[0].split("-"))
                mapped[words[5]] = mapped.get(words[5], 0) + high - low
    return mapped


def segments_of_worker(*_after: Any) -> int:
    return len(segments("self"))


def test_a_result_is_freed_with_its_future() -> None:
    with Executor(local=1) as executor:
        node = executor.submit(parent, 0).result(timeout=TIMEOUT)
        mapped = lambda: sum(segments(str(node)).values())
        before = mapped()
        length = 96 << 20
        kept = executor.submit(bytes_of, length)
        after = executor.submit(len, kept)
        assert after.result(timeout=TIMEOUT) == length
        assert mapped() - before >= length
        del kept
        gc.collect()
        until(lambda: mapped() - before < length // 4)


# Nodes keep segments of up to 64 MiB mapped, and no larger ones.
@pytest.mark.parametrize("numbers", [1_000_000, 9_000_000])
def test_a_chain_uses_the_memory_of_results_again(numbers: int) -> None:
    with Executor(local=1) as executor:
        link = executor.submit(make, numbers)
        for _ in range(12):
            link = executor.submit(plus_one, link)
        assert executor.submit(total, link).result(timeout=TIMEOUT) == numbers * (numbers - 1) / 2 + 12 * numbers
        # One that is read, one that is written, and one of which the worker has not yet heard that it is free.
        assert executor.submit(segments_of_worker, link).result(timeout=TIMEOUT) <= 4


def own_process(_x: Any) -> int:
    return os.getpid()


def own_memory(process: int) -> int:
    """Bytes of memory that a process shares with no other."""
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) * 1024


def test_a_worker_without_work_gives_memory_of_arrays_back() -> None:
    with Executor(local=1) as executor:
        worker = executor.submit(own_process, executor.submit(make, 1_000)).result(timeout=TIMEOUT)
        before = own_memory(worker)
        link = executor.submit(make, 9_000_000)
        for _ in range(4):
            link = executor.submit(plus_one, link)
        assert executor.submit(total, link).result(timeout=TIMEOUT) == 9_000_000 * 8_999_999 / 2 + 4 * 9_000_000
        until(lambda: own_memory(worker) < before + (16 << 20))
        # Also while it has small calls only.
        assert executor.submit(total, executor.submit(plus_one, link)).result(timeout=TIMEOUT) > 0
        for _ in range(80):
            executor.submit(own_process, 0).result(timeout=TIMEOUT)
        assert own_memory(worker) < before + (16 << 20)


def keep(x: Any) -> bool:
    """Keeps all that it was given; says whether all of it is as it was, and cannot be written."""
    kept = sys.__dict__.setdefault("_kept_results", [])
    kept.append((float(x[0]), x))
    return all((x == first).all() and not x.flags.writeable for first, x in kept)


def test_a_result_that_a_function_keeps_is_not_overwritten() -> None:
    with Executor(local=1) as executor:
        for number in range(12):
            made = executor.submit(np.full, 300_000, float(number))
            assert executor.submit(keep, made).result(timeout=TIMEOUT)
            del made


def bytes_of(count: int) -> Any:
    return np.ones(count, dtype="uint8")


def test_a_result_whose_node_is_killed_is_computed_again() -> None:
    with Executor(local=2) as executor:
        first = executor.submit(make, NUMBERS)
        second = executor.submit(plus_one, first)
        holder = executor.submit(parent, second).result(timeout=TIMEOUT)
        for future in (first, second):
            until(future.done)
        os.kill(holder, signal.SIGKILL)
        third = executor.submit(plus_one, second)
        assert executor.submit(total, third).result(timeout=TIMEOUT) == NUMBERS * (NUMBERS - 1) / 2 + 2 * NUMBERS
        assert second.result(timeout=TIMEOUT)[0] == 1
