"""Training data that some programs upload while others train, over ``phalanx.store``."""

from .data import DataDownloader, DataInfo, TrainingDataUploader

__all__ = ["DataDownloader", "DataInfo", "TrainingDataUploader"]
