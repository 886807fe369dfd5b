"""Training data in the store: uploads, passes, replicas, and the generators for PyTorch and Keras."""

from __future__ import annotations

import itertools
import pathlib
import pickle
import subprocess
import sys
import textwrap
import threading
from typing import Any, Iterator, List

import numpy as np
import pytest

from phalanx.compat.smartsim.ml import DataDownloader, DataInfo, TrainingDataUploader
from phalanx.compat.smartsim.ml._passes import batches_of, order_of
from phalanx.errors import InputError, StoreTimeout
from phalanx.store import Server, serve

PATIENCE = 60


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("SSKEYOUT", "SSKEYIN", "PHALANX_SECRET", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    with serve() as running:
        monkeypatch.setenv("SSDB", running.address)
        yield running


def upload(uploader: TrainingDataUploader, first: int, count: int) -> None:
    """Uploads samples that are their own numbers."""
    numbers = np.arange(first, first + count)
    uploader.put_batch(np.repeat(numbers[:, None], 3, axis=1).astype("float32"), numbers)


def numbers(batches: Any) -> List[List[int]]:
    """The numbers of the samples of each batch; samples and targets must belong together."""
    found = []
    for samples, targets in batches:
        assert (np.asarray(samples)[:, 0] == np.asarray(targets)).all()
        found.append(np.asarray(targets).tolist())
    return found


def together(batches: List[List[int]]) -> List[int]:
    return sorted(itertools.chain.from_iterable(batches))


@pytest.mark.parametrize("samples", [1, 2, 5, 31, 32, 33, 64, 97, 100])
@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [1, 4, 8])
def test_replicas_share_out_every_sample_once(samples: int, replicas: int, size: int) -> None:
    order = order_of(samples, 3, 1, True)
    shares = [batches_of(order, size, rank, replicas, False) for rank in range(replicas)]
    used = [index for share in shares for batch in share for index in batch.tolist()]
    assert sorted(used) == list(range(samples))
    if samples >= replicas:
        assert len({len(share) for share in shares}) == 1
    assert max(len(batch) for share in shares for batch in share) <= size + 1
    full = [batches_of(order, size, rank, replicas, True) for rank in range(replicas)]
    assert {len(batch) for share in full for batch in share} <= {size}
    assert len({len(share) for share in full}) == 1


