"""All-reduces and training steps of two ranks, against torch.distributed with Gloo, interleaved.

    python xtask/bench/python_ranks.py collectives [--rounds 12]
    python xtask/bench/python_ranks.py step [--rounds 8] [--batches 4,8,16] [--side both|phalanx|peer]

Every round measures both sides, one after the other, in the same processes; of steps also what computing takes without
any exchange. With `--side` one of them has the processes for itself, as its users start them: by `phalanx launch` or by
torchrun. Rank 0 prints one line of JSON: the milliseconds of each side and those of its processor, which other work on
the machine disturbs less; medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Tuple

RANKS = 2
SIZES = {"4 KiB": 1 << 12, "256 KiB": 1 << 18, "4 MiB": 1 << 22, "64 MiB": 1 << 26}
Milliseconds = dict[str, dict[str, float]]


def start(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        if arguments.side == "peer":
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
        else:
            command = [sys.executable, "-m", "phalanx", "launch", "-n", str(RANKS), "--no-prefix", "--", sys.executable]
        command += [__file__, *sys.argv[1:], "--meet", f"{folder}/gloo"]
        return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode


def interleaved(
    rounds: int, repeat: int, ways: dict[str, Callable[[], Any]], barrier: Callable[[], Any]
) -> dict[str, float]:
    """The median time of each way in milliseconds, and that of the processor (`…_cpu`). The first round does not count."""
    times: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for name, act in ways.items():
            barrier()
            began, cpu_began = time.perf_counter(), time.process_time()
            for _ in range(repeat):
                act()
            took, cpu = time.perf_counter() - began, time.process_time() - cpu_began
            if number > 0:
                times.setdefault(name, []).append(took / repeat * 1e3)
                times.setdefault(f"{name}_cpu", []).append(cpu / repeat * 1e3)
    return {name: statistics.median(all_times) for name, all_times in times.items()}


def resnet18(classes: int = 10) -> Any:
    """ResNet-18 for images of 32 by 32."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(inplace=True),
                nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )
            self.skip = nn.Sequential()
            if stride != 1 or inputs != outputs:
                self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.body(x) + self.skip(x))

    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    before = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, channels, stride), Block(channels, channels, 1)]
        before = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def collectives(rounds: int) -> Milliseconds:
    import torch
    import torch.distributed as dist

    import phalanx.torch as hvd

    told = {}
    for what, size in SIZES.items():
        tensor = torch.zeros(size // 4)
        ways = {
            "phalanx": lambda: hvd.allreduce_(tensor, name=what, op=hvd.Sum),
            "peer": lambda: dist.all_reduce(tensor),
        }
        told[what] = interleaved(rounds, max(1, min(50, (1 << 24) // size)), ways, hvd.barrier)
    return told


def training_step(net: Any, optimizer: Any, images: Any, labels: Any) -> Callable[[], None]:
    import torch

    def act() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()

    return act


def sgd(net: Any) -> Any:
    import torch

    return torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)


def trainers(side: str) -> dict[str, Tuple[Any, Any]]:
    """A model and its optimizer for each side."""
    import torch

    made = {}
    if side != "peer":
        import phalanx.torch as hvd

        net = resnet18()
        made["phalanx"] = (net, hvd.DistributedOptimizer(sgd(net), net.named_parameters()))
    if side != "phalanx":
        net = resnet18()
        made["peer"] = (torch.nn.parallel.DistributedDataParallel(net), sgd(net))
    if side == "both":
        net = resnet18()
        made["alone"] = (net, sgd(net))
    return made


def steps(rounds: int, batches: list[int], side: str, barrier: Callable[[], Any]) -> Milliseconds:
    import torch

    told = {}
    for batch in batches:
        images, labels = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
        torch.manual_seed(0)
        ways = {
            name: training_step(net, optimizer, images, labels) for name, (net, optimizer) in trainers(side).items()
        }
        told[f"batch {batch}"] = interleaved(rounds, 1, ways, barrier)
    return told


def rank(arguments: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    # Before either library starts threads: each rank has one core.
    cores = sorted(os.sched_getaffinity(0))
    number = int(os.environ["LOCAL_RANK" if arguments.side == "peer" else "PHALANX_LOCAL_RANK"])
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    torch.set_num_threads(1)
    barrier = dist.barrier
    if arguments.side != "peer":
        import phalanx.torch as hvd

        hvd.init()
        barrier = hvd.barrier
    if arguments.side != "phalanx":
        dist.init_process_group("gloo", init_method=f"file://{arguments.meet}", rank=number, world_size=RANKS)
    if arguments.part == "collectives":
        told = collectives(arguments.rounds or 12)
    else:
        batches = [int(batch) for batch in arguments.batches.split(",")]
        told = steps(arguments.rounds or 8, batches, arguments.side, barrier)
    barrier()
    if arguments.side != "phalanx":
        dist.destroy_process_group()
    if number == 0:
        print(json.dumps({"rows": [{"what": what, **times} for what, times in told.items()]}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=["collectives", "step"])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--batches", default="4,8,16", help="images of each rank in a training step")
    parser.add_argument("--side", choices=["both", "phalanx", "peer"], default="both", help="of training steps")
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.meet is None:
        return start(arguments)
    rank(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
