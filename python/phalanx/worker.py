"""A worker process: calls Python functions for a node. ``docs/python-worker.md`` describes the protocol.

A node that was started with ``--allow-python`` runs ``python -m phalanx.worker``; standard input is the socket to it.
"""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import pickle
import socket
import struct
import sys
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from ._pickling import dump

_CALL, _FORGET, _FREE, _CLOSE = 1, 2, 3, 4
_HELLO, _ANSWER, _RAISED, _UNKNOWN = 16, 17, 18, 20
_WITH_FUNCTION, _IN_SEGMENT, _IN_USE = 1, 2, 4
_VERSION = 1
_MOST = 65_536
_INLINE = 16 << 10
_ALIGN = 64
_MOST_BUFFERS = 4096
_SMALLEST_SEGMENT = 1 << 20
_CALL_HEAD = struct.Struct("<xBHIQQ32sI")
_BUFFERS_AT = 64
_ANSWER_HEAD = struct.Struct("<BBHIQQ")
_ANCILLARY = socket.CMSG_SPACE(4)
# Names of Linux that the module `fcntl` of Python 3.9 does not have.
_F_ADD_SEALS, _F_SEAL_SHRINK = 1033, 2
# The longest parts of a message about an exception.
_CLASS, _MESSAGE, _TRACEBACK, _EXCEPTION = 1_000, 8_000, 24_000, 24_000

_Function = Callable[..., Any]


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


class _Results:
    """Memory of this worker that nodes send results from."""

    def __init__(self) -> None:
        self._segments: "dict[int, mmap.mmap]" = {}
        self._free: "List[int]" = []

    def write(self, parts: "Sequence[memoryview]") -> "Tuple[int, Optional[int]]":
        """Writes the parts one after the other; gives the segment, and its file if it is new."""
        segment, file = self._take(sum(_aligned(part.nbytes) for part in parts))
        memory = self._segments[segment]
        at = 0
        for part in parts:
            memory[at : at + part.nbytes] = part
            at += _aligned(part.nbytes)
        return segment, file

    def _take(self, need: int) -> "Tuple[int, Optional[int]]":
        fitting = [segment for segment in self._free if len(self._segments[segment]) >= need]
        if fitting:
            best = min(fitting, key=lambda segment: len(self._segments[segment]))
            self._free.remove(best)
            return best, None
        length = max(_SMALLEST_SEGMENT, 1 << (need - 1).bit_length())
        file = os.memfd_create("phalanx-results", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(file, length)
        fcntl.fcntl(file, _F_ADD_SEALS, _F_SEAL_SHRINK)
        segment = len(self._segments) + 1
        self._segments[segment] = mmap.mmap(file, length)
        return segment, file

    def free(self, segment: int) -> None:
        """The node has sent what is in the segment."""
        self._free.append(segment)


class _Packed(NamedTuple):
    """A result: how long its parts are, and the parts themselves or the segment that has them."""

    lengths: "List[int]"
    inline: bytes
    segment: int
    file: "Optional[int]"


class Worker:
    """Receives one call at a time and answers it."""

    def __init__(self, node: socket.socket) -> None:
        self._node = node
        self._functions: "dict[bytes, _Function]" = {}
        self._arguments: "dict[int, mmap.mmap]" = {}
        self._results = _Results()

    def run(self) -> None:
        """Answers calls until the node is gone."""
        receive, answer_small = self._node.recvmsg, self._answer_small
        self._node.send(struct.pack("<BBHI", _HELLO, 0, _VERSION, 0))
        while True:
            message, ancillary, _flags, _address = receive(_MOST, _ANCILLARY)
            if not message:
                return
            if ancillary or not answer_small(message):
                self._on(message, ancillary)

    def _answer_small(self, message: bytes) -> bool:
        """Answers a call whose function is known and whose arguments came without buffers; the usual call."""
        if message[0] != _CALL or message[1] or message[2] or message[3]:
            return False
        call = _CALL_HEAD.unpack_from(message)[3]
        function = self._functions.get(message[24:56])
        if function is None:
            return False
        try:
            args, kwargs = pickle.loads(message[_BUFFERS_AT:])
            result = function(*args, **kwargs)
            del args, kwargs
            buffers: "List[pickle.PickleBuffer]" = []
            value = _dumped(result, buffers)
            if buffers or len(value) > _INLINE:
                self._answer(call, self._pack([value, *buffers]), 0)
            else:
                self._node.send(_ANSWER_HEAD.pack(_ANSWER, 0, 0, 0, call, len(value)) + value)
        except BaseException as error:
            self._raised(call, _told(error), 0)
        return True

    def _on(self, message: bytes, ancillary: "List[Tuple[int, int, bytes]]") -> None:
        kind = message[0]
        if kind == _CALL:
            self._call(message, _file(ancillary))
        elif kind == _FREE:
            self._results.free(struct.unpack_from("<I", message, 4)[0])
        elif kind == _CLOSE:
            self._close(struct.unpack_from("<I", message, 4)[0])
        elif kind == _FORGET:
            self._functions.pop(message[8:40], None)

    def _close(self, segment: int) -> None:
        memory = self._arguments.pop(segment, None)
        try:
            if memory is not None:
                memory.close()
        except BufferError:
            # An array that the function kept still refers to it; it goes with the array.
            pass

    def _call(self, message: bytes, file: "Optional[int]") -> None:
        flags, count, function_len, call, arguments_len, digest, segment = _CALL_HEAD.unpack_from(message)
        if file is not None:
            self._arguments[segment] = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ)
            os.close(file)
        lengths = [function_len, arguments_len, *struct.unpack_from(f"<{count}Q", message, _BUFFERS_AT)]
        memory = self._arguments[segment] if flags & _IN_SEGMENT else None
        references = sys.getrefcount(memory)
        if memory is not None:
            views = _cut(memoryview(memory), lengths, _ALIGN)
        else:
            views = _cut(memoryview(message)[_BUFFERS_AT + 8 * count :], lengths, 1)
        if not flags & _WITH_FUNCTION and digest not in self._functions:
            self._node.send(struct.pack("<BBHIQ", _UNKNOWN, 0, 0, 0, call))
            return
        told: "Optional[_Told]" = None
        try:
            if flags & _WITH_FUNCTION:
                self._functions[digest] = pickle.loads(views[0])
            answer = self._compute(self._functions[digest], views)
        except BaseException as error:
            told = _told(error)
        del views
        # A buffer of the memory refers to it for as long as anything, such as an array that the function kept, uses it.
        in_use = _IN_USE if memory is not None and sys.getrefcount(memory) > references else 0
        if told is None:
            self._answer(call, answer, in_use)
        else:
            self._raised(call, told, in_use)

    def _compute(self, function: _Function, views: "Sequence[memoryview]") -> _Packed:
        """Calls the function, and takes its result out of all that the function may still hold."""
        args, kwargs = pickle.loads(views[1], buffers=views[2:])
        result = function(*args, **kwargs)
        buffers: "List[pickle.PickleBuffer]" = []
        value = _dumped(result, buffers)
        if len(buffers) > _MOST_BUFFERS:
            value, buffers = dump(result), []
        return self._pack([value, *buffers])

    def _pack(self, parts: "List[Any]") -> _Packed:
        views = [part.raw() if isinstance(part, pickle.PickleBuffer) else memoryview(part) for part in parts]
        lengths = [view.nbytes for view in views]
        if sum(lengths) <= _INLINE and 24 + 8 * len(lengths) + sum(lengths) <= _MOST:
            return _Packed(lengths, b"".join(views), 0, None)
        return _Packed(lengths, b"", *self._results.write(views))

    def _answer(self, call: int, answer: _Packed, flags: int) -> None:
        if answer.segment:
            flags |= _IN_SEGMENT
        head = struct.pack("<BBHI", _ANSWER, flags, len(answer.lengths) - 1, answer.segment)
        body = struct.pack(f"<Q{len(answer.lengths)}Q", call, *answer.lengths)
        if answer.file is None:
            self._node.send(head + body + answer.inline)
            return
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [answer.file]))
        self._node.sendmsg([head, body], [rights])
        os.close(answer.file)

    def _raised(self, call: int, told: "_Told", flags: int) -> None:
        sizes = [len(part) for part in told]
        head = struct.pack("<BBHIQIIII", _RAISED, flags, 0, sizes[0], call, *sizes[1:], 0)
        self._node.send(b"".join([head, *told]))


