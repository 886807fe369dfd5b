"""As `phalanx.torch.elastic.state`."""

from phalanx.torch.elastic.state import *  # noqa: F403
from phalanx.torch.elastic.state import __all__ as __all__
