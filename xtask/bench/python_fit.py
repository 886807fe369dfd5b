"""One model trained by `phalanx.fit`, by a plain loop of torch, or by `phalanx train`, in memory of this process.

    python xtask/bench/python_fit.py phalanx|torch|command digits|cifar [--cifar FILE]

All sides see the same samples, batches of the same size, the same optimizer and both cores. Prints one line of JSON:
the seconds of a pass, over the whole call. That of `phalanx.fit` has the export of the module and the return of its
weights in it, that of the command the start of the program, reading the data and writing the run.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any, Tuple

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "reference"))

LEARNING_RATE = 1e-3
# Passes, samples of a batch, the loss.
CASES = {"digits": (40, 64, "mse"), "cifar": (2, 128, "cross_entropy")}
ZOO = {"digits": "digits-cnn", "cifar": "cifar-cnn"}
IMAGES = 6_400


def samples(case: str, cifar: str | None) -> Tuple[Any, Any]:
    """Images and labels."""
    if case == "digits":
        with np.load(ROOT / "examples" / "digits" / "digits.npz") as digits:
            return digits["x_train"], digits["y_train"]
    if cifar is None:
        rng = np.random.default_rng(0)
        return rng.random((IMAGES, 3, 32, 32), dtype="float32"), rng.integers(0, 10, IMAGES)
    from safetensors.numpy import load_file

    found = load_file(cifar)
    x, y = found["x_train"][:IMAGES], found["y_train"][:IMAGES]
    return x.astype("float32") / 255, y.astype("int64")


def module(case: str) -> Any:
    import torch
    import zoo

    torch.manual_seed(1)
    return zoo.ZOO[ZOO[case]][0]()


def fit(case: str, x: Any, y: Any) -> float:
    import phalanx

    epochs, batch, loss = CASES[case]
    net = module(case)
    # What is done once in a process is not of a pass: the first import of the exporter, say.
    phalanx.fit(module(case), train=(x[: 2 * batch], y[: 2 * batch]), loss=loss, batch=batch, epochs=1, progress=False)
    began = time.perf_counter()
    phalanx.fit(net, train=(x, y), loss=loss, lr=LEARNING_RATE, batch=batch, epochs=epochs, progress=False)
    return time.perf_counter() - began


def loop(case: str, x: Any, y: Any) -> float:
    import torch
    import zoo

    epochs, batch, _ = CASES[case]
    net, loss_of = module(case).train(), zoo.ZOO[ZOO[case]][1]
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    inputs, targets = torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(np.ascontiguousarray(y))

    def passes(inputs: Any, targets: Any, count: int) -> None:
        for _ in range(count):
            order = torch.randperm(len(inputs))
            for begin in range(0, len(order), batch):
                chosen = order[begin : begin + batch]
                optimizer.zero_grad(set_to_none=True)
                loss_of(net(inputs[chosen]), targets[chosen]).backward()
                optimizer.step()

    passes(inputs[: 2 * batch], targets[: 2 * batch], 1)
    began = time.perf_counter()
    passes(inputs, targets, epochs)
    return time.perf_counter() - began


def command(case: str, x: Any, y: Any) -> float:
    epochs, batch, loss = CASES[case]
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        place = pathlib.Path(folder)
        np.savez(place / "data.npz", x=x, y=y)
        (place / "run.toml").write_text(
            f'[model]\nzoo = "{ZOO[case]}"\n[data]\ntrain = {{ file = "data.npz", x = "x", y = "y" }}\nshuffle = true\n'
            f'[train]\nloss = "{loss}"\noptimizer = {{ name = "adam", lr = {LEARNING_RATE} }}\nepochs = {epochs}\n'
            f'batch = {batch}\nseed = 1\nvalidate_every = "never"\n'
        )
        words = [sys.executable, "-m", "phalanx", "train", "run.toml", "--run-dir", "run", "--output", "json"]
        began = time.perf_counter()
        subprocess.run(words, cwd=place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("side", choices=["phalanx", "torch", "command"])
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--cifar", help="the file of CIFAR-10; random images if not given")
    arguments = parser.parse_args()
    if arguments.side == "torch":
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
    x, y = samples(arguments.case, arguments.cifar)
    seconds = {"phalanx": fit, "torch": loop, "command": command}[arguments.side](arguments.case, x, y)
    print(json.dumps({"pass_ms": seconds / CASES[arguments.case][0] * 1e3}))


if __name__ == "__main__":
    main()
