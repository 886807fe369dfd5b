"""Errors."""

from phalanx._elastic import HostsUpdatedInterrupt
from phalanx._ops import HorovodInternalError

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]
