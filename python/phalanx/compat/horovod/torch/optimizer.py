"""As `phalanx.torch.optimizer`."""

from phalanx.torch.optimizer import *  # noqa: F403
from phalanx.torch.optimizer import __all__ as __all__
