"""A parameter with a few values."""

from __future__ import annotations

import random
from numbers import Real
from typing import Any, List, Optional, Sequence

from phalanx.errors import InputError

__all__ = ["DiscreteChoice"]


class DiscreteChoice:
    """Values to choose from. One object in several places is one parameter."""

    def __init__(
        self, choices: Sequence[Any], probabilities: Optional[Sequence[float]] = None, encode_strategy: str = "auto"
    ) -> None:
        self.choices = list(choices)
        self.probabilities = None if probabilities is None else list(probabilities)
        if not self.choices:
            raise InputError("a DiscreteChoice has no choice")
        if self.probabilities is not None and len(self.probabilities) != len(self.choices):
            raise InputError("a DiscreteChoice has as many probabilities as choices")
        numeric = all(isinstance(choice, Real) and not isinstance(choice, bool) for choice in self.choices)
        if encode_strategy == "auto":
            encode_strategy = "numeric" if numeric else "one_hot"
        if encode_strategy not in ("numeric", "one_hot"):
            raise InputError(f"no encoding is called {encode_strategy!r}", "there are auto, numeric and one_hot")
        self.encode_strategy = encode_strategy

    def __len__(self) -> int:
        return len(self.choices)

    def __repr__(self) -> str:
        return f"DiscreteChoice({self.choices!r})"

    def random_sample(self, rng: Optional[random.Random] = None) -> Any:
        """A random value."""
        return (rng or random.Random()).choices(self.choices, self.probabilities)[0]

    def encode(self, option: Any) -> List[float]:
        """A value as numbers."""
        if self.encode_strategy == "numeric":
            return [float(option)]
        return [float(option == choice) for choice in self.choices]
