"""As `phalanx.keras.callbacks`."""

from phalanx.keras.callbacks import *  # noqa: F403
from phalanx.keras.callbacks import __all__ as __all__
