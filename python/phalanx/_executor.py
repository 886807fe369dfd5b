"""An executor whose functions run on the nodes of a domain."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import sys
import threading
import time
import uuid
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

from . import _phalanx
from ._closing import close_at_exit
from ._futures import NodeFuture
from ._inputs import collecting, same, taken
from ._nodes import Domain
from ._pickling import dump, dump_function
from ._program import program
from .errors import ConfigError, InputError, JobExpired, JobFailed

__all__ = ["CallFuture", "Executor", "RemoteTraceback"]

T = TypeVar("T")

# How a call ended, as the extension module says it.
_RETURNED, _RAISED, _FAILED, _EXPIRED, _CANCELLED, _KEPT = range(6)
# How often a wait for the end of all calls looks for Ctrl-C.
_TICK = 0.1


class RemoteTraceback(Exception):
    """The cause of an exception that was raised on a node: the traceback there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\n{self.text}"


class CallFuture(NodeFuture[T]):
    """The result of a call that may not have ended yet.

    ``cancel`` also ends a call that runs, by ending its worker process; ``why`` says where it stands and why.

    A large result stays at the node that computed it until ``result`` asks for it. A future may be an argument of
    another call of its executor: the function is given the result, which goes straight from node to node. The result
    is freed with the future, once no call takes it any more; if its node is lost before, it is computed again.
    """

    _session: "Optional[_Session]" = None
    _reference: "Optional[_phalanx.Reference]" = None
    _is_away = False
    _is_wanted = False

    def result(self, timeout: Optional[float] = None) -> T:
        """Waits for the result, and fetches it from its node. Ctrl-C ends the wait."""
        until = None if timeout is None else time.monotonic() + timeout
        if self._session is not None and not self._is_wanted and self._ticket is not None and not self.done():
            # It is fetched as soon as it is there.
            self._is_wanted = True
            self._main.want(self._ticket)
        value = super().result(timeout)
        if self._is_away:
            value = self._fetch(until)
        return value

    def _fetch(self, until: Optional[float]) -> Any:
        reference = self._reference
        if reference is None:
            return super().result(0)
        fetched = self._main.fetch(reference, None if until is None else max(until - time.monotonic(), 0))
        if fetched is None:
            raise futures.TimeoutError()
        value, more = fetched
        if value is None:
            raise JobFailed(more)
        with self._condition:
            if self._is_away:
                self._result = pickle.loads(value) if more is None else _load(value, more)
                self._is_away = False
            return self._result

    def __reduce__(self) -> "Any":
        inputs = collecting.inputs
        if inputs is None or inputs.session is not self._session:
            raise TypeError("a future can be sent only as an argument of another call of its executor")
        inputs.lock()
        if not self.done():
            return taken, (inputs.number(self, self._ticket),)
        if self._reference is not None:
            return taken, (inputs.number(self, self._reference),)
        try:
            value = super().result(0)
        except BaseException as error:
            raise _InputFailed(error) from None
        return same, (value,)


