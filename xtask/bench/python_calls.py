"""Calls of Python functions on two workers of this machine, with Phalanx or with Ray: `python_calls.py phalanx|ray`.

Both sides do the same: no-op calls of which all are submitted before the first result is waited for, no-op calls one
after the other, and an array of 16 MB that a function gives back with one added.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any, Callable

import numpy as np

WORKERS = 2
CALLS = {"phalanx": 40_000, "ray": 4_000}
THROUGHPUTS = 3
ROUND_TRIPS = 1_000
ARRAYS = 60
WARM_UP = 50


def noop() -> None:
    return None


def add_one(x: Any) -> Any:
    return x + 1


def same(x: Any) -> Any:
    return x


Submit = Callable[..., Any]
Get = Callable[[Any], Any]


def throughput(calls: int, submit: Submit, gather: Get) -> float:
    started = time.perf_counter()
    gather([submit(noop) for _ in range(calls)])
    return calls / (time.perf_counter() - started)


def round_trips(count: int, submit: Submit, get: Get, *args: Any) -> list[float]:
    times = []
    for i in range(count + WARM_UP):
        started = time.perf_counter()
        result = get(submit(*args))
        took = time.perf_counter() - started
        if i >= WARM_UP:
            times.append(took * 1e6)
        del result
    return sorted(times)


def measure(side: str, submit: Submit, get: Get, gather: Get) -> dict[str, float]:
    throughput(1_000, submit, gather)
    rates = [throughput(CALLS[side], submit, gather) for _ in range(THROUGHPUTS)]
    trips = round_trips(ROUND_TRIPS, submit, get, noop)
    x = np.arange(2_000_000, dtype="float64")
    assert get(submit(add_one, x))[-1] == x[-1] + 1
    there_and_back = round_trips(ARRAYS, submit, get, same, x)
    plus_one = round_trips(ARRAYS, submit, get, add_one, x)
    return {
        "calls_per_s": statistics.median(rates),
        "rtt_p50_us": statistics.median(trips),
        "rtt_p99_us": trips[round((len(trips) - 1) * 0.99)],
        "array_16mb_p50_us": statistics.median(there_and_back),
        "array_16mb_plus_one_p50_us": statistics.median(plus_one),
    }


def phalanx() -> dict[str, float]:
    from phalanx.jobs import Executor

    with Executor(local=WORKERS) as pool:
        return measure("phalanx", pool.submit, lambda call: call.result(), lambda calls: [c.result() for c in calls])


def ray() -> dict[str, float]:
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, configure_logging=False)
    remote = {function: ray.remote(function) for function in (noop, add_one, same)}
    try:
        return measure("ray", lambda function, *args: remote[function].remote(*args), ray.get, ray.get)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    print(json.dumps({"phalanx": phalanx, "ray": ray}[sys.argv[1]]()))
