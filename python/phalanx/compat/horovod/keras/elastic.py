"""As `phalanx.keras.elastic`."""

from phalanx.keras.elastic import *  # noqa: F403
from phalanx.keras.elastic import __all__ as __all__
