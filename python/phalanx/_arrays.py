"""Arrays of any library as NumPy arrays that Phalanx reads without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Optional, Tuple

import numpy as np
import numpy.typing as npt

from .errors import InputError

Array = npt.NDArray[Any]

_CHUNK = 256
# The device number of plain memory.
_DLPACK_CPU = 1
_USED = "floats, integers and booleans of up to 64 bits can be used"


@dataclass(frozen=True)
class Samples:
    """Samples and their labels, and how a loader would have read them."""

    x: Array
    y: Optional[Array]
    batch: Optional[int] = None
    shuffle: Optional[bool] = None
    drop_last: Optional[bool] = None


def as_array(value: Any, name: str) -> Array:
    """The value as an array in one piece; shares its memory where that is possible."""
    if isinstance(value, np.ma.MaskedArray) and bool(np.any(value.mask)):
        raise InputError(f"`{name}` has masked elements", "fill them, or leave their samples out")
    try:
        array = view(value)
    except InputError:
        raise
    except Exception as error:
        # Code of the object itself may raise anything.
        raise InputError(f"`{name}` cannot be made an array: {error}") from error
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise InputError(f"`{name}` has elements of type {array.dtype}", _USED)
    if array.ndim == 0:
        raise InputError(f"`{name}` is a single number: the first axis of an array counts samples")
    try:
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        return np.ascontiguousarray(array)
    except MemoryError as error:
        raise InputError(f"`{name}` has {array.size} elements, for which there is no memory") from error


def view(value: Any) -> Array:
    """The value as a NumPy array over the same memory, if it is on the CPU and tells its size; else as a copy.

    Arrays of other libraries come by DLPack, by the buffer protocol, or as the array that they make themselves. An
    object that tells only an address is refused: nothing would hold it to the truth.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if isinstance(value, (list, tuple)):
        return np.asarray(_elements(value))
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        tensor = value.detach().cpu()
        array: Array = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
        return array
    shared = _from_dlpack(value)
    if shared is not None:
        return shared
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        pass
    return _of_protocols(value)


def _elements(values: Any) -> list[Any]:
    """Nested lists whose elements are numbers or NumPy arrays."""
    plain = (int, float, complex, str, bytes, np.ndarray, np.generic)
    return [
        item if isinstance(item, plain) else _elements(item) if isinstance(item, (list, tuple)) else view(item)
        for item in values
    ]


def _from_dlpack(value: Any) -> Optional[Array]:
    """An array over the memory of a tensor on the CPU; none if NumPy cannot have it that way."""
    kind = type(value)
    if not (hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__")):
        return None
    try:
        if int(value.__dlpack_device__()[0]) != _DLPACK_CPU:
            return None
        return np.asarray(np.from_dlpack(value))
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        # Types of elements that NumPy lacks; memory that must not be written, for older versions of NumPy.
        return None


def _of_protocols(value: Any) -> Array:
    if hasattr(value, "__array__"):
        made = value.__array__()
        if not isinstance(made, np.ndarray):
            raise TypeError(f"__array__ of {type(value).__name__} gives {type(made).__name__}")
        return np.asarray(made)
    interface: Any = getattr(value, "__array_interface__", None)
    if interface is None and not hasattr(value, "__array_struct__"):
        return np.asarray(value)
    memory = interface.get("data") if isinstance(interface, dict) else None
    if memory is None or isinstance(memory, tuple):
        raise InputError(f"{type(value).__name__} tells only the address of its memory", "say `numpy.asarray(x)`")
    dtype = np.dtype(interface["typestr"])
    if dtype.hasobject:
        raise TypeError(f"{type(value).__name__} tells bytes to be objects")
    # The memory is an object that knows its size, which NumPy checks.
    return np.ndarray(
        interface["shape"],
        dtype,
        memory,
        interface.get("offset", 0),
        interface.get("strides"),
    )


def read(data: Any, name: str) -> Samples:
    """Samples from two arrays, a dataset or a loader. Datasets and loaders are read once, into memory."""
    is_pair = isinstance(data, tuple) or (isinstance(data, list) and not any(isinstance(of, tuple) for of in data))
    if is_pair and len(data) == 2:
        return _samples(data[0], data[1], name)
    if hasattr(data, "dataset") and hasattr(data, "collate_fn"):
        return _of_loader(data, name)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "dtype"):
        return _of_dataset(data, name)
    raise InputError(
        f"`{name}` must be two arrays, a dataset or a loader, not {type(data).__name__}", f"say `{name}=(x, y)`"
    )


