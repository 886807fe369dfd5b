"""Training data of the store for PyTorch.

Each worker of a loader is a replica: together they use every sample once per pass.
"""

from __future__ import annotations

from typing import Any, Iterator

import torch
from torch.utils import data

from ..data import DataDownloader

__all__ = ["DataLoader", "DynamicDataGenerator", "StaticDataGenerator"]


class _TorchData(DataDownloader, data.IterableDataset[Any]):
    """Batches as tensors. Data are read when they are first used, by the process that uses them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        named["init_samples"] = False
        self._worker_of = 0
        super().__init__(*arguments, **named)

    def _join_workers(self) -> None:
        worker = data.get_worker_info()
        if worker is None or self._worker_of:
            return
        self._worker_of = worker.num_workers
        self.replica_rank = self.replica_rank * worker.num_workers + worker.id
        self.num_replicas *= worker.num_workers

    def __len__(self) -> int:
        # A loader would warn of every batch beyond a length that it was told.
        if self.dynamic or self._uploads is None:
            raise TypeError("how many batches there are is known when a pass begins")
        return super().__len__()

    def __iter__(self) -> Iterator[Any]:
        self._join_workers()
        for batch in super().__iter__():
            if isinstance(batch, tuple):
                yield tuple(torch.from_numpy(part) for part in batch)
            else:
                yield torch.from_numpy(batch)


class StaticDataGenerator(_TorchData):
    """What was uploaded when the first pass began."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "dynamic": False})


class DynamicDataGenerator(_TorchData):
    """What was uploaded when each pass began."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "dynamic": True})


class DataLoader(data.DataLoader[Any]):
    """A loader whose workers live through all passes, each a replica."""

    def __init__(self, dataset: Any, **named: Any) -> None:
        named.setdefault("batch_size", None)
        named["persistent_workers"] = named.get("num_workers", 0) > 0
        super().__init__(dataset, **named)
