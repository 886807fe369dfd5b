"""Commands per second with HyperQueue: the peer of `phalanx job submit --kind exec -- true`."""

import json
import statistics
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

WORKERS = 2
COMMANDS = 5_000
ROUNDS = 1


def round_of(client, workdir):
    job = Job(default_workdir=workdir)
    for _ in range(COMMANDS):
        job.program(["true"], stdout=None, stderr=None)
    started = time.perf_counter()
    client.wait_for_jobs([client.submit(job)])
    return COMMANDS / (time.perf_counter() - started)


def main():
    with tempfile.TemporaryDirectory() as workdir, LocalCluster() as cluster:
        for _ in range(WORKERS):
            cluster.start_worker(WorkerConfig(cores=1))
        client = cluster.client()
        rates = [round_of(client, workdir) for _ in range(ROUNDS)]
    print(json.dumps({"commands_per_s": statistics.median(rates)}))


if __name__ == "__main__":
    main()
