"""A worker process: calls Python functions for a node. ``docs/python-worker.md`` describes the protocol.

A node that was started with ``--allow-python`` runs ``python -m phalanx.worker``; standard input is the socket to it.
"""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import pickle
import secrets
import select
import socket
import struct
import sys
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from ._inputs import giving
from ._pickling import dump

_CALL, _FORGET, _FREE, _CLOSE, _MAP = 1, 2, 3, 4, 5
_HELLO, _ANSWER, _RAISED, _RELEASED, _UNKNOWN = 16, 17, 18, 19, 20
_WITH_FUNCTION, _IN_SEGMENT, _IN_USE, _PLACED = 1, 2, 4, 8
_VERSION = 3
_MOST = 65_536
_INLINE = 16 << 10
_ALIGN = 64
_MOST_BUFFERS = 4096
_SMALLEST_SEGMENT = 1 << 20
# The file of a larger segment goes with every result in it: the node does not keep it mapped.
_POOLED = 64 << 20
# The most bytes of such segments that wait for the next result.
_MOST_FREE = 512 << 20
# Arrays of this size are given back to the system as soon as they are freed, unless `_Heap` keeps them.
_LARGE_ARRAY = 32 << 20
# The most bytes of freed arrays that are kept, for how long without a call, and for how many calls.
_KEPT_BYTES, _KEPT_SECONDS, _KEPT_CALLS = 512 << 20, 0.2, 64
# Names of `mallopt` in the C library.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _MMAP_MAX = -1, -4, 65_536
_CALL_HEAD = struct.Struct("<xBHIQQ32sII")
_BUFFERS_AT = 64
_ANSWER_HEAD = struct.Struct("<BBHIQQ")
_PLACE = struct.Struct("<IxxxxQ")
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
        self._files: "dict[int, int]" = {}
        # The numbers of segments by the names of their files.
        self._names: "dict[str, int]" = {}
        # Segments that were arguments of calls here stay mapped for that, too.
        self._lent: "dict[int, _Lent]" = {}
        self._made = 0

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
            return best, os.dup(self._files[best]) if best in self._files else None
        # Lengths in steps of an eighth, so that segments fit again.
        step = max(1 << max(need.bit_length() - 4, 0), 4096)
        length = max(_SMALLEST_SEGMENT, -(-need // step) * step)
        # Other processes, and this one, recognise it by its name.
        name = f"phalanx-{secrets.token_hex(16)}"
        file = os.memfd_create(name, os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        # All of its memory, so that a lack of it is an exception and not a signal.
        os.posix_fallocate(file, 0, length)
        fcntl.fcntl(file, _F_ADD_SEALS, _F_SEAL_SHRINK)
        self._made += 1
        segment = self._made
        self._segments[segment] = mmap.mmap(file, length)
        self._names[name] = segment
        if length > _POOLED:
            self._files[segment] = os.dup(file)
        return segment, file

    def free(self, segment: int) -> None:
        """The node has sent what is in the segment."""
        self._free.append(segment)
        large = [number for number in self._free if number in self._files]
        while sum(len(self._segments[number]) for number in large) > _MOST_FREE:
            oldest = large.pop(0)
            self._free.remove(oldest)
            self._segments.pop(oldest).close()
            os.close(self._files.pop(oldest))
            self._names = {name: number for name, number in self._names.items() if number != oldest}
            if oldest in self._lent:
                self._lent.pop(oldest).close()

    def lent(self, number: int, file: int) -> "_Lent":
        """The memory of a file in which arguments lie. A segment of this worker may be mapped for that already."""
        name = os.readlink(f"/proc/self/fd/{file}")[len("/memfd:") : -len(" (deleted)")]
        segment = self._names.get(name)
        if segment is None:
            return _Lent(number, file)
        if segment not in self._lent:
            self._lent[segment] = _Lent(number, os.dup(file))
        os.close(file)
        lent = self._lent[segment]
        lent.number, lent.stays = number, True
        return lent


class _Heap:
    """Keeps the memory of large arrays that functions free, for the next call: getting as many fresh pages from the
    system takes as long as adding two arrays. A worker without work gives it back."""

    def __init__(self) -> None:
        self._library: Any = None
        self._calls = 0

    def keep(self) -> None:
        """A function has used a large array; others are likely to follow."""
        if self._library is None:
            import ctypes

            self._library = ctypes.CDLL(None)
        if self._calls == 0:
            self._set(0)
        self._calls = _KEPT_CALLS

    def before_wait(self, node: socket.socket) -> None:
        """Gives back what was kept, if no call comes soon or there were many without large arrays."""
        if not self._calls:
            return
        self._calls -= 1
        if self._calls and select.select([node], [], [], _KEPT_SECONDS)[0]:
            return
        self._calls = 0
        self._set(_MMAP_MAX)
        if hasattr(self._library, "malloc_trim"):
            self._library.malloc_trim(0)

    def _set(self, most_mappings: int) -> None:
        # Other C libraries have other ways, and do without.
        if hasattr(self._library, "mallopt"):
            self._library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
            self._library.mallopt(_M_MMAP_MAX, most_mappings)


class _Lent:
    """Memory in which arguments lie: of another process, or of an earlier result of this worker."""

    def __init__(self, number: int, file: int) -> None:
        self.number = number
        # It is not unmapped when the node closes its number.
        self.stays = False
        self.memory = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ)
        os.close(file)
        self._unused = sys.getrefcount(self.memory)
        self._address: "Optional[int]" = None

    def close(self) -> None:
        """Unmaps it, as soon as nothing refers to it."""
        _close(self.memory)

    def in_use(self) -> bool:
        """Whether anything, such as an array that a function kept, refers to the memory."""
        return sys.getrefcount(self.memory) > self._unused

    def find(self, part: memoryview) -> "Optional[int]":
        """Where in this memory the bytes of a view lie, if they do."""
        if self._address is None:
            self._address = _address(memoryview(self.memory))
        offset = _address(part) - self._address
        return offset if 0 <= offset <= len(self.memory) - part.nbytes else None


def _close(memory: mmap.mmap) -> None:
    try:
        memory.close()
    except BufferError:
        # An array that the function kept still refers to it; it goes with the array.
        pass


def _address(view: memoryview) -> int:
    import numpy

    address: int = numpy.frombuffer(view, dtype="uint8").__array_interface__["data"][0]
    return address


# The number of a segment of arguments, and the offset in it.
_Place = Tuple[int, int]


class _Packed(NamedTuple):
    """A result: how long its parts are, where buffers lie that are among the arguments, and the other parts or the
    segment that has them."""

    lengths: "List[int]"
    places: "List[Optional[_Place]]"
    inline: bytes
    segment: int
    file: "Optional[int]"


class Worker:
    """Receives one call at a time and answers it."""

    def __init__(self, node: socket.socket) -> None:
        self._node = node
        self._functions: "dict[bytes, _Function]" = {}
        self._arguments: "dict[int, mmap.mmap]" = {}
        self._lent: "dict[int, _Lent]" = {}
        # Lent memory that functions still refer to after their call.
        self._kept: "List[_Lent]" = []
        self._results = _Results()
        self._heap = _Heap()

    def run(self) -> None:
        """Answers calls until the node is gone."""
        receive, answer_small = self._node.recvmsg, self._answer_small
        self._node.send(struct.pack("<BBHI", _HELLO, 0, _VERSION, 0))
        before_wait = self._heap.before_wait
        while True:
            before_wait(self._node)
            message, ancillary, _flags, _address = receive(_MOST, _ANCILLARY)
            if not message:
                return
            if self._kept:
                self._release()
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
                self._answer(call, self._pack([value, *buffers], ()), 0)
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
        elif kind == _MAP:
            self._map(struct.unpack_from("<I", message, 4)[0], _file(ancillary))
        elif kind == _FORGET:
            self._functions.pop(message[8:40], None)

    def _map(self, segment: int, file: "Optional[int]") -> None:
        if file is not None:
            self._lent[segment] = self._results.lent(segment, file)

    def _release(self) -> None:
        """Tells the node which memory functions have let go of."""
        for lent in [lent for lent in self._kept if not lent.in_use()]:
            self._kept.remove(lent)
            self._released(lent)

    def _released(self, lent: _Lent) -> None:
        self._node.send(struct.pack("<BBHI", _RELEASED, 0, 0, lent.number))

    def _close(self, segment: int) -> None:
        lent = self._lent.pop(segment, None)
        memory = self._arguments.pop(segment, None)
        if lent is not None and not lent.stays:
            lent.close()
        elif memory is not None:
            _close(memory)

    def _call(self, message: bytes, file: "Optional[int]") -> None:
        flags, count, function_len, call, arguments_len, digest, segment, inputs = _CALL_HEAD.unpack_from(message)
        if file is not None:
            self._arguments[segment] = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ)
            os.close(file)
        buffers = struct.unpack_from(f"<{count}Q", message, _BUFFERS_AT)
        data_at = _BUFFERS_AT + 8 * count
        places: "List[_Place]" = [(0, 0)] * count
        if flags & _PLACED:
            places = [_PLACE.unpack_from(message, data_at + _PLACE.size * i) for i in range(count)]
            data_at += _PLACE.size * count
        lengths = [function_len, arguments_len]
        lengths += [length for length, (number, _) in zip(buffers, places) if not number]
        memory = self._arguments[segment] if flags & _IN_SEGMENT else None
        references = sys.getrefcount(memory)
        if memory is not None:
            views = _cut(memoryview(memory), lengths, _ALIGN)
        else:
            views = _cut(memoryview(message)[data_at:], lengths, 1)
        numbers = sorted({number for number, _ in places if number})
        if any(number not in self._lent for number in numbers):
            # The node took the message about the segment back; it sends both again.
            self._unknown(call)
            return
        lent = [self._lent[number] for number in numbers]
        for at, (length, (number, offset)) in enumerate(zip(buffers, places)):
            if number:
                views.insert(2 + at, memoryview(self._lent[number].memory)[offset : offset + length])
        if not flags & _WITH_FUNCTION and digest not in self._functions:
            self._unknown(call)
            return
        told: "Optional[_Told]" = None
        try:
            if flags & _WITH_FUNCTION:
                self._functions[digest] = pickle.loads(views[0])
            answer = self._compute(self._functions[digest], views, lent, inputs)
        except BaseException as error:
            told = _told(error)
        del views
        # A buffer of the memory refers to it for as long as anything, such as an array that the function kept, uses it.
        kept = [memory for memory in lent if memory.in_use()]
        in_use = _IN_USE if kept or (memory is not None and sys.getrefcount(memory) > references) else 0
        if told is None:
            self._answer(call, answer, in_use)
        else:
            self._raised(call, told, in_use)
        if in_use:
            # Whatever came with the call counts as kept until the node is told otherwise.
            self._kept += [memory for memory in kept if memory not in self._kept]
            for loan in lent:
                if loan not in self._kept:
                    self._released(loan)

    def _unknown(self, call: int) -> None:
        self._node.send(struct.pack("<BBHIQ", _UNKNOWN, 0, 0, 0, call))

    def _compute(
        self, function: _Function, views: "Sequence[memoryview]", lent: "Sequence[_Lent]", inputs: int
    ) -> _Packed:
        """Calls the function, and takes its result out of all that the function may still hold."""
        args, kwargs = _load_taking(views, inputs) if inputs else pickle.loads(views[1], buffers=views[2:])
        result = function(*args, **kwargs)
        buffers: "List[pickle.PickleBuffer]" = []
        value = _dumped(result, buffers)
        if len(buffers) > _MOST_BUFFERS:
            value, buffers = dump(result), []
        return self._pack([value, *buffers], lent)

    def _pack(self, parts: "List[Any]", lent: "Sequence[_Lent]") -> _Packed:
        views = [part.raw() if isinstance(part, pickle.PickleBuffer) else memoryview(part) for part in parts]
        lengths = [view.nbytes for view in views]
        # Lent memory cannot be written here, so what lies in it is the same for the caller.
        places = [_find(view, lent) for view in views]
        views = [view for view, place in zip(views, places) if place is None]
        data = sum(view.nbytes for view in views)
        if data <= _INLINE and 24 + (8 + _PLACE.size) * len(lengths) + data <= _MOST:
            return _Packed(lengths, places, b"".join(views), 0, None)
        if data >= _LARGE_ARRAY:
            self._heap.keep()
        return _Packed(lengths, places, b"", *self._results.write(views))

    def _answer(self, call: int, answer: _Packed, flags: int) -> None:
        if answer.segment:
            flags |= _IN_SEGMENT
        places = b""
        if any(answer.places):
            flags |= _PLACED
            places = b"".join(_PLACE.pack(*(place or (0, 0))) for place in answer.places[1:])
        head = struct.pack("<BBHI", _ANSWER, flags, len(answer.lengths) - 1, answer.segment)
        body = struct.pack(f"<Q{len(answer.lengths)}Q", call, *answer.lengths) + places
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


def _load_taking(views: "Sequence[memoryview]", inputs: int) -> Any:
    """The arguments of a call that takes results of others, which lie behind its own buffers."""
    own, *counts = struct.unpack(f"<{1 + inputs}I", views[-1])
    results: "List[Sequence[memoryview]]" = []
    at = 2 + own
    for count in counts:
        results.append(views[at : at + 1 + count])
        at += 1 + count
    loaded: "dict[int, Any]" = {}

    def give(number: int) -> Any:
        if number not in loaded:
            result = results[number]
            loaded[number] = pickle.loads(result[0], buffers=result[1:])
        return loaded[number]

    giving(give)
    try:
        return pickle.loads(views[1], buffers=views[2 : 2 + own])
    finally:
        giving(None)


def _find(part: memoryview, lent: "Sequence[_Lent]") -> "Optional[_Place]":
    """Where a part of a result lies in the arguments."""
    if part.nbytes > _INLINE:
        for memory in lent:
            offset = memory.find(part)
            if offset is not None:
                return memory.number, offset
    return None


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
