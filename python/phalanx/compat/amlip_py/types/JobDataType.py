"""The data of a job."""

from ._data import GenericDataType

__all__ = ["JobDataType"]


class JobDataType(GenericDataType):
    """The data of a job."""