def test_a_step_has_the_same_samples_for_any_number_of_replicas() -> None:
    order = order_of(96, 0, 2, True)
    alone = [set(batch.tolist()) for batch in batches_of(order, 24, 0, 1, False)]
    for replicas in (2, 3, 4):
        shares = [batches_of(order, 24 // replicas, rank, replicas, False) for rank in range(replicas)]
        assert [set().union(*(batch.tolist() for batch in step)) for step in zip(*shares)] == alone


def test_one_upload_is_used_once(server: Server) -> None:
    uploader = TrainingDataUploader(num_classes=10)
    uploader.publish_info()
    upload(uploader, 0, 8)
    data = DataDownloader("training_data", batch_size=3)
    assert (data.num_samples, data.num_classes, len(data)) == (8, 10, 3)
    first, second = numbers(data), numbers(data)
    assert together(first) == together(second) == list(range(8))
    assert first != second
    assert data.samples is not None and data.samples.shape == (8, 3)
    assert data.targets is not None and data.targets.tolist() == list(range(8))


def test_the_order_depends_on_seed_and_pass_only(server: Server) -> None:
    uploader = TrainingDataUploader()
    uploader.publish_info()
    for first in range(0, 40, 10):
        upload(uploader, first, 10)
    passes = []
    for _ in range(2):
        data = DataDownloader("training_data", batch_size=8, seed=5)
        passes.append([numbers(data) for _ in range(3)])
    assert passes[0] == passes[1]
    # Samples of all uploads are mixed, and each pass has an order of its own.
    assert len({number // 10 for number in passes[0][0][0]}) > 1
    assert passes[0][0] != passes[0][1] != passes[0][2]
    other = DataDownloader("training_data", batch_size=8, seed=6)
    assert numbers(other) != passes[0][0]
    again = DataDownloader("training_data", batch_size=8, seed=5)
    again.set_epoch(2)
    assert numbers(again) == passes[0][2]
    plain = DataDownloader("training_data", batch_size=8, shuffle=False)
    assert list(itertools.chain.from_iterable(numbers(plain))) == list(range(40))


def test_data_grow_between_passes(server: Server) -> None:
    uploader = TrainingDataUploader()
    uploader.publish_info()
    upload(uploader, 0, 10)
    grows, stays = DataDownloader("training_data"), DataDownloader("training_data", dynamic=False)
    assert together(numbers(grows)) == together(numbers(stays)) == list(range(10))
    for first in range(10, 100, 10):
        upload(uploader, first, 10)
    assert together(numbers(grows)) == list(range(100))
    assert together(numbers(stays)) == list(range(10))


@pytest.mark.parametrize("replicas", [2, 3])
def test_replicas_agree_on_a_pass_while_data_grow(server: Server, replicas: int) -> None:
    uploader = TrainingDataUploader()
    uploader.publish_info()
    upload(uploader, 0, 20)
    every: "List[DataDownloader]" = []
    for rank in range(replicas):
        every.append(DataDownloader("training_data", batch_size=4, replica_rank=rank, num_replicas=replicas))
        # The next replica sees a longer list than the one before.
        upload(uploader, 20 + 7 * rank, 7)
    horizon = 20
    for _ in range(3):
        passes = [numbers(data) for data in every]
        assert together([batch for share in passes for batch in share]) == list(range(horizon))
        assert len({len(share) for share in passes}) == 1
        horizon = 20 + 7 * replicas


def test_runs_do_not_mix_their_passes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    uploader = TrainingDataUploader()
    uploader.publish_info()
    for run, first in (("a", 0), ("b", 10)):
        monkeypatch.setenv("SLURM_JOB_ID", run)
        upload(uploader, first, 10)
        replicas = [DataDownloader("training_data", replica_rank=rank, num_replicas=2) for rank in (0, 1)]
        found = [batch for data in replicas for batch in numbers(data)]
        assert together(found) == list(range(first + 10))
        key = f"training_data_passes_{replicas[0].group}"
        ttl = server.store(prefix="").command("TTL", key)
        assert 0 < ttl <= 7 * 24 * 3600


def test_a_downloader_is_woken_by_the_first_upload(server: Server) -> None:
    found: "List[Any]" = []
    # It would look again only after an hour, if it polled.
    wait = lambda: found.append(numbers(DataDownloader("training_data", wait_interval=3600)))
    waiter = threading.Thread(target=wait)
    waiter.start()
    uploader = TrainingDataUploader()
    uploader.publish_info()
    upload(uploader, 0, 4)
    waiter.join(PATIENCE)
    assert together(found[0]) == list(range(4))
    with pytest.raises(StoreTimeout):
        DataDownloader("nothing", max_fetch_trials=1, wait_interval=0.05)
    with pytest.raises(StoreTimeout):
        DataDownloader(DataInfo("nothing"), max_fetch_trials=1, wait_interval=0.05)


def test_an_upload_that_a_list_names_twice_counts_once(server: Server) -> None:
    uploader = TrainingDataUploader()
    uploader.publish_info()
    upload(uploader, 0, 10)
    # The producer dies, is started again, and repeats itself.
    again = TrainingDataUploader()
    upload(again, 0, 10)
    upload(again, 10, 5)
    data = DataDownloader("training_data", batch_size=4)
    assert data.num_samples == 15 and together(numbers(data)) == list(range(15))
    server.store(prefix="").append("training_data", "training_samples_1")
    upload(again, 15, 1)
    assert together(numbers(data)) == list(range(16))
    assert data.targets is not None and sorted(data.targets.tolist()) == list(range(16))


def test_samples_without_targets_and_autoencoders(server: Server) -> None:
    alone = TrainingDataUploader("alone", target_name=None)
    alone.publish_info()
    alone.put_batch(np.arange(6.0).reshape(3, 2))
    data = DataDownloader("alone", shuffle=False)
    assert [batch.tolist() for batch in data] == [[[0, 1], [2, 3], [4, 5]]] and not data.need_targets
    with pytest.raises(ValueError):
        alone.put_batch(np.zeros((1, 2)), np.zeros(1))
    auto = TrainingDataUploader("auto", sample_name="x", target_name="x")
    auto.publish_info()
    auto.put_batch(np.arange(6.0).reshape(3, 2))
    data = DataDownloader("auto")
    assert data.autoencoding
    for samples, targets in data:
        assert np.array_equal(samples, targets)


def test_uploads_that_do_not_fit_are_named(server: Server) -> None:
    uploader = TrainingDataUploader()
    uploader.publish_info()
    upload(uploader, 0, 4)
    data = DataDownloader("training_data")
    uploader.put_batch(np.zeros((2, 5), "float32"), np.zeros(2, "int64"))
    with pytest.raises(InputError, match="training_samples_1"):
        data.update_data()
    short = TrainingDataUploader("short")
    short.put_batch(np.zeros((2, 5)), np.zeros(1))
    with pytest.raises(InputError, match="target"):
        DataDownloader(DataInfo("short"))
    with pytest.raises(ValueError):
        TrainingDataUploader("")
    with pytest.raises(TypeError):
        DataDownloader("training_data", sample_size=3)


def test_producers_with_prefixes_share_a_list(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for member in range(3):
        monkeypatch.setenv("SSKEYOUT", f"uploader_{member}")
        for rank in range(2):
            uploader = TrainingDataUploader(rank=rank)
            if member == rank == 0:
                uploader.publish_info()
            upload(uploader, 20 * member + 10 * rank, 10)
    monkeypatch.delenv("SSKEYOUT")
    monkeypatch.setenv("SSKEYIN", "uploader_0,uploader_1,uploader_2")
    assert together(numbers(DataDownloader("training_data"))) == list(range(60))
    assert server.store(prefix="").key_exists("uploader_2.{training_samples_1_0}.meta")


def test_names_of_the_older_interface(server: Server) -> None:
    uploader = TrainingDataUploader(
        name="steps", sample_prefix="x", target_prefix="y", num_classes=3, producer_prefixes=["a"], num_ranks=2, rank=1
    )
    uploader.publish_info()
    upload(uploader, 0, 5)
    assert uploader.batch_idx == 1
    auto = DataDownloader(uploader_name="steps", replica_rank=0, num_replicas=1, cluster=True)
    assert (auto.sample_name, auto.target_name, auto.num_classes) == ("x", "y", 3)
    manual = DataDownloader(
        uploader_info="manual", uploader_name="steps", sample_prefix="x", target_prefix="y", producer_prefixes="a"
    )
    assert together(numbers(manual)) == together(numbers(auto)) == list(range(5))


def test_a_downloader_reads_anew_in_another_process(server: Server) -> None:
    uploader = TrainingDataUploader()
    uploader.publish_info()
    upload(uploader, 0, 9)
    sent = pickle.loads(pickle.dumps(DataDownloader("training_data")))
    assert together(numbers(sent)) == list(range(9))


def test_programs_of_smartsim_run_as_they_are(server: Server, tmp_path: pathlib.Path) -> None:
    program = """
    import numpy as np
    from smartsim.ml import DataDownloader, TrainingDataUploader
    from smartsim.ml.data import DataInfo
    uploader = TrainingDataUploader(list_name="training_data", num_classes=2, cluster=False, verbose=True)
    uploader.publish_info()
    uploader.put_batch(np.ones((6, 2)), np.zeros(6, dtype="int64"))
    data = DataDownloader(DataInfo("training_data"), batch_size=4, cluster=False)
    print([samples.shape for samples, targets in data])
    """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, "-m", "phalanx.compat", str(file)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "[(4, 2), (2, 2)]\n", done.stderr


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_torch_loaders_use_every_sample_once(server: Server, workers: int) -> None:
    torch = pytest.importorskip("torch")
    from phalanx.compat.smartsim.ml.torch import DataLoader, DynamicDataGenerator, StaticDataGenerator

    uploader = TrainingDataUploader()
    uploader.publish_info()
    for first in range(0, 30, 10):
        upload(uploader, first, 10)
    grows = DataLoader(DynamicDataGenerator("training_data", batch_size=4), num_workers=workers)
    stays = DataLoader(StaticDataGenerator("training_data", batch_size=4), num_workers=workers)
    first = list(grows)
    assert isinstance(first[0][0], torch.Tensor)
    assert together(numbers(first)) == together(numbers(stays)) == list(range(30))
    upload(uploader, 30, 10)
    second = numbers(grows)
    assert together(second) == list(range(40)) and second[: len(first)] != numbers(first)
    assert together(numbers(stays)) == list(range(30))


def test_keras_models_fit_growing_data(server: Server) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    from phalanx.compat.smartsim.ml.tf import DynamicDataGenerator

    class Recorded(DynamicDataGenerator):
        def __getitem__(self, index: int) -> Any:
            batch = super().__getitem__(index)
            used.setdefault(self.pass_number, []).append(batch[0][:, 0].astype(int).tolist())
            return batch

    used: "dict[int, List[List[int]]]" = {}
    uploader = TrainingDataUploader(num_classes=40)
    uploader.publish_info()
    upload(uploader, 0, 20)
    data = Recorded("training_data", batch_size=8, cluster=False)
    samples, targets = data[0]
    assert samples.shape == (8, 3) and targets.shape == (8, 40)
    assert (targets.argmax(axis=1) == samples[:, 0]).all()
    used.clear()
    model = tensorflow.keras.Sequential([tensorflow.keras.Input((3,)), tensorflow.keras.layers.Dense(40)])
    model.compile(loss="mse", optimizer="sgd")
    for epoch in range(3):
        if epoch == 1:
            # Too late for the pass that began when the epoch before ended.
            upload(uploader, 20, 20)
        model.fit(data, initial_epoch=epoch, epochs=epoch + 1, verbose=0)
    passes = {number: sorted(set(together(batches))) for number, batches in used.items()}
    assert passes == {0: list(range(20)), 1: list(range(20)), 2: list(range(40))}
    assert data.pass_number == 3
