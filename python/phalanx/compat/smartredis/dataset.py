"""Datasets, by SmartRedis's names."""

from __future__ import annotations

from typing import Any, List, Union

import numpy as np

from ... import _dataset
from ..._arrays import Array
from .error import RedisInternalError, RedisKeyError, RedisRuntimeError, translated
from .srobject import SRObject
from .util import check_tensor, typecheck

__all__ = ["Dataset"]

_META_TYPES = ("float64", "float32", "uint32", "uint64", "int32", "int64")


class Dataset(SRObject):
    """Named tensors and metadata."""

    def __init__(self, name: str) -> None:
        typecheck(name, "name", str)
        super().__init__(name)
        self._kept = _dataset.Dataset(name)

    @classmethod
    def of_store(cls, kept: _dataset.Dataset) -> "Dataset":
        """A dataset that was read from a store."""
        dataset = cls(kept.name)
        dataset._kept = kept
        return dataset

    @property
    def kept(self) -> _dataset.Dataset:
        """The dataset as the store takes it."""
        return self._kept

    def __str__(self) -> str:
        return repr(self._kept)

    @translated
    def add_tensor(self, name: str, data: Array) -> None:
        """Adds a copy of a tensor; its name must be new."""
        typecheck(name, "name", str)
        check_tensor(data)
        if name in self._kept.tensors:
            raise RedisRuntimeError(f"The tensor {name} already exists")
        self._kept.add_tensor(name, np.array(data))

    @translated
    def get_tensor(self, name: str) -> Array:
        """A copy of a tensor."""
        return self._tensor(name).copy()

    def _tensor(self, name: str) -> Array:
        typecheck(name, "name", str)
        try:
            return self._kept[name]
        except KeyError:
            raise RedisKeyError(f"The tensor {name} does not exist in the dataset") from None

    def get_name(self) -> str:
        """The name of the dataset."""
        return self._kept.name

    @translated
    def add_meta_scalar(self, name: str, data: Union[int, float]) -> None:
        """Adds a number to a field."""
        typecheck(name, "name", str)
        number = np.asarray(data)
        if number.size > 1:
            raise TypeError("Argument provided is not a scalar")
        if str(number.dtype) not in _META_TYPES:
            raise TypeError(f"Incompatible metadata type provided {number.dtype}")
        self._kept.add_metadata(name, number.dtype.type(number.reshape(())))

    @translated
    def add_meta_string(self, name: str, data: str) -> None:
        """Adds a text to a field."""
        typecheck(name, "name", str)
        typecheck(data, "data", str)
        self._kept.add_metadata(name, data)

    def _field(self, name: str) -> str:
        typecheck(name, "name", str)
        if name not in self._kept.metadata:
            raise RedisRuntimeError(f"The metadata field {name} does not exist")
        return self._kept.metadata_type(name)

    def _described(self, name: str) -> Array:
        typecheck(name, "name", str)
        if name not in self._kept.tensors:
            raise RedisInternalError(f"The tensor {name} does not exist in the dataset")
        return self._kept[name]

    def get_meta_scalars(self, name: str) -> Any:
        """The numbers of a field."""
        kind = self._field(name)
        if kind == "text":
            raise RedisRuntimeError(f"The metadata field {name} holds strings")
        return np.array(self._kept.metadata[name], dtype=kind)

    def get_meta_strings(self, name: str) -> List[str]:
        """The texts of a field."""
        if self._field(name) != "text":
            raise RedisRuntimeError(f"The metadata field {name} holds numbers")
        return self._kept.metadata[name]

    def get_metadata_field_names(self) -> List[str]:
        """The names of all fields."""
        return list(self._kept.metadata)

    def get_metadata_field_type(self, name: str) -> Any:
        """The type of a field: NumPy's, or ``str``."""
        typecheck(name, "name", str)
        if name not in self._kept.metadata:
            raise RedisKeyError(f"The metadata field {name} does not exist")
        kind = self._kept.metadata_type(name)
        return str if kind == "text" else np.dtype(kind).type

    def get_tensor_type(self, name: str) -> Any:
        """The type of a tensor: NumPy's."""
        return self._described(name).dtype.type

    def get_tensor_names(self) -> List[str]:
        """The names of all tensors."""
        return list(self._kept.tensors)

    def get_tensor_dims(self, name: str) -> List[int]:
        """The shape of a tensor."""
        return list(self._described(name).shape)
