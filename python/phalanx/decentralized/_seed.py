"""The seed of everything that is random."""

from __future__ import annotations

import random
from typing import Optional

import numpy as np
import torch

_current: Optional[int] = None


def set_seed(seed: int = 42) -> None:
    """Seeds Python, NumPy and torch; runs that begin after it in this process have this seed, too."""
    global _current
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    _current = seed


def current_seed() -> int:
    """The seed that was set last; 0 if none was."""
    return 0 if _current is None else _current