def _file(ancillary: "List[Tuple[int, int, bytes]]") -> "Optional[int]":
    """The file that came with a message."""
    files = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(data[: len(data) // 4 * 4])
    return files[0] if files else None


def _cut(data: memoryview, lengths: "Sequence[int]", align: int) -> "List[memoryview]":
    parts = []
    at = 0
    for length in lengths:
        at = -(-at // align) * align
        parts.append(data[at : at + length])
        at += length
    return parts


def _dumped(result: Any, buffers: "List[pickle.PickleBuffer]") -> bytes:
    try:
        return dump(result, buffers)
    except Exception as error:
        raise TypeError(f"the function returned {type(result).__name__}, which cannot be pickled: {error}") from error


class _Told(NamedTuple):
    """An exception as the node is told of it."""

    name: bytes
    message: bytes
    traceback: bytes
    pickled: bytes


def _told(error: BaseException) -> _Told:
    """Tells of an exception, and lets go of all that it refers to."""
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        # The caller's process must not end for it.
        error = RuntimeError(f"the function ended its process: {error!r}").with_traceback(trace)
    text = "".join(traceback.format_exception(type(error), error, trace))
    name = type(error).__qualname__
    if type(error).__module__ != "builtins":
        name = f"{type(error).__module__}.{name}"
    told = _Told(
        _bytes(name)[:_CLASS].decode(errors="ignore").encode(),
        _bytes(_text(error))[:_MESSAGE].decode(errors="ignore").encode(),
        _bytes(text)[-_TRACEBACK:].decode(errors="ignore").encode(),
        _pickled(error),
    )
    if error.__traceback__ is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
    return told


def _bytes(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(it cannot be printed)"


def _pickled(error: BaseException) -> bytes:
    try:
        pickled = dump(error)
    except Exception:
        return b""
    return pickled if len(pickled) <= _EXCEPTION else b""


def _take_socket() -> socket.socket:
    """Takes the socket from standard input, where functions and programs that they start find nothing."""
    node = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return node


def main() -> None:
    """Answers the calls of the node that started this process."""
    for place in os.environ.get("PHALANX_WORKER_PATH", "").split(os.pathsep):
        if place and place not in sys.path:
            sys.path.append(place)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=True)
    try:
        Worker(_take_socket()).run()
    except (BrokenPipeError, ConnectionResetError):
        # The node is gone.
        pass


if __name__ == "__main__":
    main()
