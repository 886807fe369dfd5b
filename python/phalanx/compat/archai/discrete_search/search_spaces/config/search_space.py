"""A space of the configurations of a tree."""

from __future__ import annotations

import hashlib
import math
import random
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import numpy

from ...api.archai_model import ArchaiModel
from ...api.search_space import BayesOptSearchSpace, EvolutionarySearchSpace
from .arch_config import ArchConfig
from .arch_param_tree import ArchParamTree
from .discrete_choice import DiscreteChoice

__all__ = ["ArchConfigSearchSpace", "ConfigSearchSpace"]


class ConfigSearchSpace(EvolutionarySearchSpace, BayesOptSearchSpace):
    """Models that ``model_cls`` makes of a configuration. Configurations that it uses alike are one architecture."""

    def __init__(
        self,
        model_cls: Callable[..., Any],
        arch_param_tree: Any,
        seed: Optional[int] = None,
        mutation_prob: float = 0.3,
        track_unused_params: bool = True,
        unused_param_value: float = -1.0,
        hash_archid: bool = True,
        model_kwargs: Optional[Dict[str, Any]] = None,
        builder_kwargs: Optional[Dict[str, Any]] = None,
    ) -> None:
        if not isinstance(arch_param_tree, ArchParamTree):
            arch_param_tree = arch_param_tree(**(builder_kwargs or {}))
        self.model_cls = model_cls
        self.arch_param_tree: ArchParamTree = arch_param_tree
        self.mutation_prob = mutation_prob
        self.track_unused_params = track_unused_params
        self.unused_param_value = unused_param_value
        self.hash_archid = hash_archid
        self.model_kwargs = dict(model_kwargs or {})
        self.rng = random.Random(seed)

    def get_archid(self, arch_config: ArchConfig) -> str:
        """The name of an architecture: of the parameters that its model uses."""
        encoded = self.arch_param_tree.encode_config(arch_config, self.track_unused_params)
        text = str(tuple(encoded))
        return hashlib.sha1(text.encode()).hexdigest() if self.hash_archid else text

    def _model(self, config: ArchConfig) -> ArchaiModel:
        # Which parameters are used is known only after the model was made.
        arch = self.model_cls(config, **self.model_kwargs)
        return ArchaiModel(arch, self.get_archid(config), {"config": config})

    def random_sample(self) -> ArchaiModel:
        return self._model(self.arch_param_tree.sample_config(self.rng))

    def mutate(self, arch: ArchaiModel) -> ArchaiModel:
        values = self.arch_param_tree.values(arch.metadata["config"])

        def choose(name: str, choice: DiscreteChoice) -> Any:
            is_drawn = self.rng.random() < self.mutation_prob
            return choice.random_sample(self.rng) if is_drawn else values[name][0]

        return self._model(self.arch_param_tree.make(choose))

    def crossover(self, arch_list: List[ArchaiModel]) -> ArchaiModel:
        parents = [self.arch_param_tree.values(arch.metadata["config"]) for arch in arch_list]
        return self._model(self.arch_param_tree.make(lambda name, _: self.rng.choice(parents)[name][0]))

    def encode(self, arch: ArchaiModel) -> Any:
        encoded = self.arch_param_tree.encode_config(arch.metadata["config"], self.track_unused_params)
        return numpy.array([self.unused_param_value if math.isnan(value) else value for value in encoded])

    def save_arch(self, model: ArchaiModel, path: str) -> None:
        config: ArchConfig = model.metadata["config"]
        config.to_file(path)

    def load_arch(self, path: str) -> ArchaiModel:
        return self._model(ArchConfig.from_file(path))

    def save_model_weights(self, model: ArchaiModel, path: str) -> None:
        if hasattr(model.arch, "state_dict"):
            import torch

            Path(path).parent.mkdir(parents=True, exist_ok=True)
            torch.save(model.arch.state_dict(), path)

    def load_model_weights(self, model: ArchaiModel, path: str) -> None:
        import torch

        model.arch.load_state_dict(torch.load(path))


ArchConfigSearchSpace = ConfigSearchSpace
