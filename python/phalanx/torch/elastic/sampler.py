"""Which samples a rank reads, when the number of ranks changes in the middle of a pass."""

from __future__ import annotations

import math
import random
from typing import Any, Iterable, Iterator, Sized

import torch.utils.data

from ... import _ops

__all__ = ["ElasticSampler"]


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Shares the samples of a pass among the ranks; after a change the rest of the pass is shared anew.

    Call :meth:`record_batch` after each batch, and :meth:`set_epoch` at the end of each pass. As all ranks take
    equally many batches, some samples at the end of a pass are read twice if they cannot be shared evenly.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices: set[int] = set()
        self.own_indices: set[int] = set()
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins a pass; every one has another order."""
        self.epoch = epoch
        self.processed_indices = set()
        self.own_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes a batch of this rank, and those that the other ranks have read at the same time."""
        begin, end = batch_idx * batch_size, (batch_idx + 1) * batch_size
        ranks = self.num_replicas
        self.processed_indices.update(self.order[begin * ranks : end * ranks])

    def record_indices(self, indices: Iterable[int]) -> None:
        """Notes samples that this rank alone has read."""
        self.own_indices.update(indices)

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """The samples of a batch of this rank."""
        begin = batch_idx * batch_size
        return self.indices[begin : min(begin + batch_size, len(self.indices))]

    def reset(self) -> None:
        """Shares what is left of the pass among the ranks that there are."""
        initialized = _ops.is_initialized()
        self.num_replicas = _ops.size() if initialized else 1
        self.rank = _ops.rank() if initialized else 0
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        processed = self.processed_indices | self.own_indices
        remaining = [index for index in order if index not in processed]
        self.remaining_indices = remaining
        self.num_samples = math.ceil(len(remaining) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        missing = self.total_size - len(remaining)
        repeated = [remaining[place % len(remaining)] for place in range(missing)]
        self.order = remaining + repeated
        self.indices = self.order[self.rank : self.total_size : self.num_replicas]

    def state_dict(self) -> dict[str, Any]:
        """How far the pass is."""
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices), "own_indices": set(self.own_indices)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there, among the ranks that there are."""
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.own_indices = set(state_dict.get("own_indices", ()))
        self.reset()

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)
