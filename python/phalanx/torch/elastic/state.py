"""Models, optimizers and samplers as a state that survives a change of ranks."""

from __future__ import annotations

import copy
from typing import Any, Optional, Protocol

import torch

from ..._elastic import ObjectState
from ..._objects import allgather_object, broadcast_object
from ..functions import broadcast_optimizer_state, broadcast_parameters
from .sampler import ElasticSampler

__all__ = ["TorchState"]


class _Part(Protocol):
    value: Any

    def save(self) -> None: ...

    def restore(self) -> None: ...

    def sync(self) -> None: ...


class _ModelPart:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        self.saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(self.saved)

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class _OptimizerPart(_ModelPart):
    def restore(self) -> None:
        exchange = getattr(self.value, "_exchange", None)
        if exchange is not None:
            exchange.start_over()
            self.value._synchronized = False
        self.value.load_state_dict(copy.deepcopy(self.saved))

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class _SamplerPart(_ModelPart):
    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self.saved))

    def sync(self) -> None:
        state = broadcast_object(self.value.state_dict(), 0, "elastic_sampler")
        own = allgather_object(self.value.own_indices, "elastic_sampler.own")
        # What single ranks have noted is read, by whichever rank is left.
        state["processed_indices"] |= set().union(*own)
        state["own_indices"] = set()
        self.value.load_state_dict(state)
        self.save()


def _part(value: Any) -> Optional[_Part]:
    if isinstance(value, torch.nn.Module):
        return _ModelPart(value)
    if isinstance(value, torch.optim.Optimizer):
        return _OptimizerPart(value)
    if isinstance(value, ElasticSampler):
        return _SamplerPart(value)
    return None


class TorchState(ObjectState):
    """A model, an optimizer, samplers and any other objects, which are its attributes.

    ``TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)``
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        given = {"model": model, "optimizer": optimizer, **kwargs}
        self._parts: dict[str, _Part] = {}
        objects: dict[str, Any] = {}
        for name, value in given.items():
            part = _part(value)
            if part is not None:
                self._parts[name] = part
            elif value is not None or name in kwargs:
                objects[name] = value
        super().__init__(**objects)

    def __setattr__(self, name: str, value: Any) -> None:
        parts = self.__dict__.get("_parts", {})
        if name in parts:
            parts[name] = _part(value)
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        part = self.__dict__.get("_parts", {}).get(name)
        if part is None:
            raise AttributeError(f"the state has no {name!r}")
        return part.value

    def save(self) -> None:
        for part in self._parts.values():
            part.save()
        super().save()

    def restore(self) -> None:
        for part in self._parts.values():
            part.restore()
        super().restore()

    def sync(self) -> None:
        for part in self._parts.values():
            part.sync()
        super().sync()

    def reset(self) -> None:
        for part in self._parts.values():
            if isinstance(part, _SamplerPart):
                part.value.reset()
