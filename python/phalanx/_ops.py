"""Ranks and their operations, without any framework.

A process becomes a rank by :func:`init`. Operations of ranks are matched by name: operations without one are numbered
in the order in which a rank issues them.
"""

from __future__ import annotations

import enum
import itertools
import os
import threading
from typing import Any, Callable, Iterable, Optional, Sequence, Tuple, Union

import numpy as np

from . import _closing, _phalanx
from .errors import NotInitialized, OperandError, OperationError

__all__ = [
    "Adasum",
    "Average",
    "Handle",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "add_process_set",
    "barrier",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "epoch",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "issue",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "newcomers_wait",
    "poll",
    "rank",
    "reduction_of",
    "remove_process_set",
    "reset",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]

HorovodInternalError = OperationError
"""What programs written for Horovod call an operation that did not happen."""


class ReduceOp(enum.Enum):
    """How values of ranks are combined."""

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"
    ADASUM = "adasum"


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT
Adasum = ReduceOp.ADASUM


class _Session:
    """This process as a rank."""

    def __init__(self) -> None:
        self.rank_ops = _phalanx.RankOps()
        self.begin()

    def begin(self) -> None:
        (
            self.rank,
            self.size,
            self.local_rank,
            self.local_size,
            self.cross_rank,
            self.cross_size,
            self.epoch,
        ) = self.rank_ops.place
        self.numbers: dict[Tuple[str, int], itertools.count[int]] = {}
        self.sets: dict[int, ProcessSet] = {}

    def name(self, kind: str, process_set: int) -> str:
        """A name for an operation without one; the same on all ranks that issue such operations in one order."""
        number = self.numbers.setdefault((kind, process_set), itertools.count())
        return f"{kind}.noname.{next(number)}"

    def end(self) -> None:
        """Forgets the sets of ranks, which end with the group."""
        for process_set in self.sets.values():
            process_set.process_set_id = None
        self.sets = {}

    def close(self) -> None:
        self.end()
        self.rank_ops.close()


_lock = threading.RLock()
_current: Optional[_Session] = None


def _session() -> _Session:
    session = _current
    if session is None:
        raise NotInitialized("this process is not a rank", "call `init()` first")
    return session


class ProcessSet:
    """Some of the ranks, which compute together. All ranks add a set by :func:`add_process_set`."""

    process_set_id: Optional[int] = None

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks = sorted(set(ranks))

    @property
    def ranks(self) -> list[int]:
        """Its ranks."""
        return list(self._ranks)

    def included(self) -> bool:
        """Whether this process is one of its ranks."""
        return rank() in self.ranks

    def size(self) -> int:
        """How many ranks it has."""
        self.number()
        return len(self.ranks)

    def rank(self) -> int:
        """The number of this process among its ranks."""
        self.number()
        if not self.included():
            raise OperandError(f"rank {rank()} is not in {self}")
        return self.ranks.index(rank())

    def number(self) -> int:
        """The number of the set, if it has been added."""
        if self.process_set_id is None:
            raise OperandError(f"{self} was not added", "call `add_process_set` on all ranks")
        return self.process_set_id

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcessSet) and self.ranks == other.ranks

    def __hash__(self) -> int:
        return hash(tuple(self._ranks))


class _GlobalProcessSet(ProcessSet):
    """All ranks."""

    process_set_id = 0

    def __init__(self) -> None:
        super().__init__([])

    @property
    def ranks(self) -> list[int]:
        return list(range(_session().size))

    def size(self) -> int:
        return _session().size

    def rank(self) -> int:
        return _session().rank

    def __repr__(self) -> str:
        return "ProcessSet(process_set_id=0)"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return 0


global_process_set: ProcessSet = _GlobalProcessSet()
"""All ranks."""


def init(comm: Any = None, process_sets: Union[None, str, Sequence[ProcessSet]] = None) -> None:
    """Makes this process a rank: meets the others as the environment says. A process without such variables is the
    only rank.

    ``process_sets`` are added at once; ``"dynamic"`` is taken, since sets can always be added later.
    """
    global _current
    if comm is not None:
        raise OperandError("communicators of MPI cannot be used", "start ranks by `phalanx launch`, srun or mpirun")
    with _lock:
        if _current is None:
            session = _Session()
            _closing.close_at_exit(session)
            _current = session
            for process_set in process_sets if process_sets and not isinstance(process_sets, str) else ():
                add_process_set(process_set)


def shutdown() -> None:
    """Leaves the other ranks. :func:`init` can be called again."""
    global _current
    with _lock:
        session, _current = _current, None
        if session is not None:
            session.close()


def reset() -> None:
    """Meets the ranks that are alive as a new group: after a rank was lost, or to let new ones in."""
    with _lock:
        session = _session()
        session.end()
        session.rank_ops.reset()
        session.begin()


def newcomers_wait() -> bool:
    """Whether processes wait to become ranks. All ranks ask, and get the same answer; :func:`reset` lets them in."""
    here = _session().rank_ops.newcomers
    if here is None:
        return False
    flag = np.array([here], np.uint8)
    tensor = (flag.ctypes.data, flag.ctypes.data, "uint8", flag.shape)
    issue("allreduce", [tensor], flag, lambda _: None, name="phalanx.newcomers", reduction="max").wait()
    return bool(flag[0])


def is_initialized() -> bool:
    """Whether this process is a rank."""
    return _current is not None


def rank() -> int:
    """The number of this rank."""
    return _session().rank


def size() -> int:
    """How many ranks there are."""
    return _session().size


def local_rank() -> int:
    """The number of this rank among those of its host."""
    return _session().local_rank


def local_size() -> int:
    """How many ranks this host has."""
    return _session().local_size


def cross_rank() -> int:
    """The number of this host."""
    return _session().cross_rank


