"""Collectives."""

from phalanx.torch import *  # noqa: F403
from phalanx.torch import __all__ as __all__
