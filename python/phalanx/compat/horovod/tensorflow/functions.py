"""As `phalanx.tensorflow.functions`."""

from phalanx.tensorflow.functions import *  # noqa: F403
from phalanx.tensorflow.functions import __all__ as __all__
