"""A provider's trainer: drives the run, or takes part in it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pathlib
import time
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Union

import numpy as np
import torch

from .. import _arrays, _phalanx, _progress, _torch
from .._arrays import Array, Samples
from .._fit import Options
from .._nodes import Placement
from .._settings import settings
from ..errors import ConfigError, InputError, PhalanxError, TrainingError
from ._clusters import Exported, State, read_model, write_trained
from ._node import Node
from ._optim import learning_rates
from ._records import Records
from ._seed import current_seed

_log = logging.getLogger("phalanx.decentralized")

# The name of the criterion in the run file; every provider gives its own function this name.
_CRITERION = "criterion"
# How often a provider looks whether the run of its project has ended while it was away.
_LOOK_SECONDS = 1.0


class Trainer:
    """Trains the model of a project together with the trainers of the other providers.

    The first node of cluster 0 reads the samples, drives the run and writes what comes of it; the others take part
    until it has ended. Programs may start in any order. A provider that was killed joins again when it is started
    again, and the run goes on; that of the driving node goes on from the last checkpoint.

    Args:
        node: the node of this process.
        train_loader: samples with labels, as ``phalanx.fit`` takes them. They are read once, into memory; the seed
            decides the order of every pass if the loader shuffles.
        val_loader: samples to validate with.
        val_freq: batches between two validations; a validation follows every pass if not said.
        epochs: passes over the samples. Clusters share a pass out among them.
        batch_size: samples of a batch of one cluster; that of the loader if not said.
        inputs_dtype: samples are converted to this type of torch.
        save: whether the trained part of every node is written beside the clusters' files.
        mode: ``"exact"``, in which all stages update after every batch, or ``"asynchronous"``, in which batches flow
            without a pause and every stage updates by itself.
        seed: decides everything that is random; that of ``set_seed`` if not said.
        progress: as ``phalanx.fit`` takes it.
    """

    def __init__(
        self,
        node: Node,
        train_loader: Any = None,
        val_loader: Any = None,
        val_freq: Optional[int] = None,
        epochs: int = 1,
        batch_size: Optional[int] = None,
        inputs_dtype: Optional[torch.dtype] = None,
        save: bool = False,
        *,
        mode: str = "exact",
        seed: Optional[int] = None,
        progress: Union[bool, Callable[[Mapping[str, Any]], None], None] = None,
    ) -> None:
        if val_freq is not None and val_freq < 1:
            raise ConfigError(f"`val_freq` must be at least 1, not {val_freq}")
        self.node = node
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.val_freq = val_freq
        self.epochs = epochs
        self.batch_size = batch_size
        self.inputs_dtype = inputs_dtype
        self.save = save
        self.mode = mode
        self.seed = current_seed() if seed is None else seed
        self.progress = progress
        self._run_dir: Optional[str] = None
        self._native: Optional[_phalanx.Model] = None

    def train(self) -> None:
        """Trains to the end of the run, be it driven here or by another provider."""
        if self.train_loader is None:
            raise InputError("the trainer has no samples to train with", "say `train_loader=…`")
        if self.node.member.drives:
            self._drive()
        else:
            self._take_part()

    def evaluate(self) -> Optional[Dict[str, float]]:
        """Loss and, of classes, accuracy over the samples of ``val_loader``; None but at the provider that drives."""
        if self.val_loader is None:
            raise InputError("the trainer has no samples to evaluate with", "say `val_loader=…`")
        if not self.node.member.drives:
            return None
        data = self._samples(self.val_loader, "val_loader")
        outputs = self.pred(data.x)
        labels = torch.from_numpy(_labels(data).astype(_label_dtype(self.val_loader)))
        batch = self._batch(data)
        with torch.no_grad():
            places = [slice(begin, begin + batch) for begin in range(0, len(outputs), batch)]
            losses = [float(self.node.loss(outputs[at], labels[at])) * len(labels[at]) for at in places]
        found = {"loss": sum(losses) / len(outputs)}
        right = _right(outputs, labels)
        if right is not None:
            found["accuracy"] = float(right.float().mean())
        _log.info("evaluated: %s", found)
        return found

    def pred(self, inputs: Any) -> torch.Tensor:
        """The trained model's outputs for samples."""
        x = self._inputs(_arrays.as_array(inputs, "inputs"))
        memory, shape = self._model().predict(x)
        return torch.from_numpy(_arrays.from_memory(memory, shape))

    def _model(self) -> _phalanx.Model:
        if self._native is None:
            done = [path for path, state in self._runs().items() if state == "finished"]
            path = self._run_dir or (done[-1] if done else None)
            if path is None:
                raise InputError(
                    "there is no trained model here", "train first, and ask the provider that drives the run"
                )
            self._native = _phalanx.load_model(path)
        return self._native

    def _drive(self) -> None:
        exported = read_model(self.node.folder)
        data = self._samples(self.train_loader, "train_loader")
        valid = None if self.val_loader is None else self._samples(self.val_loader, "val_loader")
        told = settings(*self._settings(data))
        run_dir = self._open_run(exported, told, data)
        records = Records(run_dir, self.node.loss_filename)
        domain = self.node.domain
        loss = _CRITERION, _torch.loss_function(self.node.loss, _label_dtype(self.train_loader))
        with _progress.shown(self.progress) as show:

            def tell(text: str) -> None:
                records.update()
                if show is not None:
                    show(text)

            options = Options(told, loss, run_dir, Placement(None, domain), tell, self.node.embedded())
            pair = (data.x, _labels(data))
            against = None if valid is None else (valid.x, _labels(valid))
            native, text, _ = _phalanx.train(exported.source, pair, against, options)
        records.update()
        summary = json.loads(text)
        self._native, self._run_dir = native, run_dir
        if not summary["finished"]:
            raise TrainingError("the run was stopped before its end", "start the providers again to go on")
        if self.save:
            batches = int(summary["steps"]) * self.node.update_frequency
            write_trained(self.node.folder, _trained_state(exported, native, batches))

    def _take_part(self) -> None:
        before = {path for path, state in self._runs().items() if state == "finished"}
        looked = time.monotonic()

        def is_over() -> bool:
            nonlocal looked
            if time.monotonic() - looked < _LOOK_SECONDS:
                return False
            looked = time.monotonic()
            return any(state == "finished" for path, state in self._runs().items() if path not in before)

        loss = _CRITERION, _torch.loss_function(self.node.loss, _label_dtype(self.train_loader))
        _phalanx.serve_node(self.node.embedded(), loss, is_over)
        runs = self._runs()
        if runs:
            # Only where this program sees the files of the one that drives.
            self._run_dir, state = list(runs.items())[-1]
            if state == "failed":
                raise TrainingError("the run failed", "the provider that drives it says why")

    def _settings(self, data: Samples) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        node, batch = self.node, self._batch(data)
        clusters, every = node.member.clusters, node.update_frequency
        arguments = {
            "loss": "mse",
            "optimizer": node.optimizer_settings,
            "epochs": self.epochs,
            "batch": batch,
            "accumulate": None if every == 1 else every,
            "metrics": ["accuracy"] if _is_one_hot(_labels(data)) else None,
            "seed": self.seed,
            "shuffle": data.shuffle,
            "drop_last": data.drop_last,
            "replicas": clusters,
            "stages": node.member.stages,
        }
        if node.member.stages == 1:
            del arguments["stages"]
        more: Dict[str, Any] = {"formation.patience": "1day"}
        if self.val_freq is not None:
            more["train.validate_every"] = max(1, self.val_freq // every)
        samples = batch * every * clusters
        of_pass = len(data.x) // samples if data.drop_last else -(-len(data.x) // samples)
        schedule = learning_rates(
            node.optimizer,
            node.optimizer_params,
            node.lr_scheduler,
            node.lr_scheduler_params,
            (of_pass, self.epochs),
            node.lr_step_on_epoch_change,
        )
        if schedule is not None:
            more["train.schedule"] = schedule
        more.update(self._formation(clusters, every))
        return arguments, more

    def _formation(self, clusters: int, every: int) -> Dict[str, Any]:
        node = self.node
        more: Dict[str, Any] = {}
        if node.member.stages > 1:
            more["formation.mode"] = self.mode
            more["formation.measure"] = not node.is_local
            if self.mode == "exact":
                # Batch norm, and losses that are not means, see a batch as the loader made it.
                more["formation.micro_batches"] = every
            if node.compression:
                more["formation.compress"] = "f16"
        if clusters > 1:
            more["formation.batch"] = "per_replica"
            if node.reduce_factor is not None or self.mode == "asynchronous":
                more["sync.exchange"] = "parameters"
                more["sync.every"] = node.reduce_factor or 1
                more["sync.average_optimizer"] = node.average_optim
        return more

    def _batch(self, data: Samples) -> int:
        return self.batch_size or data.batch or 32

    def _samples(self, loader: Any, name: str) -> Samples:
        data = _arrays.read(loader, name)
        return Samples(self._inputs(data.x), data.y, data.batch, data.shuffle, data.drop_last)

    def _inputs(self, x: Array) -> Array:
        if self.inputs_dtype is None:
            return x
        return x.astype(torch.empty(0, dtype=self.inputs_dtype).numpy().dtype, copy=False)

    def _runs(self) -> Dict[str, str]:
        """The runs of this project in their order, and their states."""
        found = {}
        for path in sorted(pathlib.Path(self.node.folder, "runs").glob("*/run.toml")):
            try:
                found[str(path.parent)] = str(json.loads(_phalanx.read_run(path.parent))["state"])
            except PhalanxError:
                # It is being made.
                found[str(path.parent)] = "new"
        return found

    def _open_run(self, exported: Exported, told: Any, data: Samples) -> str:
        """The directory of the run: that of one that was told the same and has not ended, or a new one."""
        digest = hashlib.sha256(json.dumps([exported.digest, told]).encode())
        for array in (data.x, _labels(data)):
            digest.update(np.ascontiguousarray(array).tobytes())
        fingerprint = digest.hexdigest()
        runs = self._runs()
        if runs:
            last, state = list(runs.items())[-1]
            try:
                same = pathlib.Path(f"{last}.told").read_text(encoding="utf-8") == fingerprint
            except OSError:
                same = False
            if same and state not in ("finished", "failed"):
                _log.info("goes on with %s", last)
                return last
        path = os.path.join(self.node.folder, "runs", f"{len(runs) + 1:04d}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        pathlib.Path(f"{path}.told").write_text(fingerprint, encoding="utf-8")
        return path


def _labels(data: Samples) -> Array:
    if data.y is None:
        raise InputError("the samples have no labels", "give a loader of pairs")
    return data.y


def _label_dtype(loader: Any) -> Any:
    """The type of labels as torch has them in a batch."""
    is_pair = isinstance(loader, (tuple, list)) and len(loader) == 2
    source: Any = getattr(loader, "dataset", loader)
    item = loader if is_pair else source[0] if hasattr(source, "__getitem__") else next(iter(loader))
    if not (isinstance(item, (tuple, list)) and len(item) == 2):
        raise InputError("the items of the loader are not pairs of a sample and a label")
    dtype = torch.as_tensor(item[1]).numpy().dtype
    # Torch counts classes in 64 bits.
    return np.dtype(np.int64) if dtype.kind in "iu" else dtype


def _is_one_hot(labels: Array) -> bool:
    if labels.ndim != 2 or labels.shape[1] < 2:
        return False
    return bool(np.all((labels == 0) | (labels == 1)) and np.all(labels.sum(axis=1) == 1))


def _right(outputs: torch.Tensor, labels: torch.Tensor) -> Optional[torch.Tensor]:
    """Whether each sample has its class, where labels are classes."""
    if outputs.ndim != 2 or outputs.shape[1] < 2:
        return None
    if labels.ndim == 1 and not labels.dtype.is_floating_point:
        return outputs.argmax(dim=1) == labels
    if _is_one_hot(labels.numpy()):
        return outputs.argmax(dim=1) == labels.argmax(dim=1)
    return None


def _trained_state(exported: Exported, native: _phalanx.Model, batches: int) -> State:
    state = {name: value.clone() for name, value in exported.state.items()}
    _torch.put_weights(state, native.state_dict(), batches, exported.source.name)
    return state
