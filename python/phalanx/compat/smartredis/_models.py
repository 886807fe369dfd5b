"""Models and scripts of a client."""

from __future__ import annotations

import inspect
import os
from typing import Any, Callable, Dict, List, Union

from ._connection import Connected
from .error import translated
from .util import names, typecheck

__all__ = ["Models"]

_BACKENDS = ("TF", "TFLITE", "TORCH", "ONNX")
_Names = Union[None, str, List[str]]
_Words = List[Union[str, bytes, int]]
# The store ends a run that takes longer than this, in milliseconds.
_DEFAULT_TIMEOUT = "60000000"


def _device(device: str) -> str:
    typecheck(device, "device", str)
    if not device.upper().startswith(("CPU", "GPU")):
        raise TypeError("Device argument must start with either CPU or GPU")
    return device.upper()


def _backend(backend: str) -> str:
    typecheck(backend, "backend", str)
    if backend.upper() not in _BACKENDS:
        raise TypeError(f"Backend type {backend.upper()} unsupported")
    return backend.upper()


def _read(file: str) -> bytes:
    typecheck(file, "file", str)
    path = os.path.abspath(file)
    if not os.path.isfile(path):
        raise FileNotFoundError(path)
    with open(path, "rb") as opened:
        return opened.read()


def _source(function: Callable[..., Any]) -> str:
    if not callable(function):
        raise TypeError(f"Argument provided for function, {type(function)}, is not callable")
    return inspect.getsource(function)


def _gpus(name: str, first_gpu: int, num_gpus: int) -> Dict[str, str]:
    """The names under which something is kept for several GPUs, and their devices."""
    typecheck(name, "name", str)
    typecheck(first_gpu, "first_gpu", int)
    typecheck(num_gpus, "num_gpus", int)
    return {f"{name}.GPU:{gpu}": f"GPU:{gpu}" for gpu in range(first_gpu, first_gpu + num_gpus)}


def _gpu_for(name: str, offset: int, first_gpu: int, num_gpus: int) -> str:
    typecheck(offset, "offset", int)
    return list(_gpus(name, first_gpu, num_gpus))[offset % num_gpus]


