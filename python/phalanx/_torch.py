"""Torch modules: out as ONNX, back with their weights trained."""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import os
import pathlib
import re
import tempfile
import warnings
from typing import Any, Callable, Iterator, Optional, Tuple

import numpy as np
import torch

from ._arrays import Array, from_memory
from .errors import InputError, ModelError

_log = logging.getLogger("phalanx.torch")


def export(module: torch.nn.Module, example: Array, lines: bool = False) -> bytes:
    """The module as an ONNX model that can be trained, with its weights. The module stays as it is.

    With ``lines`` every operator has the lines of the source that it comes from.
    """
    # A copy on the CPU: tracing in training mode counts batches and moves running means.
    own = copy.deepcopy(module).cpu().float().train()
    # Two samples, where that is possible: BatchNorm has no statistics of one.
    given = torch.from_numpy(np.resize(example, (2, *example.shape[1:])))
    given = given.float() if given.dtype.is_floating_point else given.long()
    try:
        return _export(own, given, lines)
    except ModelError:
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        place = _place_of(own, given, reason)
        if place is not None:
            raise ModelError(
                f"{type(module).__name__} could not be exported: {reason} ({place})",
                "rewrite this line with other operators",
            ) from error
        raise ModelError(
            f"{type(module).__name__} could not be exported: {reason}",
            "`torch.onnx.export` must be able to trace it with one tensor as its input",
        ) from error


def _place_of(module: torch.nn.Module, example: torch.Tensor, reason: str) -> Optional[str]:
    """Where the module first uses the operator that an error of the exporter names: its line, and its module."""
    named = re.search(r"\b(?:aten|prim|torchvision)::\w+", reason)
    if named is None:
        return None
    trace: Any = torch.jit.trace
    try:
        with _quiet(), torch.random.fork_rng(devices=[]), torch.no_grad():
            nodes = list(trace(module, (example,), check_trace=False).inlined_graph.nodes())
    except Exception as error:
        # The error of the exporter is told, without its place.
        _log.debug("could not find the place of %s: %s", named.group(), error)
        return None
    for node in nodes:
        if node.kind() == named.group():
            path = node.scopeName().rpartition("__module.")[2]
            within = f" in `{path}`" if path else ""
            line = _own_line(node.sourceRange())
            return f"{line}{within}" if line else None
    return None


def _own_line(frames: str) -> Optional[str]:
    """The innermost of frames such as ``model.py(12): forward`` that is not one of torch itself."""
    torch_itself = os.path.dirname(torch.__file__) + os.sep
    found = re.findall(r"^(.+)\((\d+)\): ", frames, flags=re.MULTILINE)
    own = [frame for frame in found if not frame[0].startswith(torch_itself)]
    return ":".join((own or found)[0]) if found else None


def _export(module: torch.nn.Module, example: torch.Tensor, lines: bool) -> bytes:
    options: dict[str, Any] = {
        "training": torch.onnx.TrainingMode.TRAINING,
        "do_constant_folding": False,
        "input_names": ["x"],
        "dynamic_axes": {"x": {0: "batch"}},
        "opset_version": 17,
        "verbose": lines,
    }
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        # The exporter that traces keeps the operators of training, and needs no other package.
        options["dynamo"] = False
    with tempfile.TemporaryDirectory(prefix="phalanx-") as folder:
        path = pathlib.Path(folder, "model.onnx")
        with _quiet(), torch.random.fork_rng(devices=[]):
            torch.onnx.export(module, (example,), path, **options)
        return path.read_bytes()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns about itself and about every module that is in training mode, which is what is wanted.

    And it prints whole graphs on the standard output when it is verbose or fails.
    """
    native: Any = torch._C
    switch = getattr(native, "_jit_set_onnx_log_enabled", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if switch is None:
            yield
            return
        switch(False)
        # The exporter would switch it on again.
        native._jit_set_onnx_log_enabled = lambda _: None
        try:
            yield
        finally:
            native._jit_set_onnx_log_enabled = switch


def constants(module: torch.nn.Module) -> set[str]:
    """Names of tensors that must not be trained: frozen parameters, and buffers but for statistics of norms."""
    frozen = {name for name, value in module.named_parameters(remove_duplicate=False) if not value.requires_grad}
    buffers = {name for name, _ in module.named_buffers(remove_duplicate=False)}
    statistics = {f"{prefix}.{own}" if prefix else own for prefix, norm in _norms(module) for own in norm._buffers}
    return frozen | (buffers - statistics)


def _norms(module: torch.nn.Module) -> Iterator[Tuple[str, torch.nn.Module]]:
    kind = torch.nn.modules.batchnorm._NormBase
    return ((name, part) for name, part in module.named_modules() if isinstance(part, kind))


def check_names(module: torch.nn.Module, parameters: list[str], names: list[str]) -> None:
    """Makes sure that what is trained can go back, before anything is trained."""
    own = module.named_parameters(remove_duplicate=False)
    trainable = {name for name, value in own if value.requires_grad}
    unknown = sorted(set(parameters) - trainable)
    if unknown:
        raise ModelError(
            f"the export has a parameter `{unknown[0]}` that {type(module).__name__} does not train",
            "the module must not make or copy parameters when it is called",
        )
    unreached = sorted(trainable - set(names))
    if unreached:
        _log.debug("outputs do not depend on %s", ", ".join(unreached))


def load(module: torch.nn.Module, state: list[Tuple[str, str, list[int], bytearray]], steps: int) -> None:
    """Puts trained weights into the module, on the device and with the type that each has there."""
    put_weights(module.state_dict(), state, steps, type(module).__name__)


def put_weights(
    mine: dict[str, torch.Tensor], state: list[Tuple[str, str, list[int], bytearray]], steps: int, name_of_model: str
) -> None:
    """Puts trained weights into the tensors of a ``state_dict``."""
    trained = {name: from_memory(memory, shape, dtype) for name, dtype, shape, memory in state}
    unknown = sorted(set(trained) - set(mine))
    if unknown:
        raise ModelError(f"{name_of_model} has no `{unknown[0]}`", "give the module that was trained")
    with torch.no_grad():
        for name, value in mine.items():
            if name in trained:
                found = torch.from_numpy(trained[name].copy())
                if found.shape != value.shape:
                    shape = tuple(found.shape)
                    raise ModelError(f"`{name}` has the shape {tuple(value.shape)}, and was trained as {shape}")
                value.copy_(found)
            elif name.endswith("num_batches_tracked"):
                value.add_(steps)


def loss_function(function: Callable[..., Any], label_dtype: Any) -> Callable[..., Tuple[float, Array]]:
    """A loss over torch tensors, whose gradient autograd gives."""

    def evaluate(
        output: bytearray, output_shape: list[int], target: bytearray, target_shape: list[int]
    ) -> Tuple[float, Array]:
        outputs = torch.from_numpy(from_memory(output, output_shape)).requires_grad_()
        labels = torch.from_numpy(from_memory(target, target_shape).astype(label_dtype))
        with torch.enable_grad():
            loss = function(outputs, labels)
            if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
                raise InputError("a loss over torch tensors must give a tensor with one element")
            if not loss.requires_grad:
                raise InputError("the loss does not depend on the outputs in a way that autograd can follow")
            (gradient,) = torch.autograd.grad(loss.reshape(()), outputs)
        found = gradient.detach().cpu().float().contiguous().numpy()
        return float(loss.detach()), np.ascontiguousarray(found)

    return evaluate
