"""Collectives over tensors of any framework, which an adapter describes."""

from __future__ import annotations

from typing import Any, Optional, Protocol, Sequence, Tuple

from . import _ops
from ._ops import Handle, ProcessSet, ReduceOp, global_process_set
from ._phalanx import OpsOutput
from .errors import OperandError

__all__ = ["Adapter", "Collectives", "first", "first_tensor", "only_tensors"]


class Adapter(Protocol):
    """What the collectives need to know of a framework's tensors."""

    def host(self, tensor: Any) -> Tuple[Any, bool]:
        """The tensor as one that lies contiguous in the memory of the host, and whether that is a copy."""

    def empty_like(self, host: Any) -> Any:
        """Another tensor of the host of the same type and shape."""

    def address(self, host: Any) -> int:
        """Where it lies."""

    def describe(self, host: Any) -> Tuple[str, Sequence[int]]:
        """Its type and shape."""

    def from_output(self, output: OpsOutput, given: Any) -> Any:
        """A tensor that an operation made, of the type and on the device of the one that was given."""

    def give(self, host: Any, given: Any) -> Any:
        """A result of the host on the device of the tensor that was given."""

    def assign(self, target: Any, host: Any) -> None:
        """Copies values into the caller's tensor."""

    def writable(self, tensor: Any) -> bool:
        """Whether results can be written into it."""


class Collectives:
    """Operations on lists of tensors: one of several is a group, which happens as a whole."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter

    def allreduce(
        self,
        tensors: Sequence[Any],
        *,
        in_place: bool,
        op: ReduceOp,
        name: Optional[str] = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Handle:
        """Combines the tensors of all ranks; the result is a list of tensors."""
        options = {"reduction": op.value, "prescale": float(prescale), "postscale": float(postscale)}
        return self._written("allreduce", tensors, in_place, name, process_set, options)

    def broadcast(
        self,
        tensors: Sequence[Any],
        root_rank: int,
        *,
        in_place: bool,
        name: Optional[str] = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle:
        """Gives all ranks the tensors of one; the result is a list of tensors."""
        if not 0 <= root_rank < _ops.size():
            raise OperandError(f"there is no rank {root_rank} among {_ops.size()}")
        if process_set is not global_process_set and root_rank not in process_set.ranks:
            raise OperandError(f"rank {root_rank} is not in {process_set}")
        return self._written("broadcast", tensors, in_place, name, process_set, {"root": root_rank})

    def _written(
        self,
        kind: str,
        tensors: Sequence[Any],
        in_place: bool,
        name: Optional[str],
        process_set: ProcessSet,
        options: dict[str, Any],
    ) -> Handle:
        adapter = self.adapter
        if in_place and not all(adapter.writable(tensor) for tensor in tensors):
            raise OperandError("the tensor cannot be written", "use the operation without `_` at its end")
        hosts = [adapter.host(tensor) for tensor in tensors]
        inputs = [host for host, _ in hosts]
        # A copy that was made is for the result, too.
        outputs = [host if in_place or copied else adapter.empty_like(host) for host, copied in hosts]

        def finish(_: list[OpsOutput]) -> list[Any]:
            if not in_place:
                return [adapter.give(host, tensor) for host, tensor in zip(outputs, tensors)]
            for tensor, (host, copied) in zip(tensors, hosts):
                if copied:
                    adapter.assign(tensor, host)
            return list(tensors)

        described = [
            (adapter.address(source), adapter.address(target), *adapter.describe(source))
            for source, target in zip(inputs, outputs)
        ]
        owner = (inputs, outputs)
        return _ops.issue(kind, described, owner, finish, name=name, process_set=process_set, **options)

    def allgather(
        self, tensors: Sequence[Any], *, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> Handle:
        """Gathers the rows of all ranks; the result is a list of pairs: a tensor, and how many rows each rank gave."""
        return self._made("allgather", tensors, name, process_set, {})

    def alltoall(
        self,
        tensors: Sequence[Any],
        splits: Optional[Sequence[int]],
        *,
        name: Optional[str] = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle:
        """Sends some rows to each rank; the result is as that of :meth:`allgather`."""
        if splits is not None and any(rows < 0 for rows in splits):
            raise OperandError("splits cannot be negative")
        return self._made("alltoall", tensors, name, process_set, {"splits": splits})

    def reducescatter(
        self,
        tensors: Sequence[Any],
        *,
        op: ReduceOp,
        name: Optional[str] = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Handle:
        """Combines the tensors of all ranks, of which each gets some rows; the result is as that of :meth:`allgather`."""
        if any(len(self.adapter.describe(tensor)[1]) == 0 for tensor in tensors):
            raise OperandError("a single number cannot be scattered")
        options = {"reduction": op.value, "prescale": float(prescale), "postscale": float(postscale)}
        return self._made("reducescatter", tensors, name, process_set, options)

    def _made(
        self,
        kind: str,
        tensors: Sequence[Any],
        name: Optional[str],
        process_set: ProcessSet,
        options: dict[str, Any],
    ) -> Handle:
        adapter = self.adapter
        hosts = [adapter.host(tensor)[0] for tensor in tensors]

        def finish(outputs: list[OpsOutput]) -> list[Tuple[Any, list[int]]]:
            pairs = zip(outputs, tensors)
            return [(adapter.from_output(output, tensor), output.rows) for output, tensor in pairs]

        described = [(adapter.address(host), 0, *adapter.describe(host)) for host in hosts]
        return _ops.issue(kind, described, hosts, finish, name=name, process_set=process_set, **options)


def first(result: Any) -> Any:
    """The tensor of an operation on one."""
    return result[0]


def first_tensor(result: Any) -> Any:
    """The tensor of an operation on one that made it."""
    return result[0][0]


def only_tensors(result: Any) -> list[Any]:
    """The tensors of an operation that made them, without their rows."""
    return [tensor for tensor, _ in result]
