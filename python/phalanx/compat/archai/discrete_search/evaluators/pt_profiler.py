"""Evaluators of torch modules: parameters, operations, latency."""

from __future__ import annotations

import statistics
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from phalanx.errors import InputError

from ..api.archai_model import ArchaiModel
from ..api.model_evaluator import ModelEvaluator

__all__ = ["TorchFlops", "TorchLatency", "TorchMacs", "TorchNumParameters"]


class TorchNumParameters(ModelEvaluator):
    """How many parameters a module has, without those of modules of the classes that are excluded."""

    def __init__(self, exclude_cls: Optional[Sequence[Any]] = None, trainable_only: bool = True) -> None:
        self.exclude_cls: Tuple[Any, ...] = tuple(exclude_cls or ())
        self.trainable_only = trainable_only

    def evaluate(self, model: ArchaiModel, budget: Optional[float] = None) -> float:
        excluded = {
            id(parameter)
            for module in model.arch.modules()
            if isinstance(module, self.exclude_cls)
            for parameter in module.parameters()
        }
        counted = (
            parameter.numel()
            for parameter in model.arch.parameters()
            if id(parameter) not in excluded and (parameter.requires_grad or not self.trainable_only)
        )
        return float(sum(counted))


class _Called(ModelEvaluator):
    """Calls a module with given arguments."""

    def __init__(
        self,
        forward_args: Any = None,
        forward_kwargs: Optional[Dict[str, Any]] = None,
        ignore_layers: Optional[List[str]] = None,
    ) -> None:
        if forward_args is None and not forward_kwargs:
            raise InputError("there is nothing to call the module with", "say `forward_args=torch.randn(1, 4)`")
        self.forward_args: Tuple[Any, ...] = ()
        if isinstance(forward_args, (list, tuple)):
            self.forward_args = tuple(forward_args)
        elif forward_args is not None:
            self.forward_args = (forward_args,)
        self.forward_kwargs = dict(forward_kwargs or {})
        self.ignore_layers = list(ignore_layers or [])


class TorchFlops(_Called):
    """The floating point operations of one call: two for every multiplication and addition of convolutions and matrix
    products. What modules of the class names in ``ignore_layers`` do does not count."""

    def evaluate(self, model: ArchaiModel, budget: Optional[float] = None) -> float:
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        counter = FlopCounterMode(display=False)
        was_training = model.arch.training
        model.arch.eval()
        try:
            with torch.no_grad(), counter:
                model.arch(*self.forward_args, **self.forward_kwargs)
        finally:
            model.arch.train(was_training)
        counts = counter.get_flop_counts()
        # The counter puts the class of the whole module before the names in it.
        whole = type(model.arch).__name__
        ignored: List[str] = []
        for name, module in model.arch.named_modules():
            is_inside = any(not outer or name.startswith(outer + ".") for outer in ignored)
            if type(module).__name__ in self.ignore_layers and not is_inside:
                ignored.append(name)
        paths = [f"{whole}.{name}" if name else whole for name in ignored]
        left_out = sum(sum(counts.get(path, {}).values()) for path in paths)
        return float(counter.get_total_flops() - left_out)


class TorchMacs(TorchFlops):
    """The multiplications with an addition of one call."""

    def evaluate(self, model: ArchaiModel, budget: Optional[float] = None) -> float:
        return super().evaluate(model, budget) / 2


class TorchLatency(_Called):
    """How long one call takes, in seconds."""

    def __init__(
        self,
        forward_args: Any = None,
        forward_kwargs: Optional[Dict[str, Any]] = None,
        num_warmups: int = 1,
        num_samples: int = 1,
        use_cuda: bool = False,
        use_median: bool = False,
        ignore_layers: Optional[List[str]] = None,
    ) -> None:
        super().__init__(forward_args, forward_kwargs, ignore_layers)
        if self.ignore_layers:
            raise InputError("`ignore_layers` cannot be left out of a time", "measure a module without them")
        if num_samples < 1:
            raise InputError("`num_samples` must be at least 1")
        self.num_warmups, self.num_samples = num_warmups, num_samples
        self.use_cuda, self.use_median = use_cuda, use_median

    def evaluate(self, model: ArchaiModel, budget: Optional[float] = None) -> float:
        import torch

        device = torch.device("cuda" if self.use_cuda else "cpu")
        args = [_to(each, device) for each in self.forward_args]
        kwargs = {name: _to(each, device) for name, each in self.forward_kwargs.items()}
        module, was_training = model.arch.to(device), model.arch.training
        module.eval()
        seconds = []
        try:
            with torch.no_grad():
                for _ in range(self.num_warmups + self.num_samples):
                    since = time.perf_counter()
                    module(*args, **kwargs)
                    if self.use_cuda:
                        torch.cuda.synchronize()
                    seconds.append(time.perf_counter() - since)
        finally:
            module.train(was_training)
        return average(seconds[self.num_warmups :], self.use_median)


def _to(value: Any, device: Any) -> Any:
    return value.to(device) if hasattr(value, "to") else value


def average(values: Sequence[Union[int, float]], use_median: bool = False) -> float:
    """The mean or the median."""
    return float(statistics.median(values) if use_median else statistics.fmean(values))
