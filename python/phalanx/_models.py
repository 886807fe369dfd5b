"""Models of any kind as what the library reads."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, Optional, Union

from . import _phalanx
from ._arrays import Array
from .errors import InputError


@dataclass(frozen=True)
class ModelSource:
    """A model as the library reads it."""

    data: Union[bytes, str]
    name: str
    framework: Optional[str] = None
    """``torch`` or ``keras``, if it is a model of one."""
    constants: set[str] = field(default_factory=set)
    """Names of tensors that must not be trained."""


def is_torch_module(model: Any) -> bool:
    """Whether it is a torch module; torch is not imported to find out."""
    return any(kind.__module__.startswith("torch.") and kind.__name__ == "Module" for kind in type(model).__mro__)


def is_keras_model(model: Any) -> bool:
    """Whether it is a Keras model; Keras is not imported to find out."""
    return any("keras" in kind.__module__ and kind.__name__ == "Model" for kind in type(model).__mro__)


def framework_of(model: Any) -> Optional[str]:
    """The framework whose model it is, if any."""
    return "torch" if is_torch_module(model) else "keras" if is_keras_model(model) else None


def give_weights(model: Any, native: _phalanx.Model, steps: int) -> None:
    """Puts trained weights into a model of a framework; other models stay as they are."""
    framework = framework_of(model)
    if framework == "torch":
        from . import _torch

        _torch.load(model, native.state_dict(), steps)
    elif framework == "keras":
        from . import _keras

        _keras.load(model, native.state_dict())


def source(model: Any, example: Optional[Array], *, loss: Optional[str] = None) -> ModelSource:
    """The model; a model of a framework is exported with samples such as ``example``, to learn with this loss."""
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        return ModelSource(path, os.path.splitext(os.path.basename(path))[0])
    if isinstance(model, (bytes, bytearray)):
        return ModelSource(bytes(model), "model")
    if is_torch_module(model):
        from . import _torch

        if example is None:
            raise InputError("a torch module needs samples to be exported with", "say `example=x[:2]`")
        constants = _torch.constants(model)
        found = ModelSource(_torch.export(model, example), type(model).__name__, "torch", constants)
        try:
            names = _phalanx.tensor_names(found)
        except InputError:
            # Once more with the lines of the module's source, so that the error names them.
            _phalanx.tensor_names(replace(found, data=_torch.export(model, example, lines=True)))
            raise
        _torch.check_names(model, *names)
        return found
    if is_keras_model(model):
        from . import _keras

        if example is None:
            raise InputError("a Keras model needs samples to be exported with", "say `example=x[:2]`")
        exported = _keras.export(model, example, logits=loss == "cross_entropy")
        return ModelSource(exported.data, str(model.name), "keras", exported.constants)
    if hasattr(model, "SerializeToString"):
        name = getattr(getattr(model, "graph", None), "name", "") or "model"
        return ModelSource(bytes(model.SerializeToString()), str(name))
    raise InputError(
        f"a model cannot be {type(model).__name__}", "give a torch module, a Keras model, an ONNX model, or the path of an ONNX file"
    )
