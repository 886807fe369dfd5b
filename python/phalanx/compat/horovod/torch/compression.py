"""As `phalanx.torch.compression`."""

from phalanx.torch.compression import *  # noqa: F403
from phalanx.torch.compression import __all__ as __all__
