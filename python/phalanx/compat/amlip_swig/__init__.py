"""The constants that programs take from the peer's native module."""

from __future__ import annotations

__all__ = ["TransportProtocol_tcp", "TransportProtocol_udp"]

TransportProtocol_udp = 0
"""Agents connect by TCP whatever an address says."""
TransportProtocol_tcp = 1
"""Agents connect by TCP."""
