"""As `phalanx.torch.functions`."""

from phalanx.torch.functions import *  # noqa: F403
from phalanx.torch.functions import __all__ as __all__