def cross_size() -> int:
    """How many hosts there are."""
    return _session().cross_size


def epoch() -> int:
    """Which group of ranks this is: every reset makes a later one."""
    return _session().epoch


def is_homogeneous() -> bool:
    """Whether all hosts have equally many ranks."""
    session = _session()
    return session.local_size * session.cross_size == session.size


def start_timeline(file_path: Union[str, os.PathLike[str]], mark_cycles: bool = False) -> None:
    """Begins to record when operations wait and compute, as a Chrome trace."""
    _session().rank_ops.start_timeline(file_path)


def stop_timeline() -> None:
    """Ends the recording and writes it."""
    _session().rank_ops.stop_timeline()


def mpi_built() -> bool:
    """Whether MPI carries operations: it does not."""
    return False


def mpi_enabled() -> bool:
    """Whether MPI carries operations: it does not."""
    return False


def mpi_threads_supported() -> bool:
    """Whether several threads may issue operations: they may."""
    return True


def gloo_built() -> bool:
    """Whether operations need no MPI: they do not."""
    return True


def gloo_enabled() -> bool:
    """Whether operations need no MPI: they do not."""
    return True


def nccl_built() -> int:
    """Whether NCCL carries operations: it does not."""
    return 0


def ddl_built() -> bool:
    """Whether DDL carries operations: it does not."""
    return False


def ccl_built() -> bool:
    """Whether oneCCL carries operations: it does not."""
    return False


def cuda_built() -> bool:
    """Whether operations run on a GPU: they do not, tensors are copied to the host."""
    return False


def rocm_built() -> bool:
    """Whether operations run on a GPU: they do not, tensors are copied to the host."""
    return False


Finish = Callable[[list[_phalanx.OpsOutput]], Any]
Tensor = Tuple[int, int, str, Sequence[int]]
"""Where a tensor is read, where its result goes (0: it is returned), its type and its shape."""


class Handle:
    """An operation that is under way. :func:`synchronize` gives its result."""

    __slots__ = ("_finish", "_lock", "_operation", "_result")

    def __init__(self, operation: _phalanx.OpsHandle, finish: Finish) -> None:
        self._operation: Optional[_phalanx.OpsHandle] = operation
        self._finish: Optional[Finish] = finish
        self._result: Union[BaseException, Tuple[Any], None] = None
        self._lock = threading.Lock()

    def poll(self) -> bool:
        """Whether :meth:`wait` returns at once."""
        operation = self._operation
        return operation is None or operation.poll()

    def then(self, change: Callable[[Any], Any]) -> Handle:
        """The same operation with a changed result; for a handle that was just made."""
        finish = self._finish
        if finish is not None:
            self._finish = lambda outputs: change(finish(outputs))
        return self

    def wait(self) -> Any:
        """Waits for the end of the operation and gives its result, or raises why there is none."""
        with self._lock:
            if self._operation is not None and self._finish is not None:
                try:
                    outputs, _ = self._operation.wait()
                    self._result = (self._finish(outputs),)
                except KeyboardInterrupt:
                    raise
                except Exception as error:
                    self._result = error
                self._operation = self._finish = None
        if isinstance(self._result, BaseException):
            raise self._result
        assert self._result is not None
        return self._result[0]


def issue(
    kind: str,
    tensors: Sequence[Tensor],
    owner: object,
    finish: Finish,
    *,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    **options: Any,
) -> Handle:
    """Issues an operation. ``owner`` keeps the memory of its tensors alive."""
    session = _session()
    number = process_set.number()
    operation = session.rank_ops.submit(
        kind, name or session.name(kind, number), tensors, owner, set=number, **options
    )
    return Handle(operation, finish)


def poll(handle: Any) -> bool:
    """Whether :func:`synchronize` returns at once."""
    return bool(handle.poll())


def synchronize(handle: Any) -> Any:
    """Waits for the end of an operation and gives its result."""
    return handle.wait()


def reduction_of(op: Optional[ReduceOp], average: Optional[bool] = None) -> ReduceOp:
    """The reduction that two arguments say: ``op``, or the older ``average``."""
    if op is not None and average is not None:
        raise OperandError("`op` and `average` cannot both be given", "say only `op`")
    if op is None:
        return Sum if average is False else Average
    if not isinstance(op, ReduceOp):
        raise OperandError(f"`op` must be Average, Sum, Min, Max, Product or Adasum, not {op!r}")
    return op


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks of the set have called it."""
    issue("barrier", [], None, lambda _: None, process_set=process_set).wait()


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and waits until all ranks have said so.

    Until then it takes part in their sums and averages with zeros. Gives the rank that joined last.
    """
    _, last = _session().rank_ops.join().wait()
    return -1 if last is None else last


def add_process_set(process_set: Union[ProcessSet, Iterable[int]]) -> ProcessSet:
    """Makes a set of some ranks. All ranks call it with the same ones."""
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    session = _session()
    ranks = added.ranks
    if added.process_set_id is not None or any(known.ranks == ranks for known in session.sets.values()):
        raise OperandError(f"a process set of ranks {ranks} was added already")
    if not ranks or ranks[0] < 0 or ranks[-1] >= session.size:
        raise OperandError(f"{ranks} are not ranks among {session.size}")
    _, number = session.rank_ops.submit("add_set", f"add-set {ranks}", [], None, ranks=ranks).wait()
    assert number is not None
    added.process_set_id = number
    session.sets[number] = added
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set. All ranks call it. ``False`` if it was not added, or is that of all ranks."""
    session = _session()
    number = process_set.process_set_id
    if number is None or number == 0:
        return False
    session.rank_ops.submit("remove_set", f"remove-set {number}", [], None, set=number).wait()
    session.sets.pop(number, None)
    process_set.process_set_id = None
    return True
