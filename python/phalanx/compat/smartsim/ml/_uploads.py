"""What was uploaded to a list, in the order of the list.

A list may name an upload twice: a producer that was started again repeats it, or a client that had no answer sent its
command again. Such an upload counts once.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import List, Optional, Set, Tuple

import numpy as np

from ...._arrays import Array
from ....errors import InputError
from ....store import Dataset, Store
from ._passes import Indices

__all__ = ["Uploads"]

# How many uploads are read at a time.
_TOGETHER = 32


class Uploads:
    """Samples and targets by number, over all uploads. They are kept as they came, and never copied together."""

    def __init__(self, sample_name: str, target_name: Optional[str]) -> None:
        self._sample_name = sample_name
        self._target_name = target_name
        self._parts: List[Tuple[Array, Optional[Array]]] = []
        # Where the samples of each part end.
        self._ends: List[int] = []
        self._known: Set[str] = set()
        # How many parts there are among the first elements of the list.
        self._counts: List[int] = [0]

    def __len__(self) -> int:
        """How many elements of the list were read."""
        return len(self._counts) - 1

    def samples(self, elements: int) -> int:
        """How many samples the first elements of the list have."""
        return self._begin(self._counts[elements])

    def _begin(self, part: int) -> int:
        return self._ends[part - 1] if part else 0

    def read(self, store: Store, list_name: str, uploads: int) -> None:
        """Reads what is missing of the first uploads of a list."""
        while len(self) < uploads:
            last = min(len(self) + _TOGETHER, uploads) - 1
            names = store.elements(list_name, len(self), last)
            found = store.datasets(list_name, len(self), last)
            if not found:
                raise InputError(f"list {list_name!r} has fewer than {uploads} uploads", "was it deleted?")
            for name, dataset in zip(names, found):
                if name not in self._known:
                    self._add(dataset)
                    self._known.add(name)
                self._counts.append(len(self._parts))

    def _add(self, dataset: Dataset) -> None:
        tensors = dataset.tensors
        samples, targets = tensors.get(self._sample_name), None
        if samples is None:
            raise InputError(f"upload {dataset.name!r} has no tensor {self._sample_name!r}")
        if self._target_name is not None:
            targets = tensors.get(self._target_name)
            if targets is None or len(targets) != len(samples):
                raise InputError(f"upload {dataset.name!r} does not have a target for every sample")
        for added, known in zip((samples, targets), self._parts[0] if self._parts else (None, None)):
            if added is None or known is None:
                continue
            if added.shape[1:] != known.shape[1:] or added.dtype != known.dtype:
                is_, was = f"{added.dtype}{added.shape[1:]}", f"{known.dtype}{known.shape[1:]}"
                raise InputError(f"samples or targets of upload {dataset.name!r} are {is_}, others {was}")
        self._parts.append((samples, targets))
        self._ends.append(self._begin(len(self._ends)) + len(samples))

    def batch(self, indices: Indices) -> Tuple[Array, Optional[Array]]:
        """The samples of these numbers and their targets, in memory of their own."""
        places: "dict[int, list[int]]" = {}
        for place, index in enumerate(indices.tolist()):
            places.setdefault(bisect_right(self._ends, index), []).append(place)
        first_samples, first_targets = self._parts[0]
        samples = np.empty((len(indices), *first_samples.shape[1:]), first_samples.dtype)
        targets: Optional[Array] = None
        if first_targets is not None:
            targets = np.empty((len(indices), *first_targets.shape[1:]), first_targets.dtype)
        for part, here in places.items():
            of_samples, of_targets = self._parts[part]
            local = indices[here] - self._begin(part)
            samples[here] = of_samples[local]
            if targets is not None and of_targets is not None:
                targets[here] = of_targets[local]
        return samples, targets

    def whole(self, elements: int) -> Tuple[Optional[Array], Optional[Array]]:
        """All samples and targets of the first elements of the list, copied together."""
        parts = self._parts[: self._counts[elements]]
        if not parts:
            return None, None
        targets = [of_targets for _, of_targets in parts if of_targets is not None]
        return np.concatenate([of_samples for of_samples, _ in parts]), np.concatenate(targets) if targets else None
