"""Pickles of calls: functions, arguments and results, with the memory of arrays kept out of them.

Ordinary pickles are several times faster than those of ``cloudpickle``, which takes functions, classes and objects of
the program's main module by value. So values go through ``pickle`` first, and through ``cloudpickle`` when that fails
or when the pickle names the main module, which is another one in another process.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import pickle
import sys
import types
import weakref
from typing import Any, Callable, Iterable, List, Optional, Set, Tuple

from .errors import InputError

__all__ = ["Keep", "dump", "dump_function"]

# Is given each buffer that stays out of a pickle.
Keep = Callable[[pickle.PickleBuffer], Any]

_MAIN = b"__main__"
_PROTOCOL = 5


def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ModuleNotFoundError as error:
        raise InputError("functions travel by cloudpickle, which is missing", "pip install cloudpickle") from error
    return cloudpickle


def dump(value: Any, buffers: "Optional[List[pickle.PickleBuffer]]" = None) -> bytes:
    """Pickles a value; memory goes to ``buffers``, if there are any, and not into the pickle."""
    keep = None if buffers is None else buffers.append
    try:
        pickled = pickle.dumps(value, _PROTOCOL, buffer_callback=keep)
        if _MAIN not in pickled and not _by_value():
            return pickled
    except Exception:
        # What cloudpickle says is what counts.
        pass
    if buffers is not None:
        buffers.clear()
    whole: bytes = _cloudpickle().dumps(value, protocol=_PROTOCOL, buffer_callback=keep)
    return whole


def _by_value() -> bool:
    """Whether the program told cloudpickle to take modules by value."""
    cloudpickle = sys.modules.get("cloudpickle")
    return cloudpickle is not None and bool(cloudpickle.list_registry_pickle_by_value())


# Pickled functions by the id of the function: a reference to it, what its pickle was made from, and the result.
_Kept = Tuple["weakref.ref[Any]", List[Any], int, Any]
_KEPT: "dict[int, _Kept]" = {}


def dump_function(function: Callable[..., Any], make: Callable[[bytes, bytes], Any]) -> Any:
    """Gives ``make(hash, pickle)`` of a function.

    A function is pickled as it is now, with the values that it uses of its module and of functions around it. It is
    pickled again only if any of them is another object, or is one that may have changed.
    """
    cloudpickle = _cloudpickle()
    kept = _KEPT.get(id(function))
    found: List[Any] = []
    constant = _captured(function, found, set())
    modules = len(sys.modules)
    if kept is not None and constant and kept[0]() is function and kept[2] == modules:
        if len(kept[1]) == len(found) and all(map(operator.is_, kept[1], found)):
            return kept[3]
    pickled = cloudpickle.dumps(function, protocol=_PROTOCOL)
    made = make(hashlib.sha256(pickled).digest(), pickled)
    if constant:
        number = id(function)
        _KEPT[number] = (weakref.ref(function, lambda _gone: _KEPT.pop(number, None)), found, modules, made)
    return made


_ATOMS = frozenset([int, float, complex, bool, str, bytes, type(None), type(Ellipsis), range])
_ABSENT = object()


def _captured(function: Any, found: List[Any], seen: Set[int]) -> bool:
    """Adds what the pickle of a function is made from; ``False`` if some of it may change and stay the same object."""
    if type(function) is not types.FunctionType:
        return _by_reference(function)
    if _by_reference(function):
        return True
    if id(function) in seen:
        return True
    seen.add(id(function))
    if function.__dict__ or function.__kwdefaults__:
        return False
    found.append(function.__code__)
    return all(_constant(value, found, seen) for value in _values(function))


def _values(function: types.FunctionType) -> Iterable[Any]:
    yield from function.__defaults__ or ()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            yield _ABSENT
    names = function.__globals__
    for name in _names(function.__code__):
        yield names.get(name, _ABSENT)


def _constant(value: Any, found: List[Any], seen: Set[int]) -> bool:
    found.append(value)
    kind = type(value)
    if kind in _ATOMS or value is _ABSENT:
        return True
    if kind is tuple:
        return all(_constant(item, found, seen) for item in value)
    if kind is types.ModuleType:
        return sys.modules.get(value.__name__) is value
    if kind is types.FunctionType:
        # Its parts stand for it: the function itself would be kept alive.
        found.pop()
    return _captured(value, found, seen)


def _by_reference(value: Any) -> bool:
    """Whether the pickle is the name of a module and of something in it."""
    if not isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        return False
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or _by_value():
        return False
    place: Any = sys.modules.get(module)
    for part in name.split("."):
        place = getattr(place, part, None)
    return place is value


@functools.lru_cache(maxsize=1024)
def _names(code: types.CodeType) -> Tuple[str, ...]:
    """The names that a function may look up in its module."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return tuple(dict.fromkeys(name for names in (code.co_names, *inner) for name in names))
