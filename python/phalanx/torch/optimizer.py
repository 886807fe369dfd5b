"""An optimizer that exchanges gradients with the other ranks while they are computed."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Tuple, Union

import torch

from .._ops import Adasum, Average, Handle, ProcessSet, ReduceOp, Sum, global_process_set
from ..errors import OperandError, OperationError
from .collectives import allreduce_async_, grouped_allreduce_async_, sparse_allreduce_async
from .compression import Compression

__all__ = ["DistributedOptimizer"]

NamedParameters = Iterable[Tuple[str, torch.nn.Parameter]]
Groups = Union[None, int, Sequence[Sequence[torch.nn.Parameter]]]


def _names(optimizer: torch.optim.Optimizer, named: Optional[NamedParameters]) -> dict[Any, str]:
    """A name for each parameter, the same on all ranks."""
    known: dict[Any, str] = {}
    for item in named or ():
        if not (isinstance(item, tuple) and len(item) == 2):
            raise OperandError("`named_parameters` must be pairs", "say `model.named_parameters()`")
        name, parameter = item
        if name in known.values():
            raise OperandError(f"two parameters are called {name!r}")
        known[parameter] = name
    names: dict[Any, str] = {}
    for number, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            if named is not None and parameter not in known:
                raise OperandError("`named_parameters` lacks a parameter of the optimizer")
            names[parameter] = known.get(parameter, f"allreduce.noname.{number}.{place}")
    return names


_GROUP_BYTES = 8 << 20


def _usual_groups(parameters: Sequence[Any]) -> list[list[Any]]:
    """Neighbours of one type, last ones first, as gradients come: few large exchanges cost less than many small ones."""
    groups: list[list[Any]] = []
    size = 0
    for parameter in reversed(parameters):
        own = parameter.numel() * parameter.element_size()
        fits = groups and size + own <= _GROUP_BYTES and groups[-1][0].dtype == parameter.dtype
        if fits:
            groups[-1].append(parameter)
            size += own
        else:
            groups.append([parameter])
            size = own
    return groups


def _groups(parameters: Sequence[Any], groups: Groups) -> list[list[Any]]:
    """Which parameters are exchanged as one; those of no group are alone."""
    if groups is None:
        return _usual_groups(parameters)
    if isinstance(groups, int):
        if groups < 0:
            raise OperandError("`groups` cannot be negative")
        count = min(groups, len(parameters))
        if count == 0:
            return []
        size, more = divmod(len(parameters), count)
        ends = [number * size + min(number, more) for number in range(count + 1)]
        return [list(parameters[begin:end]) for begin, end in zip(ends, ends[1:])]
    listed = [list(group) for group in groups or ()]
    every = [parameter for group in listed for parameter in group]
    if len(set(every)) != len(every):
        raise OperandError("a parameter is in two groups")
    return listed


class _Exchange:
    """Gradients on their way: hooks issue operations, and a step waits for them."""

    def __init__(
        self,
        names: dict[Any, str],
        groups: list[list[Any]],
        compression: Any,
        passes: int,
        reduce: Callable[..., Handle],
        sparse_as_dense: bool,
        sparse: Callable[[Any, str], Handle],
    ) -> None:
        self.names = {parameter: name for parameter, name in names.items() if parameter.requires_grad}
        self.compression = compression
        self.passes = passes
        self.reduce = reduce
        self.sparse_as_dense = sparse_as_dense
        self.sparse = sparse
        self.left = {parameter: passes for parameter in self.names}
        self.group_of: dict[Any, int] = {}
        self.groups = [[parameter for parameter in group if parameter in self.names] for group in groups]
        for number, group in enumerate(self.groups):
            self.group_of.update((parameter, number) for parameter in group)
        self.ready: list[set[Any]] = [set() for _ in self.groups]
        self.under_way: list[Tuple[Handle, list[Any], list[Any]]] = []
        self.issued: set[Any] = set()
        self.hooks = [_watch(parameter, self.on_gradient) for parameter in self.names]

    def on_gradient(self, parameter: Any) -> None:
        if parameter in self.issued or self.left[parameter] <= 0:
            raise OperationError(
                "gradients were computed more often than `backward_passes_per_step` before `step()`",
                "increase `backward_passes_per_step`, or call `synchronize()` in between",
            )
        self.left[parameter] -= 1
        if self.left[parameter] == 0:
            self.issue(parameter)

    def issue(self, parameter: Any) -> None:
        self.issued.add(parameter)
        if parameter.grad is None:
            # Another rank may have a gradient where this one has none.
            parameter.grad = torch.zeros_like(parameter)
        grad = parameter.grad
        if grad.is_sparse and self.sparse_as_dense:
            parameter.grad = grad.to_dense()
        elif grad.is_sparse:
            handle = self.sparse(grad, f"sparse.{self.names[parameter]}")
            self.under_way.append((handle, [parameter], [None]))
        number = self.group_of.get(parameter)
        group = [parameter]
        if number is not None:
            group = self.groups[number]
            self.ready[number].add(parameter)
        if number is None or len(self.ready[number]) == len(group):
            self.send([member for member in group if not member.grad.is_sparse])

    def send(self, parameters: list[Any]) -> None:
        if not parameters:
            return
        name = self.names[parameters[0]] + (f" and {len(parameters) - 1} more" if len(parameters) > 1 else "")
        packed = [self.compression.compress(parameter.grad) for parameter in parameters]
        small = [tensor for tensor, _ in packed]
        handle = self.reduce(small if len(small) > 1 else small[0], name=f"grad.{name}")
        self.under_way.append((handle, parameters, packed))

    def finish(self) -> None:
        """Waits for all gradients; what this rank has not computed it takes for zero."""
        for parameter in self.names:
            if parameter not in self.issued:
                self.issue(parameter)
        under_way, self.under_way = self.under_way, []
        try:
            for handle, parameters, packed in under_way:
                self.unpack(handle.wait(), parameters, packed)
        finally:
            self.start_over()

    def start_over(self) -> None:
        self.issued = set()
        self.under_way = []
        self.ready = [set() for _ in self.groups]
        self.left = {parameter: self.passes for parameter in self.names}

    def unpack(self, result: Any, parameters: list[Any], packed: list[Any]) -> None:
        results = result if isinstance(result, list) else [result]
        for parameter, tensor, pack in zip(parameters, results, packed):
            if pack is None:
                parameter.grad = tensor
                continue
            whole = self.compression.decompress(tensor, pack[1])
            if whole is not parameter.grad:
                parameter.grad.copy_(whole)


def _watch(parameter: Any, act: Callable[[Any], None]) -> Any:
    """Has a function called whenever a gradient has been added up."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(act)
    node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    node.register_hook(lambda *_: act(parameter))
    return node


