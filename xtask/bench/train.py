"""The peer of the training benchmark: the same models trained eagerly by PyTorch on the CPU.

    python xtask/bench/train.py --model cifar-cnn --threads 2 --batch 128 --steps 20 --warmup 5

Prints one JSON object. With --serve it warms up once, then waits for lines `run` on standard input, takes --steps steps
for each and answers with one line of JSON, so that two engines can take turns without paying for imports.
`gemm` multiplies two f32 matrices of 1024 x 1024 instead of training.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "reference"))
import zoo  # noqa: E402

BATCHES = {"digits-cnn": 64, "cifar-cnn": 128, "mobilenet-v2": 16, "gpt-small": 8, "resnet-18": 16, "mlp": 128, "gemm": 1}
SHAPES = {"mobilenet-v2": (3, 112, 112), "resnet-18": (3, 112, 112)}
GEMM = 1024


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, choices=list(BATCHES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    options.batch = options.batch or BATCHES[options.model]
    return options


def trainer(name, batch):
    """A function that takes one step."""
    make, loss_of, shape, classes = zoo.ZOO[name]
    module = make().train()
    shape = SHAPES.get(name, shape)
    if name == "gpt-small":
        x = torch.randint(0, classes, (batch, *shape))
        target = torch.randint(0, classes, (batch, *shape))
    else:
        x = torch.rand(batch, *shape)
        target = torch.randint(0, classes, (batch,))
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(module(x), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def multiplier():
    a, b, c = torch.rand(GEMM, GEMM), torch.rand(GEMM, GEMM), torch.empty(GEMM, GEMM)
    return lambda: torch.mm(a, b, out=c)


def measure(step, steps):
    """Milliseconds of each step."""
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1000)
    return times


def report(options, times):
    median = statistics.median(times)
    row = {
        "model": options.model,
        "threads": options.threads,
        "batch": options.batch,
        "step_ms": median,
        "p95_ms": sorted(times)[min(len(times) - 1, int(0.95 * len(times)))],
        "samples_per_s": options.batch * 1000 / median,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "torch": torch.__version__,
    }
    if options.model == "gemm":
        row["gflops"] = 2 * GEMM**3 / median / 1e6
    print(json.dumps(row), flush=True)


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    step = multiplier() if options.model == "gemm" else trainer(options.model, options.batch)
    measure(step, options.warmup)
    if not options.serve:
        report(options, measure(step, options.steps))
        return
    for line in sys.stdin:
        if line.strip() == "run":
            report(options, measure(step, options.steps))
        elif line.strip():
            sys.exit(f"train.py: expected `run`, not {line.strip()!r}")


if __name__ == "__main__":
    main()
