"""The solution of a job."""

from ._data import GenericDataType

__all__ = ["JobSolutionDataType"]


class JobSolutionDataType(GenericDataType):
    """The solution of a job."""
