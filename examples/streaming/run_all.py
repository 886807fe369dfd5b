"""Everything in one command: a store, two simulations, and a trainer that follows them.

    python run_all.py               the trainer is one process
    python run_all.py --local 4     the trainer has four replicas
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PHALANX = [sys.executable, "-m", "phalanx"]


def main() -> int:
    parser = argparse.ArgumentParser(description="Train from simulations that are running.")
    parser.add_argument("--local", help="nodes of the trainer; without it, it is one process")
    parser.add_argument("--pause", default="0.1", help="seconds that an upload takes to compute")
    parser.add_argument("--run-dir", default="runs/heat", help="where the run is recorded")
    args = parser.parse_args()
    simulate = [sys.executable, str(HERE / "simulate.py")]
    valid = pathlib.Path("valid.npz").absolute()
    subprocess.run([*simulate, "--write", str(valid)], check=True)
    store = subprocess.Popen(
        [*PHALANX, "store", "serve", "--bind", "127.0.0.1:0", "--output", "quiet"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert store.stdout is not None
        environment = {**os.environ, "PHALANX_STORE": store.stdout.readline().strip()}
        names = ("sim-1", "sim-2")
        simulations = [
            subprocess.Popen([*simulate, name, "--pause", args.pause], env=environment) for name in names
        ]
        local = ["--local", args.local] if args.local else []
        train = [*PHALANX, "train", str(HERE / "run.toml"), "--run-dir", args.run_dir, *local]
        train += ["--set", f"data.valid.file={valid}"]
        trained = subprocess.run(train, env=environment)
        ended = [simulation.wait() for simulation in simulations]
        return trained.returncode or max(ended)
    finally:
        store.terminate()
        store.wait()


if __name__ == "__main__":
    sys.exit(main())
