"""As `phalanx.torch.sync_batch_norm`."""

from phalanx.torch.sync_batch_norm import *  # noqa: F403
from phalanx.torch.sync_batch_norm import __all__ as __all__
