"""As `phalanx.tensorflow.elastic`."""

from phalanx.tensorflow.elastic import *  # noqa: F403
from phalanx.tensorflow.elastic import __all__ as __all__
