"""As `phalanx.tensorflow.keras`."""

from phalanx.tensorflow.keras import *  # noqa: F403
from phalanx.tensorflow.keras import __all__ as __all__
