"""Writes ONNX models: the few messages of the format that are needed, without its package."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Optional, Sequence, Tuple, Union

import numpy as np

from ._arrays import Array

_IR_VERSION = 8
_OPSET = 17
_TYPES = {"float32": 1, "int64": 7, "bool": 9}
_FLOAT, _INT, _TENSOR, _INTS = 1, 2, 4, 7

Attribute = Union[int, float, Array, Sequence[int]]


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(tag: int, number: int) -> bytes:
    return _varint(tag << 3) + _varint(number)


def _bytes(tag: int, body: Union[bytes, str]) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    return _varint(tag << 3 | 2) + _varint(len(data)) + data


def _tensor(array: Array, name: str = "") -> bytes:
    dims = b"".join(_number(1, size) for size in array.shape)
    kind = _number(2, _TYPES[array.dtype.name])
    return dims + kind + (_bytes(8, name) if name else b"") + _bytes(9, np.ascontiguousarray(array).tobytes())


def _attribute(name: str, value: Attribute) -> bytes:
    begin = _bytes(1, name)
    if isinstance(value, float):
        return begin + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, _FLOAT)
    if isinstance(value, int):
        return begin + _number(3, value) + _number(20, _INT)
    if isinstance(value, np.ndarray):
        return begin + _bytes(5, _tensor(value)) + _number(20, _TENSOR)
    return begin + b"".join(_number(8, int(item)) for item in value) + _number(20, _INTS)


def _value(name: str, dtype: str, shape: Sequence[Optional[int]]) -> bytes:
    dims = (_number(1, size) if size is not None else _bytes(2, "batch") for size in shape)
    dimensions = b"".join(_bytes(1, dim) for dim in dims)
    tensor = _number(1, _TYPES[dtype]) + _bytes(2, dimensions)
    return _bytes(1, name) + _bytes(2, _bytes(1, tensor))


@dataclass
class GraphWriter:
    """A graph that grows node by node."""

    name: str
    _nodes: list[bytes] = field(default_factory=list)
    _weights: dict[str, bytes] = field(default_factory=dict)

    def weight(self, name: str, array: Array) -> str:
        """Adds a tensor that may be trained; the second of a name is the first."""
        self._weights.setdefault(name, _tensor(np.asarray(array, dtype=np.float32), name))
        return name

    def constant(self, array: Any) -> str:
        """Adds a tensor that is never trained."""
        return self.node("Constant", [], value=np.asarray(array))

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Attribute) -> str:
        """Adds a node, and gives the name of its first output."""
        name = f"{op}_{len(self._nodes)}"
        made = [f"{name}_output_{index}" for index in range(outputs)]
        parts = [_bytes(1, given) for given in inputs] + [_bytes(2, output) for output in made]
        parts += [_bytes(3, name), _bytes(4, op)]
        parts += [_bytes(5, _attribute(key, value)) for key, value in attributes.items()]
        self._nodes.append(b"".join(parts))
        return made[0]

    def model(
        self, given: Tuple[str, str, Sequence[Optional[int]]], output: Tuple[str, Sequence[Optional[int]]]
    ) -> bytes:
        """The whole file, of one input (its name, type and shape) and one output (its name and shape)."""
        graph = b"".join(_bytes(1, node) for node in self._nodes) + _bytes(2, self.name)
        graph += b"".join(_bytes(5, weight) for weight in self._weights.values())
        graph += _bytes(11, _value(*given)) + _bytes(12, _value(output[0], "float32", output[1]))
        opset = _bytes(1, "") + _number(2, _OPSET)
        return _number(1, _IR_VERSION) + _bytes(2, "phalanx") + _bytes(7, graph) + _bytes(8, opset)
