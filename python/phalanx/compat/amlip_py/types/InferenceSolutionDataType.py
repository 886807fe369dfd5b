"""What was inferred from samples."""

from ._data import GenericDataType

__all__ = ["InferenceSolutionDataType"]


class InferenceSolutionDataType(GenericDataType):
    """What was inferred from samples."""
