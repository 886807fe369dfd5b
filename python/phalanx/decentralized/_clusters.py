"""Clusters: which provider holds which part of the model, and the parts as one model again."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from dataclasses import asdict, dataclass
from typing import Any, Dict, Sequence, Tuple

import torch

from .. import _arrays, _models
from .._plan import plan
from ..errors import ConfigError, InputError
from ._pool import CONFIGS, Pool, read_pool

FOLDER = "node_data"
_MODEL, _ABOUT, _STATE = "model.onnx", "model.json", "state_dict.pt"
_FIRST, _TRAINED = "submod.pt", "trained_submod.pt"

State = Dict[str, torch.Tensor]


@dataclass(frozen=True)
class Member:
    """A provider in its cluster: the part of the model that was planned for it, by names of the ``state_dict``."""

    name: str
    address: str
    cluster: int
    stage: int
    stages: int
    clusters: int
    tensors: Tuple[str, ...]

    @property
    def role(self) -> str:
        """``root``, which feeds samples; ``leaf``, which has the loss; ``stem`` between them."""
        if self.stage == 0:
            return "root"
        return "leaf" if self.stage == self.stages - 1 else "stem"

    @property
    def drives(self) -> bool:
        """Whether its process drives the run and writes what comes of it."""
        return self.cluster == 0 and self.stage == 0

    def folder(self, base: str) -> pathlib.Path:
        """Where its files are."""
        return pathlib.Path(base, f"cluster_{self.cluster}", self.address)

    def __str__(self) -> str:
        first = self.tensors[0] if self.tensors else "no parameters"
        return f"{self.name} ({self.role} of cluster {self.cluster}, {self.address}): {len(self.tensors)} from {first}"


@dataclass(frozen=True)
class Cluster:
    """Providers that hold the model together."""

    id: int
    members: Tuple[Member, ...]

    def __str__(self) -> str:
        return "\n".join(str(member) for member in self.members)


@dataclass(frozen=True)
class Exported:
    """The model as ``clusterize`` wrote it."""

    source: _models.ModelSource
    digest: str
    state: State


def clusterize(
    model: torch.nn.Module, example_args: Any, *, clusters: int = 1, folder: str = FOLDER
) -> Tuple[Cluster, ...]:
    """Forms clusters of the nodes in ``node_configs.json``, and writes what their programs need beside it.

    Every node gets a stage of the model. Several clusters train replicas of it; the number of nodes must be a multiple
    of theirs.

    Args:
        model: begins the training with the weights that it has.
        example_args: a tensor, such as a batch that the model takes, or a tuple with one.
        clusters: how many clusters to form.
        folder: where ``node_configs.json`` is.
    """
    pool = read_pool(folder)
    if clusters < 1 or len(pool.providers) % clusters:
        raise ConfigError(f"{len(pool.providers)} nodes cannot form {clusters} clusters of the same size")
    if isinstance(example_args, torch.Tensor):
        example_args = (example_args,)
    if len(example_args) != 1:
        raise InputError(f"the model is called with {len(example_args)} arguments; it must take one tensor")
    example = _arrays.as_array(example_args[0], "example_args")
    source = _models.source(model, example)
    state = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
    formed = _form(source, pool, len(example), clusters, list(state))
    _write_model(pathlib.Path(folder, "model"), source, state)
    nodes = pathlib.Path(folder, "nodes")
    nodes.mkdir(parents=True, exist_ok=True)
    for old in nodes.glob("node_*.json"):
        old.unlink()
    for cluster in formed:
        for member in cluster.members:
            _write_json(nodes / f"{member.name}.json", {**asdict(member), "role": member.role})
            _write_part(member, folder, _FIRST, state)
            member.folder(folder).joinpath(_TRAINED).unlink(missing_ok=True)
    return formed


def _form(
    source: _models.ModelSource, pool: Pool, batch: int, clusters: int, names: Sequence[str]
) -> Tuple[Cluster, ...]:
    by_id = {provider.id: provider for provider in pool.providers}
    stages = len(by_id) // clusters
    planned = plan(source.data, os.path.join(pool.folder, CONFIGS), batch=batch, replicas=clusters, stages=stages)
    formed = []
    for number, replica in enumerate(planned.replicas):
        parts = _complete([stage.tensors for stage in replica], names)
        members = []
        for place, (stage, tensors) in enumerate(zip(replica, parts)):
            provider = by_id[stage.node]
            members.append(
                Member(provider.name, provider.address, number, place, stages, clusters, tuple(tensors))
            )
        formed.append(Cluster(number, tuple(members)))
    return tuple(formed)


def _complete(parts: Sequence[Sequence[str]], names: Sequence[str]) -> list[list[str]]:
    """Names that no operator uses go with their module, or with the first stage."""
    home = {name: place for place, part in enumerate(parts) for name in part}
    modules = {name.rpartition(".")[0]: place for name, place in home.items()}
    full: list[list[str]] = [[] for _ in parts]
    for name in names:
        full[home.get(name, modules.get(name.rpartition(".")[0], 0))].append(name)
    return full


def _write_model(folder: pathlib.Path, source: _models.ModelSource, state: State) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    assert isinstance(source.data, bytes)
    folder.joinpath(_MODEL).write_bytes(source.data)
    torch.save(state, folder / _STATE)
    digest = hashlib.sha256(source.data).hexdigest()[:12]
    _write_json(folder / _ABOUT, {"name": source.name, "constants": sorted(source.constants), "digest": digest})


def _write_json(path: pathlib.Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def read_model(folder: str) -> Exported:
    """The model that ``clusterize`` wrote."""
    place = pathlib.Path(folder, "model")
    try:
        about = json.loads(place.joinpath(_ABOUT).read_text(encoding="utf-8"))
        data = place.joinpath(_MODEL).read_bytes()
        state = torch.load(place / _STATE, map_location="cpu", weights_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"there is no model in {place}: {error}", "run `clusterize` first") from error
    return Exported(_models.ModelSource(data, about["name"], "torch", set(about["constants"])), about["digest"], state)


def read_member(folder: str, name: str) -> Member:
    """A provider as ``clusterize`` wrote it."""
    path = pathlib.Path(folder, "nodes", f"{name}.json")
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        told.pop("role")
        return Member(**{**told, "tensors": tuple(told["tensors"])})
    except OSError as error:
        known = sorted(found.stem for found in pathlib.Path(folder, "nodes").glob("node_*.json"))
        hint = f"known: {', '.join(known)}" if known else "run `clusterize` first"
        raise ConfigError(f"there is no node `{name}` in {folder}", hint) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} cannot be used: {error}", "run `clusterize` again") from error


def members(folder: str) -> list[Member]:
    """All providers, by cluster and stage."""
    found = [read_member(folder, path.stem) for path in pathlib.Path(folder, "nodes").glob("node_*.json")]
    return sorted(found, key=lambda member: (member.cluster, member.stage))


def write_trained(folder: str, state: State) -> None:
    """Writes the part of every provider."""
    for member in members(folder):
        _write_part(member, folder, _TRAINED, state)


def _write_part(member: Member, folder: str, file: str, state: State) -> None:
    place = member.folder(folder)
    place.mkdir(parents=True, exist_ok=True)
    beside = place / f".{file}"
    torch.save({name: state[name] for name in member.tensors}, beside)
    beside.replace(place / file)


def model_fusion(cluster_id: int = 0, *, folder: str = FOLDER, to: str = "trained") -> State:
    """Puts the trained parts of a cluster together, and writes ``trained/trained_state_dict.pt``.

    The result has exactly the names of the model's ``state_dict``, in its order.
    """
    own = [member for member in members(folder) if member.cluster == cluster_id]
    if not own:
        raise ConfigError(f"there is no cluster {cluster_id} in {folder}")
    found: State = {}
    for member in own:
        path = member.folder(folder) / _TRAINED
        if not path.is_file():
            raise InputError(
                f"{member.name} has no trained part: there is no {path}",
                "train with `save=True`, and fuse where the first provider of cluster 0 ran",
            )
        found.update(torch.load(path, map_location="cpu", weights_only=True))
    order = list(read_model(folder).state)
    missing = [name for name in order if name not in found]
    if missing:
        raise InputError(f"the parts of cluster {cluster_id} have no `{missing[0]}`", "run `clusterize` and train again")
    fused = {name: found[name] for name in order}
    os.makedirs(to, exist_ok=True)
    torch.save(fused, os.path.join(to, "trained_state_dict.pt"))
    return fused
