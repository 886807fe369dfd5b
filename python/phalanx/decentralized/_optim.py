"""Optimizers and schedulers of torch as what the library has."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import torch

from ..errors import ConfigError

_NAMES = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw", "RMSprop": "rmsprop", "Adagrad": "adagrad"}
_SETTINGS = {
    "sgd": ("lr", "momentum", "dampening", "nesterov", "weight_decay"),
    "adam": ("lr", "betas", "eps", "weight_decay", "amsgrad"),
    "adamw": ("lr", "betas", "eps", "weight_decay", "amsgrad"),
    "rmsprop": ("lr", "alpha", "eps", "momentum", "centered", "weight_decay"),
    "adagrad": ("lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value"),
}
# They say how torch computes, and change no result.
_HOW = ("foreach", "fused", "capturable", "differentiable")


def optimizer_settings(optimizer: Any, params: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """A class of ``torch.optim`` and its parameters as an optimizer of the library, with every setting said.

    >>> optimizer_settings(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})["momentum"]
    0.9
    """
    known = ", ".join(_NAMES)
    name = getattr(optimizer, "__name__", repr(optimizer))
    if name not in _NAMES or optimizer is not getattr(torch.optim, name):
        raise ConfigError(f"the optimizer {name} cannot be used", f"these classes of torch.optim can: {known}")
    ours, given = _NAMES[name], dict(params or {})
    # Making an optimizer would load a good part of torch, for seconds.
    usual = {key: of.default for key, of in inspect.signature(optimizer).parameters.items()}
    for key, value in given.items():
        if key not in _SETTINGS[ours] and key not in _HOW and value != usual.get(key, inspect.Parameter.empty):
            raise ConfigError(
                f"the parameter `{key}` of torch.optim.{name} cannot be {value!r}",
                f"these can be set: {', '.join(_SETTINGS[ours])}",
            )
    told = {key: _plain(given.get(key, usual.get(key))) for key in _SETTINGS[ours]}
    return {"name": ours, **{key: value for key, value in told.items() if value is not None}}


def _make(optimizer: Callable[..., torch.optim.Optimizer], params: Optional[Mapping[str, Any]]) -> torch.optim.Optimizer:
    return optimizer([torch.nn.Parameter(torch.zeros(1))], **dict(params or {}))


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, torch.Tensor):
        return float(value)
    return value


def learning_rates(
    optimizer: Any,
    params: Optional[Mapping[str, Any]],
    scheduler: Any,
    scheduler_params: Optional[Mapping[str, Any]],
    steps: Tuple[int, int],
    on_epoch: bool,
) -> Optional[Dict[str, Any]]:
    """The learning rates of a run of ``steps``: those of a pass, and passes. They are what the scheduler, a class of
    ``torch.optim.lr_scheduler``, makes of an optimizer without a model. None without a scheduler.
    """
    if scheduler is None:
        return None
    if getattr(scheduler, "__name__", "") == "ReduceLROnPlateau":
        raise ConfigError("ReduceLROnPlateau cannot be used: it needs losses that are not known beforehand")
    idle = _make(optimizer, params)
    try:
        schedule = scheduler(idle, **dict(scheduler_params or {}))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the scheduler refuses its parameters: {error}") from error
    of_pass, passes = steps
    begins: list[int] = []
    rates: list[float] = []
    for step in range(of_pass * passes):
        rate = float(idle.param_groups[0]["lr"])
        if not rates or rates[-1] != rate:
            begins.append(step)
            rates.append(rate)
        # Without this a scheduler warns that its optimizer has not stepped.
        idle.step()
        if not on_epoch or (step + 1) % of_pass == 0:
            schedule.step()
    return {"name": "table", "steps": begins, "rates": rates}
