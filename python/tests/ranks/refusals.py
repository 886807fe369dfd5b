"""What goes wrong: every rank gets the error with the name, and goes on afterwards. For three ranks."""

import os
import sys

import numpy as np
import pytest

import phalanx.numpy as hvd
from phalanx.errors import DuplicateName, MismatchError, NotInitialized, OperandError

with pytest.raises(NotInitialized):
    hvd.rank()
hvd.init()
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
assert (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()) == (RANK, SIZE, 0, 1)
assert hvd.is_homogeneous() and hvd.gloo_built() and not hvd.mpi_enabled()


def mismatch(name, call, word):
    with pytest.raises(MismatchError) as caught:
        call()
    assert isinstance(caught.value, RuntimeError)
    assert name in caught.value.reason and word in caught.value.reason, caught.value.reason
    assert "rank" in caught.value.reason


last = RANK == SIZE - 1
mismatch("shape", lambda: hvd.allreduce(np.ones(4 + last), name="a shape"), "shape")
mismatch("rows", lambda: hvd.allgather(np.ones((2, 3 + last)), name="the rows"), "shape")
mismatch("type", lambda: hvd.allreduce(np.ones(4, "f4" if last else "f8"), name="a type"), "type")
mismatch("op", lambda: hvd.allreduce(np.ones(4), op=hvd.Sum if last else hvd.Max, name="an op"), "reduction")
mismatch("root", lambda: hvd.broadcast(np.ones(4), RANK, name="a root"), "root")
mismatch("factor", lambda: hvd.allreduce(np.ones(4), name="a factor", prescale_factor=1 + last), "factor")
kinds = [hvd.allreduce, hvd.allgather]
mismatch("kind", lambda: kinds[last](np.ones(4), name="a kind"), "kind")

for wrong in (
    lambda: hvd.broadcast(np.ones(2), SIZE),
    lambda: hvd.broadcast(np.ones(2), -1),
    lambda: hvd.allreduce(np.ones(2), op=hvd.Sum, average=True),
    lambda: hvd.allreduce(np.ones(2), op="sum"),
    lambda: hvd.alltoall(np.ones(5), splits=[1, 1]),
    lambda: hvd.alltoall(np.ones(3), splits=[-1, 2, 2]),
    lambda: hvd.alltoall(np.ones(3), splits=[1.0, 1.0, 1.0]),
    lambda: hvd.allreduce(np.array(["text"])),
    lambda: hvd.allreduce(np.ones(2, "complex64")),
    lambda: hvd.allreduce_(np.broadcast_to(np.ones(1), (3,))),
    lambda: hvd.reducescatter(np.float32(1)),
    lambda: hvd.add_process_set([0, SIZE]),
    lambda: hvd.ProcessSet([0]).size(),
    lambda: hvd.init(comm=[0]) or hvd.allreduce(np.ones(1), process_set=hvd.ProcessSet([0])),
):
    with pytest.raises(ValueError):
        wrong()

# The first operation of a name waits for the barrier before which the other ranks do not issue it.
if RANK == 0:
    first = hvd.allreduce_async(np.ones(1), name="twice")
    second = hvd.allreduce_async(np.ones(1), name="twice")
    with pytest.raises(DuplicateName):
        hvd.synchronize(second)
hvd.barrier()
if RANK > 0:
    first = hvd.allreduce_async(np.ones(1), name="twice")
assert hvd.synchronize(first) == 1 and hvd.synchronize(first) == 1

# A handle that is dropped: the memory stays until the operation has ended.
hvd.allreduce_async_(np.ones(1 << 16), name="dropped")
assert hvd.allreduce(np.ones(3), op=hvd.Sum).tolist() == [SIZE] * 3

pair = hvd.add_process_set([0, SIZE - 1])
assert pair.included() == (RANK != 1) and pair.size() == 2
with pytest.raises(OperandError):
    hvd.add_process_set([SIZE - 1, 0])
if pair.included():
    assert pair.rank() == (0 if RANK == 0 else 1)
    assert hvd.allreduce(np.array([RANK]), op=hvd.Sum, process_set=pair) == SIZE - 1
    assert hvd.broadcast_object([RANK], SIZE - 1, process_set=pair) == [SIZE - 1]
    assert hvd.allgather_object(RANK, process_set=pair) == [0, SIZE - 1]
    with pytest.raises(OperandError):
        hvd.broadcast(np.ones(1), 1, process_set=pair)
else:
    with pytest.raises((OperandError, RuntimeError)):
        hvd.allreduce(np.ones(1), process_set=pair)
hvd.barrier()
assert hvd.remove_process_set(pair) and not hvd.remove_process_set(pair)

assert hvd.broadcast_object({"rank": RANK, "text": "x" * RANK}, 1) == {"rank": 1, "text": "x"}
assert hvd.allgather_object("x" * RANK) == ["x" * rank for rank in range(SIZE)]

# Ranks with less data join.
for step in range(RANK + 1):
    total = hvd.allreduce(np.ones(2), op=hvd.Sum, name="step")
    assert total[0] == SIZE - step
assert hvd.join() == SIZE - 1

trace = f"{sys.argv[1]}/trace{RANK}.json"
hvd.start_timeline(trace)
hvd.allreduce(np.ones(3), name="traced")
hvd.stop_timeline()
with open(trace) as file:
    assert "traced" in file.read()

# Ranks meet again after a shutdown, and numbers of operations begin anew.
if RANK == 0:
    hvd.allreduce_async(np.ones(1), name="never ends")
hvd.barrier()
hvd.shutdown()
hvd.shutdown()
assert not hvd.is_initialized()
hvd.init()
assert hvd.allreduce(np.ones(1), op=hvd.Sum) == SIZE

if os.fork() == 0:
    try:
        hvd.allreduce(np.ones(1))
    except RuntimeError as error:
        os._exit(7 if "forked" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
hvd.barrier()
print("done", flush=True)
