"""Horovod's interface for TensorFlow: collectives of tensors, and gradients of all ranks.

``tape = hvd.DistributedGradientTape(tape)`` and ``hvd.broadcast_variables(model.variables, root_rank=0)`` make a training
loop one of many ranks, inside ``tf.function``, too.
"""

from .. import _rank_names
from .._rank_names import *
from . import elastic
from .collectives import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from .compression import Compression
from .functions import broadcast_variables
from .gradients import DistributedGradientTape
from .optimizer import DistributedOptimizer
from .sync_batch_norm import SyncBatchNormalization

__all__ = _rank_names.__all__ + [
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "SyncBatchNormalization",
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_variables",
    "elastic",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
]
