"""As `phalanx.tensorflow`."""

from phalanx.tensorflow import *  # noqa: F403
from phalanx.tensorflow import __all__ as __all__
