"""SmartSim's own classes for training data, from the package index, against our store."""

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("smartsim", reason="SmartSim needs a Python below 3.12")

from smartsim.ml import DataDownloader, TrainingDataUploader  # noqa: E402

UPLOADER = """
import sys
import numpy as np
from smartsim.ml import TrainingDataUploader
member, cluster = int(sys.argv[1]), sys.argv[2] == "cluster"
uploader = TrainingDataUploader(list_name="training_data", num_classes=3, cluster=cluster, rank=member)
uploader.client.use_list_ensemble_prefix(True)
uploader.publish_info()
for batch in range(4):
    first = 1000 * member + 8 * batch
    samples = np.arange(first, first + 8, dtype=np.float32).reshape(8, 1)
    uploader.put_batch(samples, samples[:, 0].astype(np.int64) % 3)
"""


@pytest.fixture(params=["standalone", "cluster"])
def cluster(store, request, monkeypatch):
    mode = "Clustered" if request.param == "cluster" else "Standalone"
    for name in ["SSKEYIN", "SSKEYOUT"]:
        monkeypatch.delenv(name, raising=False)
    variables = {"SSDB": store.address, "SR_DB_TYPE": mode, "SR_LOG_LEVEL": "QUIET", "SR_SOCKET_TIMEOUT": "10000"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return request.param == "cluster"


def downloader(cluster, **options):
    # It pauses for this time after every look, also after one that found all.
    return DataDownloader("training_data", cluster=cluster, batch_size=4, wait_interval=0.01, **options)


def samples_of(batches):
    return sorted(value for x, _ in batches for value in x[:, 0].tolist())


def test_uploads_are_downloaded_whole_and_grow(cluster):
    uploader = TrainingDataUploader("training_data", num_classes=3, cluster=cluster)
    uploader.publish_info()
    values = np.arange(24, dtype=np.float32).reshape(24, 1)
    for part in np.split(values[:16], 2):
        uploader.put_batch(part, part[:, 0].astype(np.int64) % 3)
    loader = downloader(cluster)
    assert (loader.sample_name, loader.target_name, loader.num_classes) == ("samples", "targets", 3)
    batches = list(loader)
    assert len(batches) == 4
    assert all(np.array_equal(y, x[:, 0] % 3) for x, y in batches)
    assert samples_of(batches) == values[:16, 0].tolist()
    uploader.put_batch(values[16:], values[16:, 0].astype(np.int64) % 3)
    assert samples_of(list(loader)) == values[:, 0].tolist()


def test_replicas_share_what_two_programs_upload(cluster, monkeypatch):
    names = ["sim_0", "sim_1"]
    mode = "cluster" if cluster else "standalone"
    programs = [
        subprocess.Popen([sys.executable, "-c", UPLOADER, str(member), mode], env={**os.environ, "SSKEYOUT": name})
        for member, name in enumerate(names)
    ]
    assert [program.wait(timeout=60) for program in programs] == [0, 0]
    monkeypatch.setenv("SSKEYIN", ",".join(names))
    seen = [
        value
        for rank in range(2)
        for value in samples_of(downloader(cluster, replica_rank=rank, num_replicas=2))
    ]
    assert sorted(seen) == sorted(float(1000 * member + i) for member in range(2) for i in range(32))
