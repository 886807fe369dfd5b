"""Horovod's interface for Keras: an optimizer and callbacks."""

from ... import _rank_names
from ..._rank_names import *
from . import callbacks, elastic
from ..compression import Compression
from ..functions import broadcast_variables
from ._values import allgather, allreduce, broadcast, broadcast_global_variables, load_model, reducescatter
from ..optimizer import DistributedOptimizer

__all__ = _rank_names.__all__ + [
    "Compression",
    "DistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
]