def _samples(x: Any, y: Any, name: str) -> Samples:
    samples = as_array(x, f"{name}[0]")
    labels = None if y is None else as_array(y, f"{name}[1]")
    if len(samples) == 0:
        raise InputError(f"`{name}` has no samples")
    if labels is not None and len(labels) != len(samples):
        raise InputError(f"`{name}` has {len(samples)} samples and {len(labels)} labels")
    return Samples(samples, labels)


def _of_dataset(dataset: Any, name: str) -> Samples:
    tensors = getattr(dataset, "tensors", None)
    if isinstance(tensors, (tuple, list)) and len(tensors) == 2:
        return _samples(tensors[0], tensors[1], name)
    return _joined((_stacked(chunk, name) for chunk in _chunks(dataset)), name)


def _chunks(dataset: Any) -> Iterator[list[Any]]:
    for begin in range(0, len(dataset), _CHUNK):
        yield [dataset[i] for i in range(begin, min(begin + _CHUNK, len(dataset)))]


def _stacked(items: list[Any], name: str) -> Tuple[Array, Array]:
    try:
        pairs = [(view(x), view(y)) for x, y in items]
        return np.stack([x for x, _ in pairs]), np.stack([y for _, y in pairs])
    except (TypeError, ValueError) as error:
        raise InputError(f"the items of `{name}` are not pairs of a sample and a label: {error}") from error


def _of_loader(loader: Any, name: str) -> Samples:
    dataset = loader.dataset
    sampler = type(getattr(loader, "sampler", None)).__name__
    # Any other sampler may choose among the samples, which is for the loader itself to do.
    whole = sampler in ("SequentialSampler", "RandomSampler") and loader.batch_size is not None
    batches = (loader.collate_fn(chunk) for chunk in _chunks(dataset)) if whole else iter(loader)
    samples = _joined((_pair(batch, name) for batch in batches), name)
    return Samples(
        samples.x,
        samples.y,
        batch=getattr(loader, "batch_size", None),
        shuffle=sampler != "SequentialSampler",
        drop_last=bool(getattr(loader, "drop_last", False)),
    )


def _pair(batch: Any, name: str) -> Tuple[Array, Array]:
    if not (isinstance(batch, (tuple, list)) and len(batch) == 2):
        raise InputError(f"the batches of `{name}` are not pairs of samples and labels")
    return view(batch[0]), view(batch[1])


def _joined(parts: Iterable[Tuple[Array, Array]], name: str) -> Samples:
    all_parts = list(parts)
    if not all_parts:
        raise InputError(f"`{name}` has no samples")
    return _samples(np.concatenate([x for x, _ in all_parts]), np.concatenate([y for _, y in all_parts]), name)


# Losses that compare numbers with numbers.
_OF_NUMBERS = ("mse", "l1", "huber", "bce", "bce_with_logits")


def labels_for(y: Optional[Array], loss: Optional[str]) -> Optional[Array]:
    """Labels as a named loss takes them: integers are numbers for losses that compare numbers."""
    if y is None or loss not in _OF_NUMBERS or y.dtype.kind not in "iub":
        return y
    return y.astype(np.float32)


def from_memory(memory: bytearray, shape: list[int], dtype: str = "float32") -> Array:
    """Numbers that the library gave, as an array that owns them."""
    return np.frombuffer(memory, dtype=dtype).reshape(shape)
