"""The client, by SmartRedis's names."""

from __future__ import annotations

import time
from typing import Any, Callable, List, Optional

from ... import errors
from ..._arrays import Array
from ._admin import Admin
from ._models import Models
from .dataset import Dataset
from .error import RedisRuntimeError, translated
from .util import check_tensor, typecheck

__all__ = ["Client"]


def _within(poll_frequency_ms: int, num_tries: int) -> float:
    typecheck(poll_frequency_ms, "poll_frequency_ms", int)
    typecheck(num_tries, "num_tries", int)
    return max(poll_frequency_ms, 0) * max(num_tries, 0) / 1000


def _came(wait: Callable[[str, Optional[float]], None], name: str, poll_frequency_ms: int, num_tries: int) -> bool:
    """Waits for something; the store tells when it is there, so nothing is polled."""
    typecheck(name, "name", str)
    try:
        wait(name, _within(poll_frequency_ms, num_tries))
    except errors.StoreTimeout:
        return False
    return True


class Client(Models, Admin):
    """A client of a store: ``Client(config_options=None, logger_name="Default")`` connects as the environment says,
    ``Client(cluster, address=None, logger_name="Default")`` to an address.
    """

    @translated
    def put_tensor(self, name: str, data: Array) -> None:
        """Stores a tensor."""
        typecheck(name, "name", str)
        check_tensor(data)
        self._store.put(name, data)

    @translated
    def get_tensor(self, name: str) -> Array:
        """Reads a tensor into memory of its own."""
        typecheck(name, "name", str)
        return self._store.get(name, copy=True)

    @translated
    def delete_tensor(self, name: str) -> None:
        """Deletes a tensor."""
        typecheck(name, "name", str)
        self._store.delete(name)

    @translated
    def copy_tensor(self, src_name: str, dest_name: str) -> None:
        """Stores a tensor of the store under another name, too."""
        typecheck(src_name, "src_name", str)
        typecheck(dest_name, "dest_name", str)
        self._store.copy(src_name, dest_name)

    @translated
    def rename_tensor(self, old_name: str, new_name: str) -> None:
        """Gives a tensor another name."""
        typecheck(old_name, "old_name", str)
        typecheck(new_name, "new_name", str)
        self._store.rename(old_name, new_name)

    @translated
    def put_dataset(self, dataset: Dataset) -> None:
        """Stores a dataset."""
        typecheck(dataset, "dataset", Dataset)
        self._store.put_dataset(dataset.kept)

    @translated
    def get_dataset(self, name: str) -> Dataset:
        """Reads a dataset."""
        typecheck(name, "name", str)
        return Dataset.of_store(self._store.get_dataset(name))

    @translated
    def delete_dataset(self, name: str) -> None:
        """Deletes a dataset with its tensors."""
        typecheck(name, "name", str)
        if not self._store.delete_dataset(name):
            raise RedisRuntimeError(f"The dataset {name} does not exist", "Client.delete_dataset")

    @translated
    def copy_dataset(self, src_name: str, dest_name: str) -> None:
        """Stores a copy of a dataset under another name."""
        typecheck(src_name, "src_name", str)
        typecheck(dest_name, "dest_name", str)
        self._store.copy_dataset(src_name, dest_name)

    @translated
    def rename_dataset(self, old_name: str, new_name: str) -> None:
        """Gives a dataset another name."""
        typecheck(old_name, "old_name", str)
        typecheck(new_name, "new_name", str)
        self._store.rename_dataset(old_name, new_name)

    @translated
    def tensor_exists(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        typecheck(name, "name", str)
        return self._store.exists(name)

    @translated
    def dataset_exists(self, name: str) -> bool:
        """Whether all of a dataset is there."""
        typecheck(name, "name", str)
        return self._store.dataset_exists(name)

    @translated
    def key_exists(self, key: str) -> bool:
        """Whether there is anything under a key as it is."""
        typecheck(key, "key", str)
        return self._store.key_exists(key)

    @translated
    def poll_key(self, key: str, poll_frequency_ms: int, num_tries: int) -> bool:
        """Waits for a key, ``poll_frequency_ms * num_tries`` milliseconds at most."""
        return _came(self._store.wait_for_key, key, poll_frequency_ms, num_tries)

    @translated
    def poll_tensor(self, name: str, poll_frequency_ms: int, num_tries: int) -> bool:
        """Waits for a tensor, ``poll_frequency_ms * num_tries`` milliseconds at most."""
        return _came(self._store.wait, name, poll_frequency_ms, num_tries)

    @translated
    def poll_dataset(self, name: str, poll_frequency_ms: int, num_tries: int) -> bool:
        """Waits for a whole dataset, ``poll_frequency_ms * num_tries`` milliseconds at most."""
        return _came(self._store.wait_for_dataset, name, poll_frequency_ms, num_tries)

    @translated
    def poll_model(self, name: str, poll_frequency_ms: int, num_tries: int) -> bool:
        """Waits for a model, ``poll_frequency_ms * num_tries`` milliseconds at most."""
        typecheck(name, "name", str)
        key = self._key("models", name, writes=False)
        return _came(self._store.wait_for_key, key, poll_frequency_ms, num_tries)

    @translated
    def append_to_list(self, list_name: str, dataset: Dataset) -> None:
        """Appends a dataset that is in the store to a list."""
        typecheck(list_name, "list_name", str)
        typecheck(dataset, "dataset", Dataset)
        self._store.append(list_name, dataset.kept)

    @translated
    def delete_list(self, list_name: str) -> None:
        """Deletes a list; its datasets stay."""
        typecheck(list_name, "list_name", str)
        self._store.delete_list(list_name)

    @translated
    def copy_list(self, src_name: str, dest_name: str) -> None:
        """Makes a list of the same datasets."""
        typecheck(src_name, "src_name", str)
        typecheck(dest_name, "dest_name", str)
        self._store.copy_list(src_name, dest_name)

    @translated
    def rename_list(self, src_name: str, dest_name: str) -> None:
        """Gives a list another name."""
        typecheck(src_name, "src_name", str)
        typecheck(dest_name, "dest_name", str)
        self._store.rename_list(src_name, dest_name)

    @translated
    def get_list_length(self, list_name: str) -> int:
        """How many datasets a list has."""
        typecheck(list_name, "list_name", str)
        return self._store.length(list_name)

    @translated
    def poll_list_length_gte(self, name: str, list_length: int, poll_frequency_ms: int, num_tries: int) -> bool:
        """Waits until a list has at least this length."""
        typecheck(list_length, "list_length", int)
        least = max(list_length, 0)
        if least == 0:
            return True
        waits = lambda name, timeout: self._store.wait_for_length(name, least, timeout)
        return _came(waits, name, poll_frequency_ms, num_tries)

    @translated
    def poll_list_length_lte(self, name: str, list_length: int, poll_frequency_ms: int, num_tries: int) -> bool:
        """Waits until a list has at most this length."""
        typecheck(list_length, "list_length", int)
        return self._shrank(name, lambda length: length <= list_length, poll_frequency_ms, num_tries)

    @translated
    def poll_list_length(self, name: str, list_length: int, poll_frequency_ms: int, num_tries: int) -> bool:
        """Waits until a list has this length."""
        if self._store.length(name) < list_length:
            self.poll_list_length_gte(name, list_length, poll_frequency_ms, num_tries)
            return self._store.length(name) == list_length
        return self._shrank(name, lambda length: length == list_length, poll_frequency_ms, num_tries)

    def _shrank(self, name: str, is_wanted: Callable[[int], bool], poll_frequency_ms: int, num_tries: int) -> bool:
        """Looks now and then whether a list got shorter, of which the store does not tell."""
        typecheck(name, "name", str)
        until = time.monotonic() + _within(poll_frequency_ms, num_tries)
        while not is_wanted(self._store.length(name)):
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(poll_frequency_ms / 1000, left))
        return True

    @translated
    def get_datasets_from_list(self, list_name: str) -> List[Dataset]:
        """All datasets of a list."""
        typecheck(list_name, "list_name", str)
        return [Dataset.of_store(kept) for kept in self._store.datasets(list_name)]

    @translated
    def get_dataset_list_range(self, list_name: str, start_index: int, end_index: int) -> List[Dataset]:
        """The datasets of a list between two places, both included; negative ones count from the end."""
        typecheck(list_name, "list_name", str)
        typecheck(start_index, "start_index", int)
        typecheck(end_index, "end_index", int)
        found: List[Any] = self._store.datasets(list_name, start_index, end_index)
        return [Dataset.of_store(kept) for kept in found]
