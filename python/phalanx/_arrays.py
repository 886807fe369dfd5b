"""Arrays of any library as NumPy arrays that Phalanx reads without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Optional, Tuple

import numpy as np
import numpy.typing as npt

from .errors import InputError

Array = npt.NDArray[Any]

_CHUNK = 256
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
        array = np.asarray(_from_torch(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"`{name}` cannot be made an array: {error}") from error
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise InputError(f"`{name}` has elements of type {array.dtype}", _USED)
    if array.ndim == 0:
        raise InputError(f"`{name}` is a single number: the first axis of an array counts samples")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array)


def _from_torch(value: Any) -> Any:
    if not (hasattr(value, "detach") and hasattr(value, "cpu")):
        return value
    tensor = value.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


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
        pairs = [(np.asarray(_from_torch(x)), np.asarray(_from_torch(y))) for x, y in items]
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
    return np.asarray(_from_torch(batch[0])), np.asarray(_from_torch(batch[1]))


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
