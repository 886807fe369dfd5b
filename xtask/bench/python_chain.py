"""A chain of calls over an array of 256 MB on one host, with Phalanx or with Ray: `python_chain.py phalanx|ray [COUNT]`.

A function makes the array; each of ten calls takes the result of the one before. All are submitted before the end is
waited for, and only a number comes to the caller. Memory is what all processes have together (PSS) while all references
are there, beyond what they had before.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any, Callable

import numpy as np

WORKERS = 2
COUNT = 32_000_000
LINKS = 10
ROUNDS = 5


def make(count: int) -> Any:
    return np.ones(count)


def same(x: Any) -> Any:
    return x


def add_one(x: Any) -> Any:
    return x + 1


def first(x: Any) -> float:
    return float(x[0])


def memory() -> int:
    """Bytes of this process and all that it started, shared pages counted once."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    parents[int(name)] = int(stat.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours and pid not in ours}:
        ours |= more
    total = 0
    for pid in ours:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as rollup:
                total += next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) * 1024
        except OSError:
            pass
    return total


Submit = Callable[..., Any]
Get = Callable[[Any], Any]


def chain(submit: Submit, get: Get, link: Callable[[Any], Any], count: int) -> tuple[float, int]:
    """Seconds of ten links, and bytes while all of them are there."""
    links = [submit(make, count)]
    get(submit(first, links[0]))
    started = time.perf_counter()
    for _ in range(LINKS):
        links.append(submit(link, links[-1]))
    value = get(submit(first, links[-1]))
    took = time.perf_counter() - started
    assert value == (1.0 if link is same else 1.0 + LINKS), value
    return took, memory()


def measure(submit: Submit, get: Get, count: int) -> dict[str, float]:
    array = count * 8
    get(submit(first, submit(make, 1_000)))
    before = memory()
    _, size = chain(submit, get, same, count)
    same_all = [chain(submit, get, same, count) for _ in range(ROUNDS)]
    told: dict[str, float] = {
        "same_ms": statistics.median(took for took, _ in same_all) * 1e3,
        "same_arrays": (size - before) / array,
    }

    # Each link dropped as soon as the next one is submitted: what is freed makes room.
    def adding() -> float:
        link = submit(make, count)
        get(submit(first, link))
        started = time.perf_counter()
        for _ in range(LINKS):
            link = submit(add_one, link)
        assert get(submit(first, link)) == 1.0 + LINKS
        return time.perf_counter() - started

    adding()
    told["add_one_ms"] = statistics.median(adding() for _ in range(ROUNDS)) * 1e3
    return told


def phalanx(count: int) -> dict[str, float]:
    from phalanx.jobs import Executor

    with Executor(local=WORKERS) as pool:
        return measure(pool.submit, lambda call: call.result(), count)


def ray(count: int) -> dict[str, float]:
    import ray

    # Room for all arrays, so that none is written to disk.
    room = max(16 * count * 8, 128 << 20)
    ray.init(
        num_cpus=WORKERS,
        object_store_memory=room,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )
    remote = {function: ray.remote(function) for function in (make, same, add_one, first)}
    try:
        return measure(lambda function, *args: remote[function].remote(*args), ray.get, count)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    size = int(sys.argv[2]) if len(sys.argv) > 2 else COUNT
    print(json.dumps({"phalanx": phalanx, "ray": ray}[sys.argv[1]](size)))
