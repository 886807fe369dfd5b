"""As `phalanx.keras`."""

from phalanx.keras import *  # noqa: F403
from phalanx.keras import __all__ as __all__
