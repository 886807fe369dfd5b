"""Blocks that are repeated."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Sequence, Union

from .discrete_choice import DiscreteChoice

__all__ = ["repeat_config"]


def repeat_config(
    config_dict: Dict[str, Any], repeat_times: Union[int, Sequence[int], DiscreteChoice], share_arch: bool = False
) -> Dict[str, Any]:
    """A block that is there so many times, or a number of times to choose.

    The copies have the same choices with ``share_arch``, else each its own.
    """
    if isinstance(repeat_times, int):
        repeat_times = [repeat_times]
    times = repeat_times if isinstance(repeat_times, DiscreteChoice) else DiscreteChoice(repeat_times)
    count = max(times.choices)
    copies: List[Dict[str, Any]] = [config_dict if share_arch else _copy(config_dict) for _ in range(count)]
    return {
        "_config_type": "config_list",
        "_share_arch": share_arch,
        "_repeat_times": times,
        "_configs": {str(at): each for at, each in enumerate(copies)},
    }


def _copy(config: Dict[str, Any]) -> Dict[str, Any]:
    """A copy with choices of its own; one that was in two places still is."""
    return copy.deepcopy(config)
