"""As :mod:`phalanx.tensorflow.keras.callbacks`."""

from phalanx.tensorflow.keras.callbacks import *  # noqa: F403
from phalanx.tensorflow.keras.callbacks import __all__ as __all__
