"""Torch programs that go on when ranks are lost or come anew."""

from phalanx.torch.elastic import *  # noqa: F403
from phalanx.torch.elastic import __all__ as __all__
