"""Ctrl-C while a rank waits for one that does not come."""

import os
import signal
import threading
import time

import numpy as np

import phalanx.numpy as hvd

hvd.init()
if hvd.rank() == 0:
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    handle = hvd.allreduce_async(np.ones(2), name="waits", op=hvd.Sum)
    threading.Timer(0.1, interrupt).start()
    try:
        hvd.synchronize(handle)
    except KeyboardInterrupt:
        assert time.monotonic() - sent[0] < 0.2
    else:
        raise AssertionError("it cannot have happened")
    hvd.barrier()
    # The operation is still under way, and can be waited for again.
    assert hvd.synchronize(handle).tolist() == [2.0, 2.0]
else:
    hvd.barrier()
    hvd.allreduce(np.ones(2), name="waits", op=hvd.Sum)
