"""What `phalanx bench jobs` measures, done with Ray: no-op tasks on two workers, round trips."""

import json
import statistics
import time

import numpy
import ray

WORKERS = 2
TASKS = 4_000
ROUND_TRIPS = 400
LARGE_ROUND_TRIPS = 100
WARM_UP = 50


@ray.remote
def echo(value):
    return value


def throughput():
    started = time.perf_counter()
    ray.get([echo.remote(None) for _ in range(TASKS)])
    return TASKS / (time.perf_counter() - started)


def round_trips(count, value):
    times = []
    for i in range(count + WARM_UP):
        started = time.perf_counter()
        ray.get(echo.remote(value))
        if i >= WARM_UP:
            times.append((time.perf_counter() - started) * 1e6)
    return sorted(times)


def main():
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, configure_logging=False)
    ray.get([echo.remote(None) for _ in range(1_000)])
    rate = statistics.median(throughput() for _ in range(3))
    small = round_trips(ROUND_TRIPS, None)
    large = round_trips(LARGE_ROUND_TRIPS, numpy.full(1 << 20, 7, dtype=numpy.uint8))
    ray.shutdown()
    print(
        json.dumps(
            {
                "jobs_per_s": rate,
                "rtt_p50_us": statistics.median(small),
                "rtt_p99_us": small[round((len(small) - 1) * 0.99)],
                "rtt_1mib_p50_us": statistics.median(large),
            }
        )
    )


if __name__ == "__main__":
    main()