class _Distributed:
    """Comes before the optimizer's own class."""

    _exchange: Optional[_Exchange]
    _synchronized: bool
    _should_synchronize: bool

    def synchronize(self) -> None:
        """Waits for the gradients of all ranks, as :meth:`step` does otherwise: to clip them, say."""
        if self._exchange is not None:
            self._exchange.finish()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """For a :meth:`step` after :meth:`synchronize`."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """How many backward passes there are before a step."""
        if self._exchange is not None:
            self._exchange.passes = passes
            self._exchange.start_over()

    def step(self, closure: Any = None) -> Any:
        """Waits for the gradients of all ranks and changes the parameters."""
        if self._should_synchronize and not self._synchronized:
            self.synchronize()
        self._synchronized = False
        return super().step(closure)  # type: ignore[misc]

    def zero_grad(self, *args: Any, **kwargs: Any) -> Any:
        """Forgets the gradients."""
        if self._exchange is not None and self._exchange.issued:
            raise OperationError(
                "`zero_grad()` was called while gradients were on their way", "call `step()` or `synchronize()` before"
            )
        return super().zero_grad(*args, **kwargs)  # type: ignore[misc]


class _DistributedAdasum(_Distributed):
    """Steps are taken alone; what they changed is combined."""

    _compression: Any
    _process_set: ProcessSet
    _names: dict[Any, str]

    def step(self, closure: Any = None) -> Any:
        before = {parameter: parameter.detach().clone() for parameter in self._names}
        result = super(_Distributed, self).step(closure)  # type: ignore[misc]
        handles = []
        for parameter, name in self._names.items():
            change, ctx = self._compression.compress(parameter.detach() - before[parameter])
            handle = allreduce_async_(change, name=f"adasum.{name}", op=Adasum, process_set=self._process_set)
            handles.append((parameter, handle, ctx))
        for parameter, handle, ctx in handles:
            whole = self._compression.decompress(handle.wait(), ctx)
            parameter.detach().copy_(before[parameter] + whole)
        return result


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[NamedParameters] = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The optimizer, which now exchanges gradients with the other ranks during ``backward()``.

    It is still an instance of the optimizer's class. ``op`` is Average, Sum, or Adasum, which combines what steps
    change. ``gradient_predivide_factor`` divides gradients before they are added and multiplies the sum.
    ``groups`` are lists of parameters, or how many groups there are: gradients of a group are exchanged together.
    Without it groups of some megabytes are made; 0 exchanges every gradient by itself.
    """
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise OperandError("`gradient_predivide_factor` is for `op=Average`")
    if op not in (Average, Sum, Adasum):
        raise OperandError(f"gradients can be averaged, added or combined by Adasum, not by {op!r}")
    if backward_passes_per_step < 1:
        raise OperandError("`backward_passes_per_step` must be at least 1")
    names = _names(optimizer, None if named_parameters is None else list(named_parameters))
    base = _DistributedAdasum if op is Adasum else _Distributed
    cls: Any = type(type(optimizer).__name__, (base, type(optimizer)), {})
    distributed: Any = cls.__new__(cls)
    # Both are one optimizer: a scheduler of the first changes the second, whose `step` it must not replace.
    distributed.__dict__ = optimizer.__dict__
    distributed.__dict__.pop("step", None)
    distributed._synchronized = False
    distributed._should_synchronize = True
    distributed._exchange = None
    if op is Adasum:
        distributed._names = {parameter: name for parameter, name in names.items() if parameter.requires_grad}
        distributed._compression, distributed._process_set = compression, process_set
        return distributed
    factors = (1.0 / gradient_predivide_factor, gradient_predivide_factor)

    def reduce(tensors: Any, name: str) -> Handle:
        issue = grouped_allreduce_async_ if isinstance(tensors, list) else allreduce_async_
        return issue(tensors, None, name, op, *factors, process_set)

    # A process set does not have this rank: it steps by itself.
    if process_set is global_process_set or process_set.included():
        parameters = [parameter for parameter in names if parameter.requires_grad]
        distributed._exchange = _Exchange(
            names,
            _groups(parameters, num_groups if groups is None and num_groups else groups),
            compression,
            backward_passes_per_step,
            reduce,
            sparse_as_dense,
            lambda grad, name: sparse_allreduce_async(grad, name, op, process_set),
        )
    return distributed
