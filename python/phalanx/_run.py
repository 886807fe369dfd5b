"""Runs: what came of a training, and going on with it."""

from __future__ import annotations

import atexit
import json
import os
import threading
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Tuple, Union

import numpy as np

from . import _arrays, _models, _phalanx, _progress
from ._arrays import Array
from ._nodes import Domain, placement
from ._settings import settings
from .errors import InputError

Path = Union[str, "os.PathLike[str]"]

# A run that Ctrl-C has interrupted is given time to be saved.
_SECONDS_TO_SAVE = 5.0
atexit.register(_phalanx.finish, _SECONDS_TO_SAVE)


class Run:
    """What came of a training: the model, the metrics, and the directory if there is one."""

    def __init__(self, native: _phalanx.Model, summary: Mapping[str, Any], metrics: dict[str, Array], model: Any):
        self._native = native
        self._summary = summary
        self._metrics = metrics
        self._model = model
        self._evaluating = threading.RLock()

    @classmethod
    def _of_outcome(cls, outcome: Tuple[_phalanx.Model, str, dict[str, list[float]]], model: Any) -> Run:
        native, text, series = outcome
        summary = json.loads(text)
        run_dir = summary.get("run_dir")
        metrics = _read_metrics(run_dir) if run_dir else {name: _series(name, all) for name, all in series.items()}
        run = cls(native, summary, metrics, model)
        _models.give_weights(model, native, run.steps)
        return run

    @classmethod
    def open(cls, run_dir: Path, model: Any = None) -> Run:
        """Opens the directory of a run, be it finished or not.

        A torch module or Keras model that is given gets its weights.
        """
        path = os.fspath(run_dir)
        state = json.loads(_phalanx.read_run(path))
        native = _phalanx.load_model(path)
        summary = {**state, "run_dir": path, "finished": state.get("state") == "finished"}
        run = cls(native, summary, _read_metrics(path), model)
        _models.give_weights(model, native, run.steps)
        return run

    @property
    def model(self) -> Any:
        """The model as it was given; a torch module or Keras model has the trained weights."""
        return self._model

    @property
    def metrics(self) -> dict[str, Array]:
        """Numbers of all steps and validations, by name.

        ``step``, ``pass``, ``loss``, ``lr``, ``grad_norm`` and ``samples_per_s`` are of steps, ``val_step``,
        ``val_loss``, ``val_acc`` and so on of validations.
        """
        return self._metrics

    @property
    def run_dir(self) -> Optional[str]:
        """The directory of the run; None of a run in memory."""
        return self._summary.get("run_dir")

    @property
    def steps(self) -> int:
        """The steps that are done."""
        return int(self._summary.get("steps") or 0)

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return bool(self._summary["finished"])

    @property
    def params_hash(self) -> str:
        """A hash of the weights: equal hashes mean equal bits."""
        return self._native.params_hash

    def state_dict(self) -> dict[str, Array]:
        """Parameters and buffers by the names of the module's ``state_dict``."""
        return _state(self._native)

    def predict(self, x: Any) -> Array:
        """The outputs for samples."""
        return _predict(self._native, x)

    def evaluate(self, x: Any, y: Any) -> dict[str, float]:
        """Loss and metrics over samples and labels."""
        samples = _arrays.read((x, y), "data")
        labels = _arrays.labels_for(samples.y, self._native.loss)
        if labels is None:
            raise InputError("there are no labels to evaluate with")
        # A loss in Python is called by one thread at a time.
        with self._evaluating:
            found: dict[str, float] = json.loads(self._native.evaluate(samples.x, labels))
        return found

    def save_onnx(self, path: Path) -> None:
        """Writes the trained model as an ONNX file."""
        self._native.save_onnx(os.fspath(path))

    def save_safetensors(self, path: Path) -> None:
        """Writes the weights by the names of the module's ``state_dict``."""
        self._native.save_safetensors(os.fspath(path))

    def resume(
        self,
        *,
        epochs: Optional[int] = None,
        steps: Optional[int] = None,
        local: Optional[int] = None,
        nodes: Union[str, Domain, None] = None,
        progress: Union[bool, Callable[[Mapping[str, Any]], None], None] = None,
    ) -> Run:
        """Goes on, to this many passes or steps in all if that is said. Gives the longer run."""
        from ._fit import Options

        if self.run_dir is None:
            raise InputError("a run in memory cannot be resumed", "say `fit(…, run_dir=…)`")
        told, place, done = settings({"epochs": epochs, "steps": steps}), placement(local, nodes), self.steps
        with _progress.shown(progress) as show:
            outcome = _phalanx.resume(self.run_dir, Options(told, None, self.run_dir, place, show))
        run = Run._of_outcome(outcome, None)
        run._model = self._model
        _models.give_weights(self._model, run._native, run.steps - done)
        return run

    def push(self, url: Optional[str] = None, *, checkpoints: bool = True) -> Mapping[str, Any]:
        """Sends the files of the run to a directory, ``s3://``, ``az://`` or ``gs://``; to what ``PHALANX_ARTIFACTS``
        names when no URL is given.

        What is there already is not sent again. Gives the run's URL as ``url``, and its ``files`` with their sizes and
        hashes.
        """
        if self.run_dir is None:
            raise InputError("a run in memory has no files", "say `fit(…, run_dir=…)`")
        pushed: dict[str, Any] = json.loads(_phalanx.push_run(self.run_dir, url, checkpoints))
        return pushed

    def plot(self, axes: Any = None) -> Any:
        """Draws the losses with matplotlib, and gives the axes."""
        try:
            import matplotlib.pyplot as pyplot
        except ImportError as error:
            raise InputError("drawing needs matplotlib", "`pip install matplotlib`") from error
        axes = pyplot.subplots()[1] if axes is None else axes
        for steps, losses, label in (("step", "loss", "training"), ("val_step", "val_loss", "validation")):
            if losses in self._metrics:
                axes.plot(self._metrics[steps], self._metrics[losses], label=label)
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        axes.legend()
        return axes

    def __repr__(self) -> str:
        loss = self._metrics.get("loss")
        shown = "" if loss is None or len(loss) == 0 else f", loss={float(loss[-1]):.4f}"
        place = "" if self.run_dir is None else f", run_dir={self.run_dir!r}"
        return f"Run(model={self._native.name!r}, steps={self.steps}{shown}{place})"


