"""The peer of the all-reduce benchmark: sums of f32 tensors by Gloo, through torch.distributed.

    python xtask/bench/allreduce.py --ranks 2 --time 500 BYTES...

Prints one JSON list. As `phalanx bench allreduce` does: one process for each rank, tensors are filled again before
every call, a barrier before every call, the time of a call is that of the slowest rank, the median over calls counts.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist

WARM_UP, LEAST_CALLS, MOST_CALLS = 3, 5, 20_000


def call(values, rank):
    """Fills, waits for the others, sums: how long that took, on the clock and of the CPU, in nanoseconds."""
    values.fill_(rank + 1)
    dist.barrier()
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    dist.all_reduce(values)
    wall = time.perf_counter_ns() - wall
    return wall, time.process_time_ns() - cpu


def measure(size, seconds, rank, ranks):
    values = torch.empty(size // 4, dtype=torch.float32)
    call(values, rank)
    assert bool((values == ranks * (ranks + 1) / 2).all()), "the sum is wrong"
    before = time.perf_counter()
    for _ in range(WARM_UP):
        call(values, rank)
    wanted = seconds / ((time.perf_counter() - before) / WARM_UP)
    calls = torch.tensor([min(max(int(wanted), LEAST_CALLS), MOST_CALLS)])
    dist.broadcast(calls, 0)
    both = [call(values, rank) for _ in range(int(calls))]
    walls = torch.tensor([wall for wall, _ in both])
    cpu = torch.tensor([sum(cpu for _, cpu in both)])
    dist.all_reduce(walls, op=dist.ReduceOp.MAX)
    dist.all_reduce(cpu)
    middle = statistics.median_high(walls.tolist())
    return {
        "ranks": ranks,
        "bytes": size,
        "algbw_gb_s": size / middle,
        "latency_us": middle / 1e3,
        "cpu_us": int(cpu) / len(both) / 1e3,
        "torch": torch.__version__,
    }


def be(rank, options, meeting):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=options.ranks,
        timeout=datetime.timedelta(minutes=5),
    )
    measured = [measure(size, options.time / 1e3, rank, options.ranks) for size in options.sizes]
    if rank == 0:
        print(json.dumps(measured), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--time", type=float, default=500, help="milliseconds for each size")
    parser.add_argument("sizes", type=int, nargs="+")
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as place:
        # Nothing has been computed yet, so there are no threads that a fork would lose.
        children = []
        for rank in range(options.ranks):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    be(rank, options, os.path.join(place, "meeting"))
                    code = 0
                except Exception as error:
                    print(f"rank {rank}: {error}", file=sys.stderr, flush=True)
                os._exit(code)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(map(abs, codes)))


if __name__ == "__main__":
    main()
