"""Ravnest's interface, over ``phalanx.decentralized``."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from ... import decentralized
from ...decentralized import Cluster, Node, model_fusion, set_seed

__all__ = ["Node", "Trainer", "clusterize", "model_fusion", "set_seed"]


def clusterize(model: Any = None, example_args: Any = (), **more: Any) -> Tuple[Cluster, ...]:
    """Forms clusters, and prints which node holds what."""
    clusters = decentralized.clusterize(model, example_args, **more)
    for cluster in clusters:
        print(cluster)
    return clusters


class Trainer(decentralized.Trainer):
    """A trainer that prints what it is worth."""

    def evaluate(self) -> Optional[Dict[str, float]]:
        found = super().evaluate()
        if found is not None:
            print(", ".join(f"validation {name}: {value:.4f}" for name, value in found.items()))
        return found
