"""Samples to infer from."""

from ._data import GenericDataType

__all__ = ["InferenceDataType"]


class InferenceDataType(GenericDataType):
    """Samples to infer from."""
