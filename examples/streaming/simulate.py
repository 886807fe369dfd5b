"""A simple simulation: heat spreads along a rod. Every run of it is a sample: how it began, how it ended.

    python simulate.py sim-1                  uploads samples to the stream "heat" of the store
    python simulate.py --write valid.npz      writes samples to a file, to validate with
"""

from __future__ import annotations

import argparse
import os
import time
import zlib
from typing import Tuple

import numpy as np

POINTS = 32
STREAM = "heat"


def spread(rods: np.ndarray, steps: int = 40) -> np.ndarray:
    """Heat after some steps of explicit diffusion with insulated ends."""
    for _ in range(steps):
        padded = np.pad(rods, ((0, 0), (1, 1)), mode="edge")
        rods = rods + 0.25 * (padded[:, 2:] - 2 * rods + padded[:, :-2])
    return rods


def simulate(name: str, number: int, samples: int) -> Tuple[np.ndarray, np.ndarray]:
    """The samples of one upload: the same whenever it is made again."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), number])
    begins = rng.uniform(-1, 1, size=(samples, POINTS)).astype("float32")
    return begins, spread(begins).astype("float32")


def produce(args: argparse.Namespace) -> None:
    from phalanx.store import Store

    store = Store(os.environ.get("PHALANX_STORE", "127.0.0.1:6780"))
    with store.producer(STREAM, args.name, expected_producers=args.producers) as producer:
        # A simulation that was restarted goes on after its last upload.
        for number in range(producer.next, args.uploads):
            begins, ends = simulate(args.name, number, args.samples)
            producer.put({"begins": begins, "ends": ends})
            time.sleep(args.pause)
    print(f"{args.name} is done: {args.uploads} uploads", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Spread heat along rods.")
    parser.add_argument("name", nargs="?", default="sim-1", help="the name of this producer, the same after a restart")
    parser.add_argument("--uploads", type=int, default=40, help="how many uploads it makes")
    parser.add_argument("--samples", type=int, default=32, help="samples of an upload")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds that an upload takes to compute")
    parser.add_argument("--producers", type=int, default=2, help="the stream ends when this many have closed")
    parser.add_argument("--write", help="write samples to this file instead")
    args = parser.parse_args()
    if args.write:
        begins, ends = simulate("validation", 0, 256)
        np.savez(args.write, begins=begins, ends=ends)
    else:
        produce(args)


if __name__ == "__main__":
    main()
