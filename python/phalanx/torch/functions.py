"""Parameters and states of optimizers between ranks."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Tuple, Union

import torch

from .. import _ops
from .._objects import broadcast_object
from .._ops import ProcessSet, global_process_set
from ..errors import OperandError
from .collectives import broadcast_async_

__all__ = ["broadcast_optimizer_state", "broadcast_parameters"]

Parameters = Union[Mapping[str, Any], Iterable[Tuple[str, Any]]]


def broadcast_parameters(
    params: Parameters, root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Gives all ranks the parameters of one: ``model.state_dict()`` or ``model.named_parameters()``."""
    items = params.items() if isinstance(params, Mapping) else params
    if isinstance(items, torch.Tensor) or isinstance(items, torch.nn.Module):
        raise OperandError("`params` must be named tensors", "say `model.state_dict()`")
    handles = []
    for item in items:
        if not (isinstance(item, tuple) and len(item) == 2):
            raise OperandError("`params` must be named tensors", "say `model.named_parameters()`")
        name, tensor = item
        if tensor is None:
            continue
        if not isinstance(tensor, torch.Tensor):
            raise OperandError(f"the parameter {name!r} is not a tensor but {type(tensor).__name__}")
        handles.append(broadcast_async_(tensor, root_rank, f"broadcast.{name}", process_set))
    for handle in handles:
        handle.wait()


class _Place:
    """Stands for a tensor in a structure that is pickled."""

    def __init__(self, number: int, tensor: torch.Tensor) -> None:
        self.number = number
        self.shape = tuple(tensor.shape)
        self.dtype = str(tensor.dtype).rpartition(".")[2]


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Place(len(tensors) - 1, value)
    if isinstance(value, dict):
        return {key: _without_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without_tensors(item, tensors) for item in value)
    return value


def _places(value: Any) -> list[_Place]:
    if isinstance(value, _Place):
        return [value]
    if isinstance(value, dict):
        return [place for item in value.values() for place in _places(item)]
    if isinstance(value, (list, tuple)):
        return [place for item in value for place in _places(item)]
    return []


def _with_tensors(value: Any, tensors: Mapping[int, torch.Tensor]) -> Any:
    if isinstance(value, _Place):
        return tensors[value.number]
    if isinstance(value, dict):
        return {key: _with_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_with_tensors(item, tensors) for item in value)
    return value


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: Optional[torch.nn.Module] = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives all ranks the state of one rank's optimizer: its settings and what it keeps of parameters."""
    held: list[torch.Tensor] = []
    is_root = _ops.rank() == root_rank
    state = _without_tensors(optimizer.state_dict(), held) if is_root else None
    state = broadcast_object(state, root_rank, "optimizer_state", process_set)
    tensors: dict[int, torch.Tensor] = {}
    for place in _places(state):
        own = held[place.number].detach() if is_root else torch.empty(place.shape, dtype=getattr(torch, place.dtype))
        tensors[place.number] = own
    handles = [
        broadcast_async_(tensor, root_rank, f"optimizer_state.{number}", process_set)
        for number, tensor in tensors.items()
    ]
    for handle in handles:
        handle.wait()
    if not is_root:
        optimizer.load_state_dict(_with_tensors(state, tensors))
