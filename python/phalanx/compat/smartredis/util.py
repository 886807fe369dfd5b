"""Checks of arguments."""

from __future__ import annotations

from typing import Any, List, Tuple, Type, Union

import numpy as np

from ...errors import InputError

__all__ = ["TENSOR_TYPES", "check_tensor", "names", "typecheck"]

TENSOR_TYPES = ("float64", "float32", "uint8", "uint16", "int8", "int16", "int32", "int64")
"""The types of tensors that clients of every language can read."""


def typecheck(value: Any, name: str, expected: Union[Type[Any], Tuple[Type[Any], ...]]) -> None:
    """Refuses an argument of another type."""
    if not isinstance(value, expected):
        raise TypeError(f"Argument {name} is of type {type(value)}, not {expected}")


def check_tensor(data: Any) -> None:
    """Refuses what is no array that clients of every language can read."""
    typecheck(data, "data", np.ndarray)
    if str(data.dtype) not in TENSOR_TYPES:
        raise TypeError(f"Incompatible tensor type provided {data.dtype}")
    if data.ndim == 0:
        raise InputError("a tensor has at least one dimension", "say `numpy.atleast_1d(x)`")


def names(value: Union[None, str, List[str]]) -> List[str]:
    """One name, several, or none, as a list."""
    if value is None:
        return []
    if not isinstance(value, (list, str)):
        raise TypeError(f"Argument was of type {type(value)}, not {(list, str)}")
    return [value] if isinstance(value, str) else value
