"""Training data of the store for Keras: sequences of batches, with one-hot targets if there are classes.

Keras 3 takes as many batches in every epoch of a ``fit`` as there were when it began. Where data grow, call ``fit`` for
one epoch at a time: ``model.fit(data, initial_epoch=n, epochs=n + 1)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ..data import DataDownloader

__all__ = ["DynamicDataGenerator", "StaticDataGenerator"]


# Keras 2 does not tell when an epoch begins.
_TELLS_BEGIN = hasattr(tf.keras.utils.Sequence, "on_epoch_begin")


class _KerasData(DataDownloader, tf.keras.utils.Sequence):
    """Batches by number; the end of an epoch begins the next pass."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        tf.keras.utils.Sequence.__init__(self)
        DataDownloader.__init__(self, *arguments, **named)

    def __getitem__(self, index: int) -> Any:
        batch = self._batch(self._batches[index])
        if not _TELLS_BEGIN:
            self._is_used = True
        if self.num_classes is None or self.autoencoding or not isinstance(batch, tuple):
            return batch
        samples, targets = batch
        return samples, np.eye(self.num_classes, dtype=np.float32)[targets.astype(np.int64)]

    def on_epoch_begin(self) -> None:
        """Notes that the batches from here on are used: Keras 3 looks at some of them before."""
        self._is_used = True

    def on_epoch_end(self) -> None:
        """Begins the next pass. Keras 3 tells the end of an epoch also before the first."""
        if self._is_used:
            self.update_data()


class StaticDataGenerator(_KerasData):
    """What was uploaded when the first pass began."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "dynamic": False})


class DynamicDataGenerator(_KerasData):
    """What was uploaded when each pass began."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "dynamic": True})
