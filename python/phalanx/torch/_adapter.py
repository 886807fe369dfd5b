"""Tensors of torch for the collectives."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

import numpy as np
import torch

from .._collectives import Collectives
from .._phalanx import OpsOutput
from ..errors import OperandError

__all__ = ["collectives"]

_NAMES: dict[torch.dtype, str] = {}


def _name(dtype: torch.dtype) -> str:
    name = _NAMES.get(dtype)
    if name is None:
        name = _NAMES[dtype] = str(dtype).rpartition(".")[2]
    return name


class _TorchAdapter:
    def host(self, tensor: Any) -> Tuple[Any, bool]:
        if not isinstance(tensor, torch.Tensor):
            raise OperandError(f"expected a torch tensor, not {type(tensor).__name__}", "use `phalanx.numpy` for arrays")
        if tensor.layout != torch.strided:
            raise OperandError("the tensor is sparse", "use `sparse_allreduce_async`, or `to_dense()`")
        own = tensor.detach()
        if own.device.type != "cpu":
            pinned = torch.empty(own.shape, dtype=own.dtype, pin_memory=True)
            return pinned.copy_(own), True
        if own.is_contiguous() and not own.is_conj() and not own.is_neg():
            return own, False
        return own.clone(memory_format=torch.contiguous_format).resolve_neg(), True

    def empty_like(self, host: Any) -> Any:
        return torch.empty_like(host)

    def address(self, host: Any) -> int:
        return int(host.data_ptr())

    def describe(self, host: Any) -> Tuple[str, Sequence[int]]:
        return _name(host.dtype), host.shape

    def from_output(self, output: OpsOutput, given: Any) -> Any:
        array = np.asarray(output)
        if given.dtype == torch.bfloat16:
            made = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            made = torch.from_numpy(array)
        return made.to(given.device)

    def give(self, host: Any, given: Any) -> Any:
        return host if given.device.type == "cpu" else host.to(given.device)

    def assign(self, target: Any, host: Any) -> None:
        target.detach().copy_(host)

    def writable(self, tensor: Any) -> bool:
        # Elements of an expanded tensor share memory.
        return not isinstance(tensor, torch.Tensor) or 0 not in tensor.stride() or tensor.numel() == 0


collectives = Collectives(_TorchAdapter())
