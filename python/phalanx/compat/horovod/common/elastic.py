"""States of programs that go on after a loss."""

from phalanx._elastic import ObjectState, State

__all__ = ["ObjectState", "State"]
