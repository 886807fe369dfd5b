"""What candidates of a search are made of."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _phalanx
from .errors import InputError

Values = Union[Sequence[Any], range]


@dataclass(frozen=True)
class When:
    """Choices that exist only with some choices of other names. Make one with ``when``."""

    choices: Any
    needs: Mapping[str, Any]


def when(choices: Values, **needs: Any) -> When:
    """Choices that a candidate has only if these names, which come before it, have this value or one of these.

    >>> from phalanx.search import Space, when
    >>> space = Space({"head": ["pool", "dense"], "width": when([32, 64], head="dense")})
    >>> list(space)
    [{'head': 'pool'}, {'head': 'dense', 'width': 32}, {'head': 'dense', 'width': 64}]
    """
    if not needs:
        raise InputError("`when` has no condition", 'say `when([32, 64], head="dense")`')
    return When(choices, needs)


def log_range(first: float, last: float, count: int) -> List[float]:
    """Numbers from the first to the last, each the same factor from the next, of six digits.

    >>> from phalanx.search import log_range
    >>> log_range(1e-4, 1e-2, 5)
    [0.0001, 0.000316228, 0.001, 0.00316228, 0.01]
    """
    if not (first > 0 and last > 0 and count >= 2):
        raise InputError("`log_range` needs two numbers above 0, and a count of at least 2")
    factor = math.log(last / first) / (count - 1)
    inner = [float(f"{first * math.exp(factor * step):.6g}") for step in range(1, count - 1)]
    return [float(first), *inner, float(last)]


class Space:
    """All candidates: choices by name. A list, tuple or range has choices; anything else is the same for all of them.

    >>> from phalanx.search import Space
    >>> space = Space({"layers": range(1, 13), "kernel": [1, 3, 5], "optimizer": "adam"})
    >>> space.count()
    36
    >>> space.sample(seed=1) == space.sample(seed=1)
    True
    >>> sorted(space.sample(seed=1))
    ['kernel', 'layers', 'optimizer']
    """

    def __init__(self, choices: Mapping[str, Any]) -> None:
        if not isinstance(choices, Mapping):
            raise InputError(f"a space is a dict of choices, not {type(choices).__name__}")
        self._constants: Dict[str, Any] = {}
        self._order = [str(name) for name in choices]
        self._names: List[str] = []
        self._choices: List[List[Any]] = []
        genes: List[Tuple[str, List[Tuple[str, Optional[float]]], Any]] = []
        for name, given in choices.items():
            if not isinstance(name, str):
                raise InputError(f"the name {name!r} in the space is no text")
            condition = self._condition(name, given.needs, choices) if isinstance(given, When) else None
            values = _values(name, given.choices if isinstance(given, When) else given)
            if values is None:
                if condition is not None:
                    raise InputError(f"`when` of `{name}` has no list of choices")
                self._constants[name] = given
                continue
            self._names.append(name)
            self._choices.append(values)
            genes.append((name, [(_label(value), _number(value)) for value in values], condition))
        if not genes:
            hint = 'say `{"layers": range(1, 13), "kernel": [1, 3, 5]}`'
            raise InputError("there is nothing to choose in the space", hint)
        self._space = _phalanx.SearchSpace(genes)

    def _condition(self, name: str, needs: Mapping[str, Any], choices: Mapping[str, Any]) -> Any:
        found = []
        for on, wanted in needs.items():
            if on not in self._names:
                if on in choices:
                    what = "is the same for all candidates" if on in self._constants else "comes after it"
                    raise InputError(f"`{name}` depends on `{on}`, which {what}")
                near = difflib.get_close_matches(on, choices, 1)
                hint = f"did you mean `{near[0]}`?" if near else None
                raise InputError(f"`{name}` depends on `{on}`, which the space does not have", hint)
            gene = self._names.index(on)
            values = list(wanted) if isinstance(wanted, (list, tuple, set, frozenset, range)) else [wanted]
            unknown = [value for value in values if value not in self._choices[gene]]
            if unknown or not values:
                raise InputError(f"`{name}` depends on `{on}` being {wanted!r}, which is none of its choices")
            found.append((gene, [self._choices[gene].index(value) for value in values]))
        return [found]

    def count(self) -> Optional[int]:
        """How many different candidates there are; ``None`` if that is too hard to count."""
        return self._space.count()

    def sample(self, seed: int = 0) -> Dict[str, Any]:
        """A random candidate; the same seed gives the same one."""
        return self.candidate(self._space.sample(seed))

    def candidate(self, genes: Sequence[int]) -> Dict[str, Any]:
        """The candidate with these choices, given by their numbers; names that it does not use are not in it."""
        active = self._space.active(list(genes))
        chosen = {self._names[gene]: self._choices[gene][genes[gene]] for gene in active}
        chosen.update(self._constants)
        return {name: chosen[name] for name in self._order if name in chosen}

    def __iter__(self) -> Any:
        """Every candidate once."""
        sizes = [len(values) for values in self._choices]
        genes: Optional[List[int]] = [0] * len(sizes)
        while genes is not None:
            yield self.candidate(genes)
            genes = self._next(genes, sizes)

    def _next(self, genes: List[int], sizes: List[int]) -> Optional[List[int]]:
        for gene in reversed(self._space.active(genes)):
            if genes[gene] + 1 < sizes[gene]:
                return [*genes[:gene], genes[gene] + 1, *[0] * (len(sizes) - gene - 1)]
        return None

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {len(values)}" for name, values in zip(self._names, self._choices))
        return f"Space({sizes})"


def _values(name: str, given: Any) -> Optional[List[Any]]:
    """The choices; ``None`` if it is a constant."""
    if isinstance(given, (set, frozenset)):
        raise InputError(f"the choices of `{name}` are a set, which has no order", "give a list")
    if isinstance(given, Mapping):
        raise InputError(f"the choices of `{name}` are a dict", "give a list, and names for what is inside")
    if hasattr(given, "tolist") and getattr(given, "ndim", 0) == 1:
        given = given.tolist()
    if not isinstance(given, (list, tuple, range)):
        return None
    if not given:
        raise InputError(f"`{name}` has no choice")
    return list(given)


def _label(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = getattr(value, "__name__", None) or repr(value)
    # An address is another one in the next program.
    return type(value).__name__ if " at 0x" in text else str(text)


def _number(value: Any) -> Optional[float]:
    return None if isinstance(value, bool) or not isinstance(value, Real) else float(value)
