"""As `phalanx.torch.elastic.sampler`."""

from phalanx.torch.elastic.sampler import *  # noqa: F403
from phalanx.torch.elastic.sampler import __all__ as __all__
