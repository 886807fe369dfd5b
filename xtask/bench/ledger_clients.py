"""Recording metrics with the clients of others: for each line `run` on standard input one line of JSON with points per second.

    python xtask/bench/ledger_clients.py SECONDS

MLflow's own client without a server between, over its file store and over its SQLite store: a metric a call
(`log_metric`), the four metrics of a step a call (`log_batch`, as `mlflow.log_metrics` does it), and a thousand a call,
the most that it takes. TensorBoard's own writer: until everything is in its file. Each is measured for about SECONDS.
"""

import json
import os
import shutil
import sys
import tempfile
import time

# MLflow asks for this since its file store is not developed any more.
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import Metric  # noqa: E402
from tensorboard.summary import Writer  # noqa: E402

NAMES = ("loss", "lr", "grad_norm", "samples_per_s")
MOST = 1000


def values(step):
    return (1.0 / step, 0.001, 1.5, 1234.5)


def rate(seconds, act):
    """Points per second of `act(step)`, which records some and says how many."""
    points, step, began = 0, 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        step += 1
        points += act(step)
    return points / (time.perf_counter() - began)


def mlflow(client, prefix, seconds):
    experiment = client.create_experiment(f"bench-{time.time_ns()}")

    def run():
        return client.create_run(experiment).info.run_id

    def metrics(step):
        now = time.time_ns() // 1_000_000
        return [Metric(name, value, now, step) for name, value in zip(NAMES, values(step))]

    def call(step, run=run()):
        for metric in metrics(step):
            client.log_metric(run, metric.key, metric.value, metric.timestamp, metric.step)
        return len(NAMES)

    def step_at_once(step, run=run()):
        client.log_batch(run, metrics=metrics(step))
        return len(NAMES)

    def many(batch, run=run()):
        steps = MOST // len(NAMES)
        client.log_batch(run, metrics=[metric for step in range(steps) for metric in metrics(batch * steps + step + 1)])
        return steps * len(NAMES)

    return {
        f"mlflow_{prefix}_call_points_per_s": rate(seconds, call),
        f"mlflow_{prefix}_step_points_per_s": rate(seconds, step_at_once),
        f"mlflow_{prefix}_batch_points_per_s": rate(seconds, many),
    }


def tensorboard(directory, seconds):
    writer = Writer(os.path.join(directory, f"tensorboard-{time.time_ns()}"))

    def act(step):
        for name, value in zip(NAMES, values(step)):
            writer.add_scalar(name, value, step)
        return len(NAMES)

    began = time.perf_counter()
    points = rate(seconds, act) * seconds
    # What is still on its way counts when it is in the file.
    writer.close()
    return {"tensorboard_points_per_s": points / (time.perf_counter() - began)}


if __name__ == "__main__":
    seconds = float(sys.argv[1])
    directory = tempfile.mkdtemp(prefix="phalanx-bench-ledger-")
    try:
        # Clients have their stores open before anything is measured.
        files = MlflowClient(tracking_uri="file://" + os.path.join(directory, "mlruns"))
        sqlite = MlflowClient(tracking_uri="sqlite:///" + os.path.join(directory, "mlflow.db"))
        for client in (files, sqlite):
            client.search_experiments()
        for line in sys.stdin:
            if line.strip() == "run":
                result = {**mlflow(files, "file", seconds), **mlflow(sqlite, "sqlite", seconds), **tensorboard(directory, seconds)}
                print(json.dumps(result), flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
