"""Datasets of the store: named tensors and metadata."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import numpy as np

from . import _arrays, _phalanx
from ._arrays import Array
from .errors import InputError

__all__ = ["Dataset", "MetaValue", "storable"]

MetaValue = Union[int, float, str]

_KINDS = frozenset({"float64", "float32", "int32", "int64", "uint32", "uint64"})


def storable(value: Any, name: str) -> Array:
    """The value as an array that a store takes: in one piece, with elements; a single number has the shape (1,)."""
    try:
        array = _arrays.view(value)
    except InputError:
        raise
    except Exception as error:
        # Code of the object itself may raise anything.
        raise InputError(f"tensor {name!r} cannot be made an array: {error}") from error
    array = _arrays.as_array(array.reshape(1) if array.ndim == 0 else array, name)
    if array.size == 0:
        raise InputError(f"tensor {name!r} has no elements")
    return array.view(np.ndarray)


class Dataset:
    """Named tensors and metadata, which are stored and read together.

    Tensors that were read from a store are views that cannot be written.

    >>> import numpy as np
    >>> step = Dataset("step_7", {"u": np.zeros((2, 3))}, {"time": 0.7, "tags": ["warm", "dry"]})
    >>> step.tensors["u"].shape, step.metadata["time"], step.metadata["tags"]
    ((2, 3), [0.7], ['warm', 'dry'])
    """

    def __init__(
        self,
        name: str,
        tensors: Optional[Mapping[str, Any]] = None,
        metadata: Optional[Mapping[str, Union[MetaValue, Iterable[MetaValue]]]] = None,
    ) -> None:
        self.name = name
        self._tensors: Dict[str, Array] = {}
        self._metadata: Dict[str, Tuple[str, List[Any]]] = {}
        for tensor, value in (tensors or {}).items():
            self.add_tensor(tensor, value)
        for field, values in (metadata or {}).items():
            several = isinstance(values, Iterable) and not isinstance(values, (str, np.generic))
            self.add_metadata(field, *(values if several else [values]))  # type: ignore[misc]

    @property
    def tensors(self) -> Dict[str, Array]:
        """The tensors by name, in the order in which they were added."""
        return dict(self._tensors)

    @property
    def metadata(self) -> Dict[str, List[Any]]:
        """The values of every field."""
        return {field: list(values) for field, (_, values) in self._metadata.items()}

    def __getitem__(self, tensor: str) -> Array:
        return self._tensors[tensor]

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, tensors={list(self._tensors)}, metadata={list(self._metadata)})"

    def add_tensor(self, name: str, value: Any) -> None:
        """Adds a tensor, or replaces the one of this name. It is not copied: do not write to it before it is stored."""
        self._tensors[name] = storable(value, name)

    def add_metadata(self, field: str, *values: MetaValue) -> None:
        """Adds values to a field: numbers of one type, or strings. NumPy's numbers keep their type."""
        for value in values:
            kind = _kind(field, value)
            have, stored = self._metadata.setdefault(field, (kind, []))
            if have != kind:
                raise InputError(f"field {field!r} of dataset {self.name!r} holds {have}, not {kind}")
            stored.append(value.item() if isinstance(value, np.generic) else value)

    def metadata_type(self, field: str) -> str:
        """The type of a field's values: ``"text"`` or NumPy's name of a number."""
        return self._metadata[field][0]

    def _parts(self) -> Tuple[List[Tuple[str, Array]], List[Tuple[str, str, List[Any]]]]:
        return list(self._tensors.items()), [(field, *kept) for field, kept in self._metadata.items()]

    @classmethod
    def _of_parts(
        cls, parts: Tuple[str, List[Tuple[str, _phalanx.Memory]], List[Tuple[str, str, List[Any]]]], copy: bool
    ) -> "Dataset":
        name, tensors, fields = parts
        dataset = cls(name)
        dataset._tensors = {tensor: np.array(memory) if copy else np.asarray(memory) for tensor, memory in tensors}
        dataset._metadata = {field: (kind, values) for field, kind, values in fields}
        return dataset


def _kind(field: str, value: MetaValue) -> str:
    if isinstance(value, str):
        return "text"
    kind = str(np.asarray(value).dtype)
    if kind not in _KINDS or np.ndim(value) != 0:
        raise InputError(f"field {field!r} cannot hold {value!r}", "metadata are strings, integers and floats")
    return kind
