"""The second rank is killed in the middle of all-reduces: `killed.py FOLDER`."""

import os
import pathlib
import signal
import sys
import threading
import time

import numpy as np

import phalanx.numpy as hvd

FOLDER = pathlib.Path(sys.argv[1])
# The launcher ends the others because one failed; they say how they found out first.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hvd.init()


def kill():
    (FOLDER / "killed").write_text(str(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)


values = np.ones(1 << 20, "float32")
for step in range(1_000_000):
    if hvd.rank() == 1 and step == 20:
        # While this thread computes.
        threading.Timer(0.005, kill).start()
    try:
        hvd.allreduce_(values, name="values")
    except hvd.PeerLost as lost:
        now = time.time()
        (FOLDER / f"lost{hvd.rank()}").write_text(f"{now} {lost.reason}")
        break
try:
    hvd.allreduce(np.ones(1))
except hvd.HorovodInternalError as again:
    assert "rank 1 is lost" in again.reason
    (FOLDER / f"again{hvd.rank()}").write_text("")
