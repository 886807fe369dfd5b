"""Uploading training data, and reading it while it grows."""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

from ...._arrays import Array
from ....errors import InputError, StoreKeyError
from ....store import Dataset, Store
from ...smartredis._connection import Connected, open_store
from ._passes import Indices, batches_of, order_of
from ._uploads import Uploads

__all__ = ["DataDownloader", "DataInfo", "TrainingDataUploader", "form_name"]

_LOG = logging.getLogger("smartsim.ml")
# How long the numbers of uploads that replicas agreed on are kept, in seconds.
_KEPT = 7 * 24 * 3600
_DEFAULT_LIST = "training_data"
# What makes the replicas of one run one group, if the program does not say.
_RUNS = ("PHALANX_SECRET", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")


def form_name(*parts: Any) -> str:
    """A name of parts; those that are None are left out."""
    return "_".join(str(part) for part in parts if part is not None)


def _store_of(client: Any) -> Store:
    store = client._plain if isinstance(client, Connected) else client
    return store.with_prefix("")


def _connect(cluster: bool, address: Optional[str]) -> Store:
    named = address or os.environ.get("SSDB") or os.environ.get("PHALANX_STORE")
    return open_store(named, cluster) if named else Store(prefix="")


class DataInfo:
    """What a list of uploads holds. Uploaders publish it, so that downloaders need only the name of the list."""

    def __init__(
        self,
        list_name: str = _DEFAULT_LIST,
        sample_name: str = "samples",
        target_name: Optional[str] = "targets",
        num_classes: Optional[int] = None,
    ) -> None:
        self.list_name = list_name
        self.sample_name = sample_name
        self.target_name = target_name
        self.num_classes = num_classes

    @property
    def _name(self) -> str:
        return form_name(self.list_name, "info")

    def publish(self, client: Any) -> None:
        """Stores it as the dataset ``LIST_info``."""
        described = Dataset(self._name, metadata={"sample_name": self.sample_name})
        if self.target_name:
            described.add_metadata("target_name", self.target_name)
        if self.num_classes is not None:
            described.add_metadata("num_classes", int(self.num_classes))
        _store_of(client).put_dataset(described)

    def download(self, client: Any, timeout: Optional[float] = 0.0) -> None:
        """Takes over what was published, if it comes within ``timeout`` seconds; for ever if that is None."""
        store = _store_of(client)
        store.wait_for_dataset(self._name, timeout)
        found = store.get_dataset(self._name).metadata
        self.sample_name = found["sample_name"][0]
        self.target_name = found["target_name"][0] if "target_name" in found else None
        self.num_classes = int(found["num_classes"][0]) if "num_classes" in found else None

    def __repr__(self) -> str:
        return (
            f"DataInfo(list_name={self.list_name!r}, sample_name={self.sample_name!r}, "
            f"target_name={self.target_name!r}, num_classes={self.num_classes!r})"
        )


class _Described:
    """Names of the data, for uploaders and downloaders."""

    _info: DataInfo
    verbose: bool

    @property
    def list_name(self) -> str:
        """The list that uploads are appended to."""
        return self._info.list_name

    @property
    def sample_name(self) -> str:
        """The tensor of an upload that has the samples."""
        return self._info.sample_name

    @property
    def target_name(self) -> Optional[str]:
        """The tensor of an upload that has the targets."""
        return self._info.target_name

    @property
    def num_classes(self) -> Optional[int]:
        """How many classes there are."""
        return self._info.num_classes

    def log(self, message: str) -> None:
        """Tells a message, if this was made with ``verbose``."""
        if self.verbose:
            _LOG.info(message)


class TrainingDataUploader(_Described):
    """Uploads batches of samples and targets, which others train on as they come.

    Uploaders with a ``rank`` of their own, or with prefixes set by a launcher (``SSKEYOUT``), may share a list.
    ``name``, ``sample_prefix`` and ``target_prefix`` are older names of the first three arguments.
    """

    def __init__(
        self,
        list_name: str = _DEFAULT_LIST,
        sample_name: str = "samples",
        target_name: Optional[str] = "targets",
        num_classes: Optional[int] = None,
        cluster: bool = True,
        address: Optional[str] = None,
        rank: Optional[int] = None,
        verbose: bool = False,
        *,
        name: Optional[str] = None,
        sample_prefix: Optional[str] = None,
        target_prefix: Optional[str] = None,
        producer_prefixes: Any = None,
        num_ranks: Optional[int] = None,
    ) -> None:
        # Lists name what was uploaded, so a trainer need not know how many producers and ranks there are.
        del producer_prefixes, num_ranks
        info = DataInfo(name or list_name, sample_prefix or sample_name, target_prefix or target_name, num_classes)
        if not info.list_name:
            raise ValueError("Name can not be empty")
        if not info.sample_name:
            raise ValueError("Sample name can not be empty")
        self._info = info
        self.rank = rank
        self.verbose = verbose
        self.batch_idx = 0
        plain = _connect(cluster, address)
        self._store = plain.with_prefix(os.environ.get("SSKEYOUT", ""), reads="", prefixed=["datasets"])

    def publish_info(self) -> None:
        """Tells downloaders what the list holds."""
        self._info.publish(self._store)

    def put_batch(self, samples: Any, targets: Any = None) -> None:
        """Uploads samples, and a target for each if there are targets."""
        name = form_name("training_samples", self.rank, self.batch_idx)
        batch = Dataset(name, {self.sample_name: samples})
        if targets is not None:
            if not self.target_name or self.target_name == self.sample_name:
                raise ValueError("Target name was not set, but targets were given")
            batch.add_tensor(self.target_name, targets)
        self._store.put_dataset(batch)
        length = self._store.append(self.list_name, batch)
        self.batch_idx += 1
        self.log(f"Put batch {name}; the list {self.list_name} has {length} batches")


def _group(named: Optional[str], replicas: int) -> str:
    if named is not None:
        return named
    for variable in _RUNS:
        value = os.environ.get(variable)
        if value:
            return hashlib.sha256(f"{variable}={value}".encode()).hexdigest()[:16]
    # Workers of a loader that this process makes have it from here; replicas that were started alone cannot.
    return uuid.uuid4().hex[:16] if replicas == 1 else "replicas"


class DataDownloader(_Described):
    """Batches of what was uploaded to a list, once per pass over all replicas.

    A pass has all samples that were there when its first replica began; with ``dynamic`` each pass looks anew. Their
    order depends on ``seed`` and the number of the pass only. The last batch may be smaller, unless ``drop_last``.
    Replicas agree on a pass through the store: all replicas of a run have the same ``group``, which launchers tell.

    ``uploader_name``, ``uploader_info``, ``sample_prefix``, ``target_prefix`` and ``num_classes`` are of an older
    interface; ``uploader_info="manual"`` takes them in the place of what uploaders published.
    """

    def __init__(
        self,
        data_info_or_list_name: Union[str, DataInfo, None] = None,
        batch_size: int = 32,
        dynamic: bool = True,
        shuffle: bool = True,
        cluster: bool = True,
        address: Optional[str] = None,
        replica_rank: int = 0,
        num_replicas: int = 1,
        verbose: bool = False,
        init_samples: bool = True,
        max_fetch_trials: int = -1,
        wait_interval: float = 10.0,
        *,
        seed: int = 0,
        drop_last: bool = False,
        group: Optional[str] = None,
        **older: Any,
    ) -> None:
        if batch_size < 1 or not 0 <= replica_rank < num_replicas:
            raise InputError("`batch_size` is at least 1, and `replica_rank` less than `num_replicas`")
        self.batch_size = batch_size
        self.dynamic = dynamic
        self.shuffle = shuffle
        self.cluster = cluster
        self.address = address
        self.replica_rank = replica_rank
        self.num_replicas = num_replicas
        self.verbose = verbose
        self.seed = seed
        self.drop_last = drop_last
        self.group = _group(group, num_replicas)
        self.pass_number = 0
        self._store: Optional[Store] = None
        self._uploads: Optional[Uploads] = None
        self._horizon = 0
        self._batches: List[Indices] = []
        self._is_used = False
        timeout = None if max_fetch_trials < 0 else max_fetch_trials * wait_interval
        self._info = self._described(data_info_or_list_name, older, timeout)
        if init_samples:
            self.init_samples(max_fetch_trials, wait_interval)

    def _described(
        self, named: Union[str, DataInfo, None], older: Dict[str, Any], timeout: Optional[float]
    ) -> DataInfo:
        manual = older.pop("uploader_info", "auto") == "manual"
        list_name = older.pop("uploader_name", _DEFAULT_LIST)
        samples, targets = older.pop("sample_prefix", "samples"), older.pop("target_prefix", "targets")
        classes = older.pop("num_classes", None)
        older.pop("producer_prefixes", None)
        older.pop("uploader_ranks", None)
        if older:
            raise TypeError(f"{type(self).__name__} got an unexpected keyword argument {sorted(older)[0]!r}")
        if isinstance(named, DataInfo):
            return named
        if manual and named is None:
            return DataInfo(list_name, samples, targets, classes)
        info = DataInfo(list_name if named is None else named)
        store = _connect(self.cluster, self.address)
        info.download(store, timeout)
        store.close()
        return info

    def __getstate__(self) -> Dict[str, Any]:
        # Another process reads the data itself.
        return {**self.__dict__, "_store": None, "_uploads": None, "_batches": [], "_horizon": 0}

    @property
    def autoencoding(self) -> bool:
        """Whether samples are their own targets."""
        return self.sample_name == self.target_name

    @property
    def need_targets(self) -> bool:
        """Whether uploads have targets beside the samples."""
        return bool(self.target_name) and not self.autoencoding

    @property
    def num_samples(self) -> int:
        """How many samples all replicas together use in this pass."""
        return self._uploads.samples(self._horizon) if self._uploads is not None else 0

    @property
    def samples(self) -> Optional[Array]:
        """All samples of this pass, copied together."""
        return self._uploads.whole(self._horizon)[0] if self._uploads is not None else None

    @property
    def targets(self) -> Optional[Array]:
        """All targets of this pass, copied together."""
        return self._uploads.whole(self._horizon)[1] if self._uploads is not None else None

    def init_samples(self, init_trials: int = -1, wait_interval: float = 10.0) -> None:
        """Waits for the first upload, for ``init_trials * wait_interval`` seconds; for ever if they are negative."""
        self._store = _connect(self.cluster, self.address)
        self._uploads = Uploads(self.sample_name, self.target_name if self.need_targets else None)
        self._store.wait_for_length(self.list_name, 1, None if init_trials < 0 else init_trials * wait_interval)
        self._begin(self.pass_number)

    def update_data(self) -> None:
        """Begins the next pass: with what was uploaded meanwhile, if ``dynamic``."""
        self.set_epoch(self.pass_number + 1)

    def set_epoch(self, epoch: int) -> None:
        """Begins the pass of this number, as a run does that goes on where it was."""
        if self._uploads is None:
            self.pass_number = epoch
        else:
            self._begin(epoch)
        self._is_used = False

    def _begin(self, pass_number: int) -> None:
        if self._store is None or self._uploads is None:
            raise InputError("no samples were read", "call `init_samples()` first")
        if self.dynamic or not self._horizon:
            self._horizon = self._agreed(self._store, pass_number if self.dynamic else 0)
        self._uploads.read(self._store, self.list_name, self._horizon)
        self.pass_number = pass_number
        order = order_of(self.num_samples, self.seed, pass_number, self.shuffle)
        self._batches = batches_of(order, self.batch_size, self.replica_rank, self.num_replicas, self.drop_last)
        self.log(f"Pass {pass_number}: {self.num_samples} samples of {self._horizon} uploads")

    def _agreed(self, store: Store, pass_number: int) -> int:
        """How many uploads a pass has: what its first replica saw."""
        seen = store.length(self.list_name)
        if self.num_replicas == 1:
            return seen
        key = form_name(self.list_name, "passes", self.group)
        store.command("HSETNX", key, pass_number, seen)
        store.command("EXPIRE", key, _KEPT)
        agreed = store.command("HGET", key, pass_number)
        if agreed is None:
            raise StoreKeyError(f"what replicas agreed on is gone from {key!r}")
        return int(agreed)

    def __len__(self) -> int:
        return len(self._batches)

    def _batch(self, indices: Indices) -> Union[Array, Tuple[Array, Array]]:
        if self._uploads is None:
            raise InputError("no samples were read", "call `init_samples()` first")
        samples, targets = self._uploads.batch(indices)
        if targets is not None:
            return samples, targets
        return (samples, samples) if self.autoencoding else samples

    def __iter__(self) -> Iterator[Any]:
        if self._uploads is None:
            self.init_samples()
        elif self._is_used:
            self.update_data()
        self._is_used = True
        for indices in list(self._batches):
            yield self._batch(indices)
