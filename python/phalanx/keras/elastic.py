"""As :mod:`phalanx.tensorflow.keras.elastic`."""

from phalanx.tensorflow.keras.elastic import *  # noqa: F403
from phalanx.tensorflow.keras.elastic import __all__ as __all__
