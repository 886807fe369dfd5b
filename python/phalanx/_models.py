"""Models of any kind as what the library reads."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from . import _phalanx
from ._arrays import Array
from .errors import InputError


@dataclass(frozen=True)
class ModelSource:
    """A model as the library reads it."""

    data: Union[bytes, str]
    name: str
    is_torch: bool = False
    constants: set[str] = field(default_factory=set)
    """Names of tensors that must not be trained."""


def is_torch_module(model: Any) -> bool:
    """Whether it is a torch module; torch is not imported to find out."""
    return any(kind.__module__.startswith("torch.") and kind.__name__ == "Module" for kind in type(model).__mro__)


def source(model: Any, example: Optional[Array]) -> ModelSource:
    """The model; a torch module is exported with samples such as ``example``."""
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        return ModelSource(path, os.path.splitext(os.path.basename(path))[0])
    if isinstance(model, (bytes, bytearray)):
        return ModelSource(bytes(model), "model")
    if is_torch_module(model):
        from . import _torch

        if example is None:
            raise InputError("a torch module needs samples to be exported with", "say `example=x[:2]`")
        found = ModelSource(_torch.export(model, example), type(model).__name__, True, _torch.constants(model))
        _torch.check_names(model, *_phalanx.tensor_names(found))
        return found
    if hasattr(model, "SerializeToString"):
        name = getattr(getattr(model, "graph", None), "name", "") or "model"
        return ModelSource(bytes(model.SerializeToString()), str(name))
    raise InputError(
        f"a model cannot be {type(model).__name__}", "give a torch module, an ONNX model, or the path of an ONNX file"
    )
