"""As `phalanx.tensorflow.compression`."""

from phalanx.tensorflow.compression import *  # noqa: F403
from phalanx.tensorflow.compression import __all__ as __all__
