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


@dataclass(frozen=True)
class Repeat:
    """A block that is there several times, each copy with choices of its own. Make one with ``repeat``."""

    times: Any
    each: Mapping[str, Any]


def repeat(times: Union[int, str, Values], each: Mapping[str, Any]) -> Repeat:
    """A block that a candidate has so many times, as a list of dicts; each copy has choices of its own.

    ``times`` is a number, numbers to choose from, or the name of an earlier choice of numbers. Choices that all copies
    share are ordinary choices beside it. ``when`` inside ``each`` sees the names of its copy first.

    >>> from phalanx.search import Space, repeat
    >>> space = Space({"depth": [1, 2], "cells": repeat("depth", {"op": ["conv", "skip"]})})
    >>> space.count()
    6
    >>> list(space)[2]
    {'depth': 2, 'cells': [{'op': 'conv'}, {'op': 'conv'}]}
    """
    if not isinstance(each, Mapping) or not each:
        raise InputError("`repeat` has nothing to repeat", 'say `repeat(3, {"op": ["conv", "skip"]})`')
    return Repeat(times, each)


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
        builder = _Builder()
        self._tree = builder.block(choices, "", _Scope(choices, None), [])
        if not builder.genes:
            hint = 'say `{"layers": range(1, 13), "kernel": [1, 3, 5]}`'
            raise InputError("there is nothing to choose in the space", hint)
        self._names = [name for name, _, _ in builder.genes]
        self._choices = builder.choices
        self._space = _phalanx.SearchSpace(builder.genes)

    def count(self) -> Optional[int]:
        """How many different candidates there are; ``None`` if that is too hard to count."""
        return self._space.count()

    def sample(self, seed: int = 0) -> Dict[str, Any]:
        """A random candidate; the same seed gives the same one."""
        return self.candidate(self._space.sample(seed))

    def candidate(self, genes: Sequence[int]) -> Dict[str, Any]:
        """The candidate with these choices, given by their numbers; names that it does not use are not in it."""
        active = set(self._space.active(list(genes)))
        chosen = {gene: (genes[gene], self._choices[gene][genes[gene]]) for gene in active}
        return _candidate(self._tree, chosen)

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


_Needs = List[Tuple[int, List[int]]]


@dataclass(frozen=True)
class _Constant:
    value: Any


@dataclass(frozen=True)
class _Gene:
    number: int


@dataclass(frozen=True)
class _Copies:
    times: Union[_Constant, _Gene]
    """How many there are."""
    needs: _Needs
    """Without these the block is not there."""
    copies: List[Dict[str, Any]]


def _candidate(tree: Mapping[str, Any], chosen: Mapping[int, Tuple[int, Any]]) -> Dict[str, Any]:
    """What was chosen, as a dict. Names whose genes a candidate does not have are not in it."""
    found: Dict[str, Any] = {}
    for name, node in tree.items():
        if isinstance(node, _Constant):
            found[name] = node.value
        elif isinstance(node, _Gene):
            if node.number in chosen:
                found[name] = chosen[node.number][1]
        elif all(gene in chosen and chosen[gene][0] in choices for gene, choices in node.needs):
            times = node.times.value if isinstance(node.times, _Constant) else chosen.get(node.times.number, (0, 0))[1]
            found[name] = [_candidate(copy, chosen) for copy in node.copies[:times]]
    return found


class _Scope:
    """Names that a condition may be on: of its block, and of those around it."""

    def __init__(self, names: Mapping[str, Any], outer: Optional["_Scope"]) -> None:
        self.names, self.outer = names, outer
        self.genes: Dict[str, int] = {}
        self.constants: "set[str]" = set()

    def holder(self, name: str) -> Optional["_Scope"]:
        """The block that has the name, the innermost first."""
        if name in self.names:
            return self
        return self.outer.holder(name) if self.outer is not None else None

    def all_names(self) -> List[str]:
        return [*self.names, *(self.outer.all_names() if self.outer is not None else [])]