@dataclass(frozen=True)
class Fused:
    """The model of a checkpoint, with the stages of all nodes put together."""

    step: int
    stages: int
    _native: _phalanx.Model

    def state_dict(self) -> dict[str, Array]:
        """Parameters and buffers by the names of the module's ``state_dict``."""
        return _state(self._native)

    def predict(self, x: Any) -> Array:
        """The outputs for samples."""
        return _predict(self._native, x)

    def save_onnx(self, path: Path) -> None:
        """Writes an ONNX file."""
        self._native.save_onnx(os.fspath(path))

    def save_safetensors(self, path: Path) -> None:
        """Writes the weights by the names of the module's ``state_dict``."""
        self._native.save_safetensors(os.fspath(path))


def fuse(run_dir: Path, *, step: Optional[int] = None) -> Fused:
    """The newest checkpoint of a run as one model, or that of a step."""
    native, found, stages = _phalanx.fuse(os.fspath(run_dir), step)
    return Fused(found, stages, native)


def _state(native: _phalanx.Model) -> dict[str, Array]:
    return {name: _arrays.from_memory(memory, shape, dtype) for name, dtype, shape, memory in native.state_dict()}


def _predict(native: _phalanx.Model, x: Any) -> Array:
    samples = _arrays.as_array(x, "x")
    if len(samples) == 0:
        raise InputError("there are no samples to predict for")
    memory, shape = native.predict(samples)
    return _arrays.from_memory(memory, shape)


def _series(name: str, values: list[float]) -> Array:
    whole = name in ("step", "pass", "val_step", "val_pass")
    return np.asarray(values, dtype=np.int64 if whole else np.float64)


def _read_metrics(run_dir: str) -> dict[str, Array]:
    """The numbers of `metrics.jsonl`. A last line that is being written is left out."""
    series: dict[str, list[float]] = {}
    try:
        with open(os.path.join(run_dir, "metrics.jsonl"), encoding="utf-8") as lines:
            for text in lines:
                if not text.endswith("\n"):
                    break
                _add_line(json.loads(text), series)
    except FileNotFoundError:
        return {}
    return {name: _series(name, values) for name, values in series.items()}


def _add_line(line: Mapping[str, Any], series: dict[str, list[float]]) -> None:
    if "val_loss" in line:
        renamed = {"step": "val_step", "pass": "val_pass"}
        wanted = {renamed.get(name, name): value for name, value in line.items() if name != "unix_ms"}
    else:
        names = ("step", "pass", "loss", "lr", "grad_norm", "samples_per_s")
        wanted = {name: line[name] for name in names if name in line}
    for name, value in wanted.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            series.setdefault(name, []).append(value)
        elif value is None:
            series.setdefault(name, []).append(float("nan"))