class Models(Connected):
    """Keeps models and scripts in the store, and has it run them."""

    @translated
    def set_model(
        self,
        name: str,
        model: bytes,
        backend: str,
        device: str = "CPU",
        batch_size: int = 0,
        min_batch_size: int = 0,
        min_batch_timeout: int = 0,
        tag: str = "",
        inputs: _Names = None,
        outputs: _Names = None,
    ) -> None:
        """Stores a model: the bytes of a file of the backend."""
        typecheck(name, "name", str)
        key = self._key("models", name, writes=True)
        words: _Words = ["AI.MODELSTORE", key, _backend(backend), _device(device)]
        sizes = {"BATCHSIZE": batch_size, "MINBATCHSIZE": min_batch_size, "MINBATCHTIMEOUT": min_batch_timeout}
        words += ["TAG", tag] if tag else []
        for word, size in sizes.items():
            typecheck(size, word, int)
            words += [word, size] if size else []
        for word, given in (("INPUTS", names(inputs)), ("OUTPUTS", names(outputs))):
            words += [word, len(given), *given] if given else []
        self._store.command(*words, "BLOB", bytes(model))

    def set_model_from_file(
        self, name: str, model_file: str, backend: str, device: str = "CPU", *more: Any, **named: Any
    ) -> None:
        """Stores the model of a file; more arguments as of ``set_model``."""
        self.set_model(name, _read(model_file), backend, device, *more, **named)

    def set_model_multigpu(
        self, name: str, model: bytes, backend: str, first_gpu: int, num_gpus: int, *more: Any, **named: Any
    ) -> None:
        """Stores a model once for each of several GPUs, and once for any."""
        for key, device in {**_gpus(name, first_gpu, num_gpus), name: "GPU"}.items():
            self.set_model(key, model, backend, device, *more, **named)

    def set_model_from_file_multigpu(
        self, name: str, model_file: str, backend: str, first_gpu: int, num_gpus: int, *more: Any, **named: Any
    ) -> None:
        """Stores the model of a file once for each of several GPUs, and once for any."""
        self.set_model_multigpu(name, _read(model_file), backend, first_gpu, num_gpus, *more, **named)

    @translated
    def get_model(self, name: str) -> bytes:
        """The bytes of a model."""
        typecheck(name, "name", str)
        return bytes(self._store.command("AI.MODELGET", self._key("models", name, writes=False), "BLOB"))

    @translated
    def run_model(self, name: str, inputs: _Names = None, outputs: _Names = None) -> None:
        """Has the store run a model on tensors."""
        typecheck(name, "name", str)
        given, wanted = self._tensors(inputs, outputs)
        timeout = os.environ.get("SR_MODEL_TIMEOUT", _DEFAULT_TIMEOUT)
        key = self._key("models", name, writes=False)
        tensors: _Words = ["INPUTS", len(given), *given, "OUTPUTS", len(wanted), *wanted]
        self._store.command("AI.MODELEXECUTE", key, *tensors, "TIMEOUT", timeout)

    def run_model_multigpu(
        self,
        name: str,
        offset: int,
        first_gpu: int,
        num_gpus: int,
        inputs: _Names = None,
        outputs: _Names = None,
    ) -> None:
        """Has the store run a model on the GPU that a rank uses."""
        self.run_model(_gpu_for(name, offset, first_gpu, num_gpus), inputs, outputs)

    @translated
    def delete_model(self, name: str) -> None:
        """Deletes a model."""
        typecheck(name, "name", str)
        self._store.command("AI.MODELDEL", self._key("models", name, writes=True))

    def delete_model_multigpu(self, name: str, first_gpu: int, num_gpus: int) -> None:
        """Deletes a model that was stored for several GPUs."""
        for key in [*_gpus(name, first_gpu, num_gpus), name]:
            self.delete_model(key)

    @translated
    def model_exists(self, name: str) -> bool:
        """Whether there is a model of this name."""
        typecheck(name, "name", str)
        return self._store.key_exists(self._key("models", name, writes=False))

    @translated
    def set_script(self, name: str, script: str, device: str = "CPU") -> None:
        """Stores the source of a script."""
        typecheck(name, "name", str)
        typecheck(script, "script", str)
        self._store.command(
            "AI.SCRIPTSET", self._key("models", name, writes=True), _device(device), "SOURCE", script
        )

    def set_script_multigpu(self, name: str, script: str, first_gpu: int, num_gpus: int) -> None:
        """Stores a script once for each of several GPUs, and once for any."""
        for key, device in {**_gpus(name, first_gpu, num_gpus), name: "GPU"}.items():
            self.set_script(key, script, device)

    def set_script_from_file(self, name: str, file: str, device: str = "CPU") -> None:
        """Stores the script of a file."""
        self.set_script(name, _read(file).decode(), device)

    def set_script_from_file_multigpu(self, name: str, file: str, first_gpu: int, num_gpus: int) -> None:
        """Stores the script of a file once for each of several GPUs, and once for any."""
        self.set_script_multigpu(name, _read(file).decode(), first_gpu, num_gpus)

    def set_function(self, name: str, function: Callable[..., Any], device: str = "CPU") -> None:
        """Stores the source of a function as a script."""
        self.set_script(name, _source(function), device)

    def set_function_multigpu(
        self, name: str, function: Callable[..., Any], first_gpu: int, num_gpus: int
    ) -> None:
        """Stores the source of a function once for each of several GPUs, and once for any."""
        self.set_script_multigpu(name, _source(function), first_gpu, num_gpus)

    @translated
    def get_script(self, name: str) -> str:
        """The source of a script."""
        typecheck(name, "name", str)
        found = self._store.command("AI.SCRIPTGET", self._key("models", name, writes=False), "SOURCE")
        return bytes(found).decode()

    @translated
    def run_script(self, name: str, fn_name: str, inputs: _Names, outputs: _Names) -> None:
        """Has the store run a function of a script on tensors."""
        typecheck(name, "name", str)
        typecheck(fn_name, "fn_name", str)
        given, wanted = self._tensors(inputs, outputs)
        key = self._key("models", name, writes=False)
        self._store.command("AI.SCRIPTRUN", key, fn_name, "INPUTS", *given, "OUTPUTS", *wanted)

    def run_script_multigpu(
        self,
        name: str,
        fn_name: str,
        inputs: _Names,
        outputs: _Names,
        offset: int,
        first_gpu: int,
        num_gpus: int,
    ) -> None:
        """Has the store run a function of a script on the GPU that a rank uses."""
        self.run_script(_gpu_for(name, offset, first_gpu, num_gpus), fn_name, inputs, outputs)

    @translated
    def delete_script(self, name: str) -> None:
        """Deletes a script."""
        typecheck(name, "name", str)
        self._store.command("AI.SCRIPTDEL", self._key("models", name, writes=True))

    def delete_script_multigpu(self, name: str, first_gpu: int, num_gpus: int) -> None:
        """Deletes a script that was stored for several GPUs."""
        for key in [*_gpus(name, first_gpu, num_gpus), name]:
            self.delete_script(key)

    @translated
    def set_model_chunk_size(self, chunk_size: int) -> None:
        """Sets the size of pieces in which models are sent to clients that want it."""
        typecheck(chunk_size, "chunk_size", int)
        self._store.command("AI.CONFIG", "MODEL_CHUNK_SIZE", chunk_size)

    def _tensors(self, inputs: _Names, outputs: _Names) -> "tuple[List[str], List[str]]":
        given = [self._key("tensors", name, writes=False) for name in names(inputs)]
        return given, [self._key("tensors", name, writes=True) for name in names(outputs)]
