"""Numbered domains, and the ids that travel with a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional

from ...._nodes import Domain

if TYPE_CHECKING:
    import numpy

CLIENT = "client"
"""The id of the node that asks, beside the data of a job."""
SERVER = "server"
"""The id of the node that answered, beside a solution."""


def domain_of(number: Optional[int]) -> Domain:
    """The domain of a number; without one, it is 0. A domain with a key or known members is made by ``Domain``."""
    return number if isinstance(number, Domain) else Domain(f"amlip-{number or 0}")


def as_array(text: str) -> "numpy.ndarray[Any, Any]":
    """Text as it travels."""
    import numpy

    return numpy.frombuffer(text.encode(), dtype="uint8")


def text_of(arrays: Mapping[str, Any], name: str) -> str:
    """Text that travelled; empty if there is none."""
    array = arrays.get(name)
    return "" if array is None else bytes(array).decode()
