"""Torch programs that go on when ranks are lost or come anew."""

from ..._elastic import HostsUpdatedInterrupt, ObjectState, State, run
from .sampler import ElasticSampler
from .state import TorchState

__all__ = ["ElasticSampler", "HostsUpdatedInterrupt", "ObjectState", "State", "TorchState", "run"]
