"""A tree of choices."""

from __future__ import annotations

import math
import random
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .arch_config import ArchConfig, build_arch_config
from .discrete_choice import DiscreteChoice

__all__ = ["ArchParamTree"]

_Path = Tuple[str, ...]


class ArchParamTree:
    """Nested dicts of choices, constants and blocks. A choice that is in two places is one parameter."""

    def __init__(self, config_tree: Dict[str, Any]) -> None:
        self.config_tree = config_tree
        self._leaves = list(_leaves(config_tree, ()))
        self._first: Dict[int, str] = {}
        for path, choice in self._leaves:
            self._first.setdefault(id(choice), ".".join(path))

    @property
    def params(self) -> Dict[str, DiscreteChoice]:
        """The parameters by name, each once."""
        named: Dict[str, DiscreteChoice] = {}
        for _, choice in self._leaves:
            named.setdefault(self._first[id(choice)], choice)
        return named

    @property
    def num_archs(self) -> int:
        """The product of the numbers of choices; combinations that differ only in what is not used count too."""
        return math.prod(len(choice) for choice in self.params.values())

    def get_param_name_list(self) -> List[str]:
        """The names of the parameters, in order."""
        return list(self.params)

    def make(self, choose: Callable[[str, DiscreteChoice], Any]) -> ArchConfig:
        """The configuration in which each parameter has the value that a function gives."""
        values = {name: choose(name, choice) for name, choice in self.params.items()}
        return build_arch_config(self._filled(self.config_tree, values))

    def _filled(self, tree: Dict[str, Any], values: Dict[str, Any]) -> Dict[str, Any]:
        filled = {}
        for name, value in tree.items():
            if isinstance(value, DiscreteChoice):
                value = values[self._first[id(value)]]
            elif isinstance(value, dict):
                value = self._filled(value, values)
            filled[name] = value
        return filled

    def sample_config(self, rng: Optional[random.Random] = None) -> ArchConfig:
        """A random configuration."""
        rng = rng or random.Random()
        return self.make(lambda _, choice: choice.random_sample(rng))

    def values(self, config: ArchConfig) -> Dict[str, Tuple[Any, bool]]:
        """The value of each parameter, and whether it was used anywhere."""
        found: Dict[str, Tuple[Any, bool]] = {}
        for path, choice in self._leaves:
            node: Any = config
            for name in path[:-1]:
                node = node.nodes[name]
            name = self._first[id(choice)]
            is_used = path[-1] in node._used or found.get(name, (None, False))[1]
            found[name] = (node.nodes[path[-1]], is_used)
        return found

    def encode_config(self, config: ArchConfig, track_unused_params: bool = True) -> List[float]:
        """The values as numbers, in the order of the tree; NaN for parameters that were not picked."""
        encoded: List[float] = []
        values, params = self.values(config), self.params
        for name, (value, is_used) in values.items():
            numbers = params[name].encode(value)
            encoded += numbers if is_used or not track_unused_params else [math.nan] * len(numbers)
        return encoded


def _leaves(tree: Dict[str, Any], path: _Path) -> Iterator[Tuple[_Path, DiscreteChoice]]:
    for name, value in tree.items():
        if isinstance(value, DiscreteChoice):
            yield (*path, str(name)), value
        elif isinstance(value, dict):
            yield from _leaves(value, (*path, str(name)))