class _Builder:
    """Makes genes of choices."""

    def __init__(self) -> None:
        self.genes: List[Tuple[str, List[Tuple[str, Optional[float]]], Any]] = []
        self.choices: List[List[Any]] = []

    def block(self, block: Mapping[str, Any], prefix: str, scope: _Scope, needs: _Needs) -> Dict[str, Any]:
        """The tree of a block. ``needs`` are what its candidates must have chosen."""
        tree: Dict[str, Any] = {}
        for name, given in block.items():
            if not isinstance(name, str):
                raise InputError(f"the name {name!r} in the space is no text")
            own = list(needs)
            if isinstance(given, When):
                own += self.condition(prefix + name, given.needs, scope)
                if not isinstance(given.choices, Repeat) and _values(prefix + name, given.choices) is None:
                    raise InputError(f"`when` of `{prefix}{name}` has no list of choices")
                given = given.choices
            if isinstance(given, Repeat):
                tree[name] = self.copies(prefix + name, given, scope, own)
                continue
            values = _values(prefix + name, given)
            if values is None:
                scope.constants.add(name)
                tree[name] = _Constant(given)
            else:
                scope.genes[name] = self.gene(prefix + name, values, own)
                tree[name] = _Gene(scope.genes[name])
        return tree

    def gene(self, name: str, values: List[Any], needs: _Needs) -> int:
        self.choices.append(values)
        choices = [(_label(value), _number(value)) for value in values]
        self.genes.append((name, choices, [needs] if needs else None))
        return len(self.genes) - 1

    def copies(self, name: str, given: Repeat, scope: _Scope, needs: _Needs) -> _Copies:
        times = given.times
        if isinstance(times, int) and not isinstance(times, bool):
            counted: Union[_Constant, _Gene] = _Constant(times)
            counts = [times]
        else:
            if isinstance(times, str):
                gene = self.found(name, times, scope)
            else:
                values = _values(name, times)
                if values is None:
                    raise InputError(f"`{name}` is repeated {times!r} times", "say a number, or a list of them")
                gene = self.gene(name, values, needs)
            counted, counts = _Gene(gene), self.choices[gene]
        if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts):
            raise InputError(f"`{name}` is repeated {counts!r} times", "say whole numbers")
        copies = []
        for at in range(max(counts)):
            own = list(needs)
            if isinstance(counted, _Gene):
                own.append((counted.number, [choice for choice, count in enumerate(counts) if count > at]))
            copies.append(self.block(given.each, f"{name}.{at}.", _Scope(given.each, scope), own))
        return _Copies(counted, needs, copies)

    def condition(self, name: str, needs: Mapping[str, Any], scope: _Scope) -> _Needs:
        found: _Needs = []
        for on, wanted in needs.items():
            gene = self.found(name, on, scope)
            values = list(wanted) if isinstance(wanted, (list, tuple, set, frozenset, range)) else [wanted]
            unknown = [value for value in values if value not in self.choices[gene]]
            if unknown or not values:
                raise InputError(f"`{name}` depends on `{on}` being {wanted!r}, which is none of its choices")
            found.append((gene, [self.choices[gene].index(value) for value in values]))
        return found

    def found(self, name: str, on: str, scope: _Scope) -> int:
        """The gene of a name that another depends on."""
        holder = scope.holder(on)
        if holder is None:
            near = difflib.get_close_matches(on, scope.all_names(), 1)
            hint = f"did you mean `{near[0]}`?" if near else None
            raise InputError(f"`{name}` depends on `{on}`, which the space does not have", hint)
        if on not in holder.genes:
            is_block = isinstance(holder.names[on], Repeat)
            what = "comes after it"
            if on in holder.constants:
                what = "is the same for all candidates"
            elif is_block:
                what = "is a block"
            raise InputError(f"`{name}` depends on `{on}`, which {what}")
        return holder.genes[on]


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