class _InputFailed(Exception):
    """A future that a call should take has no result."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class _Inputs:
    """The futures that one call takes."""

    def __init__(self, session: "_Session") -> None:
        self.session = session
        self.takes: "List[Any]" = []
        self._numbers: "dict[int, int]" = {}
        self._is_locked = False

    def number(self, future: "CallFuture[Any]", takes: Any) -> int:
        number = self._numbers.get(id(future))
        if number is None:
            number = self._numbers[id(future)] = len(self.takes)
            self.takes.append(takes)
        return number

    def lock(self) -> None:
        """From here on, until the call is submitted, no result counts as settled."""
        if not self._is_locked:
            self.session.settling.acquire()
            self._is_locked = True

    def unlock(self) -> None:
        if self._is_locked:
            self.session.settling.release()
            self._is_locked = False


@dataclass(frozen=True)
class _Options:
    priority: int = 0
    deadline: Optional[float] = None
    attempts: Optional[int] = None
    cores: int = 1
    memory: int = 0

    def native(self) -> _phalanx.CallOptions:
        return _phalanx.CallOptions(
            priority=self.priority,
            deadline=self.deadline,
            attempts=self.attempts,
            cores=self.cores,
            memory=self.memory,
        )


class _PrivateDomain(Domain):
    """A domain of one executor and its nodes; it has no key, whatever the environment says."""

    @property
    def key_file(self) -> None:
        return None


class _Session:
    """The main node of an executor, the nodes that it started, and the thread that settles futures."""

    def __init__(self, domain: Union[str, Domain], local: Optional[int], cores: int, name: str) -> None:
        self.nodes: Optional[_phalanx.LocalNodes] = None
        place = Domain(domain) if isinstance(domain, str) else domain
        if local is not None:
            place = _PrivateDomain(f"executor-{uuid.uuid4().hex[:12]}")
        self.main = _phalanx.CallMain(place, name)
        self.pid = os.getpid()
        self.is_shut_down = False
        self._settled = 0
        # Held while a call that takes unsettled futures is submitted, and while the main node hears what is settled.
        self.settling = threading.RLock()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._hear, name="phalanx-results", daemon=True)
        self._thread.start()
        close_at_exit(self)
        if local is not None:
            try:
                self.nodes = _local_nodes(place.name, local, cores)
            except BaseException:
                self.close()
                raise

    def finish(self) -> None:
        """Waits until all calls have ended, then leaves the domain."""
        with self._changed:
            while self._settled < self.main.submitted and self._thread.is_alive():
                self._changed.wait(_TICK)
        self.close()

    def close(self) -> None:
        """Leaves the domain. Calls without result are cancelled."""
        self.is_shut_down = True
        self.main.close()
        if self.nodes is not None:
            self.nodes.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _hear(self) -> None:
        take = self.main.take_results
        while (results := take()) is not None:
            kept = 0
            for future, how, value, more, reference in results:
                kept += future._session is not None
                _settle(future, how, value, more, reference)
            # The last result goes before the wait for the next ones.
            future = value = more = reference = None
            self._settled += len(results)
            del results
            if kept:
                self._tell_settled(kept)
            if self.is_shut_down:
                with self._changed:
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


    def _tell_settled(self, count: int) -> None:
        with self.settling:
            try:
                self.main.settled(count)
            except InputError:
                # The main node was closed meanwhile.
                pass


def _local_nodes(domain: str, count: int, cores: int) -> _phalanx.LocalNodes:
    if not sys.executable:
        raise InputError("the interpreter does not know its own file, so nodes cannot start it")
    # Functions of modules are found by name: where this program finds them, its workers do.
    path = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    arguments = [f"--allow-python={sys.executable}"]
    return _phalanx.LocalNodes(program(), domain, count, cores, arguments, [("PHALANX_WORKER_PATH", path)])


def _settle(future: "CallFuture[Any]", how: int, value: Any, more: Any, reference: Any) -> None:
    if how == _CANCELLED:
        Future.cancel(future)
    if not future.set_running_or_notify_cancel():
        return
    future._reference = reference
    if how == _KEPT:
        future._is_away = True
        future.set_result(None)
        return
    if how != _RETURNED:
        future.set_exception(_error(how, value, more))
        return
    try:
        result = pickle.loads(value) if more is None else _load(value, more)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def _load(value: bytes, memories: "Sequence[_phalanx.Memory]") -> Any:
    import numpy

    return pickle.loads(value, buffers=[numpy.asarray(memory) for memory in memories])


def _error(how: int, value: Any, more: Any) -> BaseException:
    if how == _RAISED:
        return _raised(value, more)
    if how == _EXPIRED:
        return JobExpired("the call had no result before its deadline")
    return JobFailed(str(more))


def _raised(pickled: bytes, told: "Tuple[str, str, str]") -> BaseException:
    """The exception that a function raised, or what is known of it."""
    name, message, traceback = told
    error: Any = None
    try:
        error = pickle.loads(pickled) if pickled else None
    except Exception:
        # Its class is not here, or cannot be made again from what was pickled.
        pass
    known = error if isinstance(error, BaseException) else JobFailed(f"{name}: {message}" if message else name)
    known.__cause__ = RemoteTraceback(traceback)
    return known


def _call_each(function: Callable[..., T], calls: "Sequence[Sequence[Any]]") -> "List[T]":
    return [function(*arguments) for arguments in calls]


class Executor(futures.Executor):
    """Calls functions on the nodes of a domain, or on nodes of this machine that it starts.

    Nodes call Python functions only if they were started with ``phalanx node --allow-python``. With ``local=N``, N
    nodes of this machine with ``local_cores`` cores each run this Python and end with the executor.

    Functions and arguments are pickled when ``submit`` is called, functions by value where their module cannot be
    imported. The memory of NumPy arrays travels beside the pickles; arrays that arrive cannot be written.

    >>> from phalanx.jobs import Executor
    >>> with Executor(local=1) as executor:
    ...     executor.submit(pow, 2, 10).result(timeout=60)
    ...     list(executor.map(abs, [-1, 2, -3], timeout=60))
    1024
    [1, 2, 3]
    """

    def __init__(
        self,
        domain: Union[str, Domain] = "default",
        *,
        local: Optional[int] = None,
        local_cores: int = 1,
        name: str = "executor",
    ) -> None:
        if local is not None and domain != "default":
            raise ConfigError("`domain` and `local` are both given", "say one of them")
        if local is not None and (local < 1 or local_cores < 1):
            raise ConfigError("`local` and `local_cores` must be at least 1")
        self._given = _Options()
        self._options = self._given.native()
        self._session = _Session(domain, local, local_cores, name)

    @property
    def id(self) -> str:
        """What its main node is called in the domain."""
        return self._session.main.id

    def options(
        self,
        *,
        priority: Optional[int] = None,
        deadline: Optional[float] = None,
        attempts: Optional[int] = None,
        cores: Optional[int] = None,
        memory: Optional[int] = None,
    ) -> "Executor":
        """The same executor, whose calls have these options; what is not given stays as it is.

        Calls of a higher ``priority`` start first. A call without result ``deadline`` seconds after it was submitted
        fails with ``JobExpired``. A call whose worker or node dies runs again, ``attempts`` times in all. Each call
        takes ``cores`` and ``memory`` (bytes) of its node.
        """
        said: "dict[str, Any]" = dict(
            priority=priority, deadline=deadline, attempts=attempts, cores=cores, memory=memory
        )
        view = copy.copy(self)
        view._given = replace(self._given, **{name: value for name, value in said.items() if value is not None})
        view._options = view._given.native()
        return view

    def submit(self, fn: "Callable[..., T]", /, *args: Any, **kwargs: Any) -> "CallFuture[T]":
        """Has ``fn(*args, **kwargs)`` called on a node.

        Futures of this executor among the arguments, also within lists and the like, stand for their results: the
        call waits for them, and they do not pass through this program.
        """
        return self._call(dump_function(fn, _phalanx.Function), args, kwargs, keep=True)

    def map(
        self,
        fn: "Callable[..., T]",
        *iterables: "Iterable[Any]",
        timeout: Optional[float] = None,
        chunksize: int = 1,
    ) -> "Iterator[T]":
        """Calls ``fn`` with the items of the iterables; gives the results in order.

        All items are submitted at once, ``chunksize`` of them in each call. If a result is not there ``timeout``
        seconds after ``map`` was called, or a call raised, the remaining calls are cancelled.
        """
        if chunksize < 1:
            raise ValueError("`chunksize` must be at least 1")
        until = None if timeout is None else time.monotonic() + timeout
        calls = zip(*iterables)
        if chunksize == 1:
            function = dump_function(fn, _phalanx.Function)
            return _results([self._call(function, args, {}) for args in calls], until)
        function = dump_function(functools.partial(_call_each, fn), _phalanx.Function)
        chunks = [self._call(function, (chunk,), {}) for chunk in _chunks(calls, chunksize)]
        return (result for results in _results(chunks, until) for result in results)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls, and leaves the domain when all calls have ended.

        With ``cancel_futures`` calls are cancelled, those that run included. Without ``wait`` it returns at once.
        """
        session = self._session
        first, session.is_shut_down = not session.is_shut_down, True
        if cancel_futures and first:
            session.main.cancel_all()
        if wait:
            session.finish()
        elif first:
            threading.Thread(target=session.finish, name="phalanx-shutdown", daemon=True).start()

    def _call(
        self, function: _phalanx.Function, args: "Tuple[Any, ...]", kwargs: "dict[str, Any]", keep: bool = False
    ) -> "CallFuture[Any]":
        session = self._session
        if session.is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        buffers: "List[pickle.PickleBuffer]" = []
        future: "CallFuture[Any]" = CallFuture(session.main, session.pid)
        future._session = session if keep else None
        inputs, outer = _Inputs(session), collecting.inputs
        collecting.inputs = inputs
        try:
            arguments = dump((args, kwargs), buffers)
            future._ticket = session.main.call(
                function, arguments, _arrays(buffers), self._options, future, keep, inputs.takes
            )
        except _InputFailed as failed:
            future.set_running_or_notify_cancel()
            future.set_exception(failed.error)
        finally:
            collecting.inputs = outer
            inputs.unlock()
        return future


def _arrays(buffers: "List[pickle.PickleBuffer]") -> "List[Any]":
    if not buffers:
        return []
    import numpy

    return [numpy.frombuffer(buffer.raw(), dtype="uint8") for buffer in buffers]


def _chunks(calls: "Iterator[Tuple[Any, ...]]", size: int) -> "Iterator[List[Tuple[Any, ...]]]":
    chunk: "List[Tuple[Any, ...]]" = []
    for call in calls:
        chunk.append(call)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _results(calls: "List[CallFuture[T]]", until: Optional[float]) -> "Iterator[T]":
    calls.reverse()
    try:
        while calls:
            call = calls.pop()
            yield call.result(None if until is None else max(until - time.monotonic(), 0))
    finally:
        for call in calls:
            call.cancel()
