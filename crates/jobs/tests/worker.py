"""A small worker in Python, written from docs/python-worker.md alone.

Its functions are names: "echo" gives back arguments and buffers, "raise" raises them.
"""

import array
import fcntl
import mmap
import os
import secrets
import socket
import struct
import traceback

CALL, FORGET, FREE, CLOSE, MAP = 1, 2, 3, 4, 5
HELLO, ANSWER, RAISED, UNKNOWN = 16, 17, 18, 20
INLINE, ALIGN = 16 << 10, 64
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2

node = socket.socket(fileno=0)
functions, arguments, results, free = {}, {}, {}, []


def aligned(offset):
    return (offset + ALIGN - 1) // ALIGN * ALIGN


def cut(data, lengths, step):
    at, parts = 0, []
    for length in lengths:
        at = (at + step - 1) // step * step
        parts.append(data[at : at + length])
        at += length
    return parts


def result_segment(need):
    for segment in free:
        if len(results[segment]) >= need:
            free.remove(segment)
            return segment, []
    file = os.memfd_create(f"phalanx-{secrets.token_hex(16)}", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(file, need)
    fcntl.fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK)
    segment = len(results) + 1
    results[segment] = mmap.mmap(file, need)
    return segment, [file]


def answer(call, parts):
    lengths = [len(part) for part in parts]
    head = struct.pack(f"<QQ{len(parts) - 1}Q", call, *lengths)
    if sum(lengths) <= INLINE:
        node.sendmsg([struct.pack("<BBHI", ANSWER, 0, len(parts) - 1, 0), head, *parts])
        return
    segment, files = result_segment(sum(aligned(length) for length in lengths))
    at = 0
    for part in parts:
        results[segment][at : at + len(part)] = part
        at = aligned(at + len(part))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    node.sendmsg([struct.pack("<BBHI", ANSWER, 2, len(parts) - 1, segment), head], rights)
    for file in files:
        os.close(file)


def mapped(segment, files):
    arguments[segment] = mmap.mmap(files[0], 0, mmap.MAP_SHARED, mmap.PROT_READ)
    os.close(files[0])


def called(message, files):
    flags, count, function_len, call, arguments_len, digest, segment = struct.unpack_from("<xBHIQQ32sI", message)
    lengths, at = struct.unpack_from(f"<{count}Q", message, 64), 64 + 8 * count
    places = [(0, 0)] * count
    if flags & 8:
        places = [struct.unpack_from("<IxxxxQ", message, at + 16 * i) for i in range(count)]
        at += 16 * count
    if files:
        mapped(segment, files)
    data, step = (arguments[segment], ALIGN) if flags & 2 else (message[at:], 1)
    among = [length for length, (number, _) in zip(lengths, places) if not number]
    function, pickled, *rest = cut(memoryview(data), [function_len, arguments_len, *among], step)
    rest, values = iter(rest), [pickled]
    for length, (number, offset) in zip(lengths, places):
        values.append(memoryview(arguments[number])[offset : offset + length] if number else next(rest))
    if flags & 1:
        functions[digest] = bytes(function).decode()
    if digest not in functions:
        node.sendmsg([struct.pack("<BBHIQ", UNKNOWN, 0, 0, 0, call)])
        return
    try:
        if functions[digest] == "raise":
            raise ValueError(bytes(values[0]).decode())
        answer(call, values)
    except ValueError as error:
        texts = [type(error).__name__, str(error), traceback.format_exc()]
        texts = [text.encode() for text in texts]
        sizes = [len(text) for text in texts]
        head = struct.pack("<BBHIQIIII", RAISED, 0, 0, sizes[0], call, sizes[1], sizes[2], 0, 0)
        node.sendmsg([head, *texts])


node.sendmsg([struct.pack("<BBHI", HELLO, 0, 3, 0)])
while True:
    message, ancillary, _, _ = node.recvmsg(65536, socket.CMSG_SPACE(4))
    if not message:
        break
    files = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(data[:4])
    if message[0] == CALL:
        called(message, files)
    elif message[0] == FREE:
        free.append(struct.unpack_from("<I", message, 4)[0])
    elif message[0] == MAP:
        mapped(struct.unpack_from("<I", message, 4)[0], files)
    elif message[0] == CLOSE:
        arguments.pop(struct.unpack_from("<I", message, 4)[0]).close()
    elif message[0] == FORGET:
        functions.pop(message[8:40])
