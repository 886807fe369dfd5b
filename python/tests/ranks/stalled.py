"""Each of two ranks waits for an operation that the other never issues."""

import numpy as np

import phalanx.numpy as hvd
from phalanx.errors import StallError

hvd.init()
names = ["late", "later"]
try:
    hvd.allreduce(np.ones(1), name=names[hvd.rank()])
except StallError as error:
    assert f'"{names[hvd.rank()]}"' in error.reason and f"[{1 - hvd.rank()}]" in error.reason
else:
    raise AssertionError("it cannot have happened")
# Rank 0 decides about stalls: it stays until the other has heard of its own.
hvd.barrier()
print("done", flush=True)
