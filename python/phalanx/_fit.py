"""The front door: a model, data, and how to learn."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays, _models, _phalanx, _progress
from ._arrays import Array, Samples
from ._nodes import Domain, EmbeddedNode, Placement, placement
from ._run import Run
from ._settings import Setting, settings
from .errors import ConfigError, InputError

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

Word: TypeAlias = "Union[str, Mapping[str, Any]]"


@dataclass(frozen=True)
class Options:
    """What a training needs besides model and data."""

    settings: list[Setting]
    loss: Optional[Tuple[str, Callable[..., Tuple[float, Array]]]]
    run_dir: Optional[str]
    placement: Placement
    progress: Optional[Callable[[str], None]]
    node: Optional[EmbeddedNode] = None


def fit(
    model: Any,
    train: Any,
    *,
    valid: Any = None,
    loss: Union[Word, Callable[..., Any]] = "cross_entropy",
    optimizer: Word = "adam",
    lr: Optional[float] = None,
    batch: Optional[int] = None,
    epochs: Optional[int] = None,
    steps: Optional[int] = None,
    metrics: Sequence[Word] = (),
    seed: int = 0,
    shuffle: Optional[bool] = None,
    replicas: Optional[int] = None,
    stages: Union[int, str, None] = None,
    local: Optional[int] = None,
    nodes: Union[str, Domain, None] = None,
    threads: Optional[int] = None,
    run_dir: Union[str, os.PathLike[str], None] = None,
    progress: Union[bool, Callable[[Mapping[str, Any]], None], None] = None,
    settings: Optional[Mapping[str, Any]] = None,
) -> Run:
    """Trains a model, and gives the run.

    Args:
        model: a torch module, a Keras model, an ONNX model, the path of an ONNX file, or the name of a model of the
            zoo. A torch module or Keras model gets the trained weights, and is ``model`` of the run.
        train: ``(x, y)``, a dataset or a loader. Datasets and loaders are read once, into memory.
        valid: the same, to validate with after every pass.
        loss: a name, a name with settings, or a function of outputs and targets. With a torch module the function
            gets tensors and gives a tensor; else it gets arrays and gives the loss and its gradient.
            Labels of integers are classes, or numbers for losses that compare numbers.
        optimizer: a name, or a mapping such as ``{"name": "sgd", "momentum": 0.9}``.
        lr: the learning rate; that of the optimizer if not said.
        batch: samples of a step; 32 if neither it nor a loader says otherwise.
        epochs: passes over the data; 1 if neither it nor ``steps`` is given.
        metrics: what is measured beside the loss when validating, such as ``["accuracy"]``.
        seed: decides everything that is random.
        shuffle: whether every pass has an order of its own; true if neither it nor a loader says otherwise.
        replicas: how many nodes train whole models together.
        stages: into how many parts the model is cut, each on a node of its own; or ``"auto"``.
        local: starts this many nodes on this machine. Without it and ``nodes``, this process trains.
        nodes: a domain, whose nodes train.
        threads: compute threads; all cores if not said. Results do not depend on it.
        run_dir: keeps records, checkpoints and the model there. A run that is there goes on.
        progress: whether progress is shown, or a function of it; shown in terminals and notebooks if not said.
        settings: any other keys of a run file, such as ``{"train.clip_norm": 1.0}``.

    >>> import numpy as np, phalanx
    >>> x = np.random.default_rng(0).normal(size=(64, 784)).astype("float32")
    >>> y = (x[:, 0] > 0).astype("int64")
    >>> run = phalanx.fit("mlp", train=(x, y), valid=(x, y), lr=0.001, epochs=3, batch=32, progress=False)
    >>> run.steps
    6
    >>> sorted(run.metrics)[:3]
    ['grad_norm', 'loss', 'lr']
    """
    data = _arrays.read(train, "train")
    checked = None if valid is None else _arrays.read(valid, "valid")
    if data.y is None:
        raise InputError("`train` has no labels", "say `train=(x, y)`")
    named = _name(loss)
    found = _models.source(model, data.x, loss=named)
    if epochs is None and steps is None:
        epochs = 1
    arguments = {
        "loss": "mse" if callable(loss) else loss,
        "optimizer": optimizer,
        "lr": lr,
        "epochs": epochs,
        "steps": steps,
        "batch": batch if batch is not None else data.batch,
        "metrics": list(metrics) or None,
        "seed": seed,
        "shuffle": shuffle if shuffle is not None else data.shuffle,
        "drop_last": data.drop_last,
        "replicas": replicas,
        "stages": stages,
        "threads": threads,
    }
    place = placement(local, nodes)
    _check_nodes(place, replicas, stages)
    told = _settings(arguments, settings)
    own = _own_loss(loss, data, found.framework == "torch")
    pair = (data.x, _arrays.labels_for(data.y, named))
    against = None if checked is None else (checked.x, _arrays.labels_for(checked.y, named))
    with _progress.shown(progress) as show:
        options = Options(told, own, None if run_dir is None else os.fspath(run_dir), place, show)
        outcome = _phalanx.train(found, pair, against, options)
    return Run._of_outcome(outcome, model)


def _settings(arguments: Mapping[str, Any], more: Optional[Mapping[str, Any]]) -> list[Setting]:
    return settings(arguments, more)


def _check_nodes(place: Placement, replicas: Optional[int], stages: Union[int, str, None]) -> None:
    wanted = (replicas or 1) * (stages if isinstance(stages, int) else 1)
    several = wanted > 1 or stages == "auto"
    if several and place.local is None and place.domain is None:
        count = max(wanted, 2)
        raise ConfigError(
            "`replicas` and `stages` need nodes", f"say `local={count}`, or `nodes=` with the name of a domain"
        )


def _name(loss: Any) -> Optional[str]:
    if callable(loss):
        return None
    return str(loss.get("name", "")) if isinstance(loss, Mapping) else str(loss)


def _own_loss(loss: Any, data: Samples, is_torch: bool) -> Optional[Tuple[str, Callable[..., Tuple[float, Array]]]]:
    if not callable(loss):
        return None
    name = getattr(loss, "__name__", type(loss).__name__)
    dtype = np.dtype(np.float32) if data.y is None or data.y.dtype.kind == "f" else data.y.dtype
    if is_torch:
        from ._torch import loss_function

        # Torch counts classes in 64 bits.
        return name, loss_function(loss, np.dtype(np.int64) if dtype.kind in "iu" else dtype)
    return name, _array_loss(loss, dtype)


def _array_loss(function: Callable[..., Any], label_dtype: Any) -> Callable[..., Tuple[float, Array]]:
    def evaluate(
        output: bytearray, output_shape: list[int], target: bytearray, target_shape: list[int]
    ) -> Tuple[float, Array]:
        outputs = _arrays.from_memory(output, output_shape)
        labels = _arrays.from_memory(target, target_shape).astype(label_dtype)
        given = function(outputs, labels)
        try:
            loss, gradient = given
        except (TypeError, ValueError) as error:
            raise InputError("a loss over arrays must give two values: the loss, and its gradient") from error
        found = _arrays.as_array(gradient, "the gradient of the loss").astype(np.float32, copy=False)
        if list(found.shape) != output_shape:
            raise InputError(f"the gradient of the loss has the shape {list(found.shape)}, the outputs {output_shape}")
        return float(loss), found

    return evaluate
