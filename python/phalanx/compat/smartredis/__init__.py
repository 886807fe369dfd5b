"""SmartRedis's interface, over ``phalanx.store``."""

from .client import Client
from .configoptions import ConfigOptions
from .dataset import Dataset
from .logcontext import LogContext
from .logger import LLDebug, LLDeveloper, LLInfo, LLQuiet, SRLoggingLevel, log_data, log_error, log_warning
from .srobject import SRObject

__all__ = [
    "Client",
    "ConfigOptions",
    "Dataset",
    "LLDebug",
    "LLDeveloper",
    "LLInfo",
    "LLQuiet",
    "LogContext",
    "SRLoggingLevel",
    "SRObject",
    "log_data",
    "log_error",
    "log_warning",
]
