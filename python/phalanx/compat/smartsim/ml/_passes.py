"""Which samples a replica uses in a pass over the data, and in which order. Pure: the same arguments, the same answer.

The order of a pass is that of all samples together. A step takes the next ``batch_size * num_replicas`` of them, and
each replica its part, so one replica with a batch of 64 uses the same samples in a step as two with batches of 32.
"""

from __future__ import annotations

from typing import List

import numpy as np
import numpy.typing as npt

__all__ = ["batches_of", "order_of"]

Indices = npt.NDArray[np.int64]


def order_of(samples: int, seed: int, pass_number: int, shuffle: bool) -> Indices:
    """The order of all samples in a pass.

    >>> order_of(5, 1, 0, True).tolist() == order_of(5, 1, 0, True).tolist(), sorted(order_of(5, 1, 7, True).tolist())
    (True, [0, 1, 2, 3, 4])
    """
    if not shuffle:
        return np.arange(samples, dtype=np.int64)
    seeds = np.random.SeedSequence([seed, pass_number])
    return np.random.Generator(np.random.PCG64(seeds)).permutation(samples).astype(np.int64)


def batches_of(order: Indices, batch_size: int, rank: int, replicas: int, drop_last: bool) -> List[Indices]:
    """The batches of one replica; together the replicas use every sample once.

    All replicas have as many batches, so that they can exchange gradients after each: the samples of the last step are
    shared out evenly. If there are fewer of them than replicas, they go to the step before.

    >>> order = np.arange(9)
    >>> [[batch.tolist() for batch in batches_of(order, 2, rank, 2, False)] for rank in (0, 1)]
    [[[0, 1], [4, 5, 6]], [[2, 3], [7, 8]]]
    >>> [batch.tolist() for batch in batches_of(order, 4, 0, 1, False)]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    """
    together = batch_size * replicas
    full, rest = divmod(len(order), together)
    ends = [together * (step + 1) for step in range(full)]
    if rest and not drop_last:
        if full and rest < replicas:
            ends[-1] = len(order)
        else:
            ends.append(len(order))
    steps = zip([0, *ends], ends)
    mine = [np.array_split(order[first:end], replicas)[rank] for first, end in steps]
    return [batch for batch in mine if len(batch)]
