"""Bytes that travel between nodes."""

from __future__ import annotations

from typing import Union


class GenericDataType:
    """Bytes that travel between nodes, made of text or bytes.

    >>> GenericDataType("text").to_string()
    'text'
    >>> GenericDataType(b"1234").data_size()
    4
    """

    def __init__(self, data: Union[str, bytes, bytearray, memoryview] = b"") -> None:
        self._data = data.encode() if isinstance(data, str) else bytes(data)

    def to_string(self) -> str:
        """As text; bytes that are no UTF-8 come back as they were by ``encode(errors="surrogateescape")``."""
        return self._data.decode(errors="surrogateescape")

    def to_vector(self) -> bytes:
        """As bytes."""
        return self._data

    def data_size(self) -> int:
        """How many bytes there are."""
        return len(self._data)

    def __bytes__(self) -> bytes:
        return self._data

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.data_size()} bytes)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GenericDataType) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)
