"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .._ops import ProcessSet, Sum, global_process_set
from .collectives import allreduce

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """As ``torch.nn.BatchNorm1d`` to ``3d``, with mean and variance over the batches of all ranks.

    Batches may have different sizes.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **kwargs)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, not {input.dim()}")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalises a batch."""
        self._check_input_dim(input)
        alone = not self.training or self.process_set.size() == 1
        if alone and (input.size(0) > 0):
            return super().forward(input)
        axes = [0, *range(2, input.dim())]
        count = input.numel() // input.size(1) if input.size(1) else 0
        wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        told = torch.cat([wide.sum(axes), (wide * wide).sum(axes), wide.new_full([1], float(count))])
        told = allreduce(told, op=Sum, process_set=self.process_set)
        total = told[-1].detach()
        mean = told[: self.num_features] / total
        variance = told[self.num_features : -1] / total - mean * mean
        self._track(mean.detach(), variance.detach(), total)
        shape = [1, -1, *[1] * (input.dim() - 2)]
        scale = torch.rsqrt(variance.clamp_min(0) + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        shift = -mean * scale
        if self.bias is not None:
            shift = shift + self.bias
        return (wide * scale.view(shape) + shift.view(shape)).to(input.dtype)

    def _track(self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:
            share = 1.0 / float(self.num_batches_tracked) if self.num_batches_tracked is not None else 0.0
        unbiased = variance * (count / (count - 1).clamp_min(1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)
