"""All-reduces and training steps of two ranks, against torch.distributed with Gloo, interleaved.

    python python/bench/allreduce.py [--rounds 20] [--batch 16] [--skip-training]

Every round measures both, one after the other, in the same processes. The last line is JSON.
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
from typing import Any, Callable

RANKS = 2
SIZES = {"4 KiB": 1 << 12, "256 KiB": 1 << 18, "4 MiB": 1 << 22, "64 MiB": 1 << 26}


def start(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        command = [sys.executable, "-m", "phalanx", "launch", "-n", str(RANKS), "--no-prefix", "--"]
        command += [sys.executable, __file__, "--meet", f"{folder}/gloo", "--rounds", str(arguments.rounds)]
        command += ["--batch", str(arguments.batch)]
        command += ["--skip-training"] if arguments.skip_training else []
        return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode


def interleaved(rounds: int, repeat: int, ways: dict[str, Callable[[], Any]], barrier: Callable[[], Any]) -> dict[str, float]:
    """The median time of each way, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, act in ways.items():
            barrier()
            began = time.perf_counter()
            for _ in range(repeat):
                act()
            if number > 0:
                times[name].append((time.perf_counter() - began) / repeat)
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


def rank(arguments: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    import phalanx.torch as hvd

    # Before either library starts threads: each rank has one core.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ["PHALANX_LOCAL_RANK"]) % len(cores)]})
    torch.set_num_threads(1)
    hvd.init()
    dist.init_process_group("gloo", init_method=f"file://{arguments.meet}", rank=hvd.rank(), world_size=hvd.size())
    told: dict[str, Any] = {"ranks": hvd.size()}

    def say(what: str, times: dict[str, float]) -> None:
        told[what] = {name: value * 1e3 for name, value in times.items()}
        if hvd.rank() == 0:
            ours, theirs = times["phalanx"], times["gloo"]
            print(f"{what:>16}: {ours * 1e3:9.3f} ms, Gloo {theirs * 1e3:9.3f} ms: {theirs / ours:.2f} times as fast")

    for what, size in SIZES.items():
        tensor = torch.zeros(size // 4)
        ways = {
            "phalanx": lambda: hvd.allreduce_(tensor, name=what, op=hvd.Sum),
            "gloo": lambda: dist.all_reduce(tensor),
        }
        say(what, interleaved(arguments.rounds, max(1, min(50, (1 << 24) // size)), ways, hvd.barrier))

    if not arguments.skip_training:
        images, labels = torch.randn(arguments.batch, 3, 32, 32), torch.randint(0, 10, (arguments.batch,))

        def step(net: Any, optimizer: Any) -> Callable[[], None]:
            def act() -> None:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(images), labels).backward()
                optimizer.step()

            return act

        torch.manual_seed(0)
        ours, theirs = resnet18(), resnet18()
        optimizer = torch.optim.SGD(ours.parameters(), lr=1e-3, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(optimizer, ours.named_parameters())
        wrapped = torch.nn.parallel.DistributedDataParallel(theirs)
        ways = {
            "phalanx": step(ours, optimizer),
            "gloo": step(wrapped, torch.optim.SGD(theirs.parameters(), lr=1e-3, momentum=0.9)),
        }
        say("ResNet-18 step", interleaved(max(5, arguments.rounds // 2), 1, ways, hvd.barrier))
    hvd.barrier()
    dist.destroy_process_group()
    if hvd.rank() == 0:
        print(json.dumps(told))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="images of each rank in a training step")
    parser.add_argument("--skip-training", action="store_true")
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.meet is None:
        return start(arguments)
    rank(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
