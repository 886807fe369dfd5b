"""The package of Horovod, over Phalanx."""

from phalanx import __version__

__all__ = ["__version__"]
