"""The one source of random numbers of the reference files, small enough to be written again in Rust.

All arithmetic on u64 wraps.

    fnv1a64(name):  h = 0xcbf29ce484222325; for each UTF-8 byte b: h = (h ^ b) * 0x100000001b3
    splitmix64(x):  z = x + 0x9e3779b97f4a7c15
                    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
                    z = (z ^ (z >> 27)) * 0x94d049bb133111eb
                    z ^ (z >> 31)
    u(name, i):     (splitmix64(fnv1a64(name) + i * 0x9e3779b97f4a7c15) >> 40) / 2^24, in [0, 1)

Element `i` of a tensor called `name`, in row-major order, is made of `u(name, i)`; arithmetic is in f64, and the
result is rounded to f32 once:

    uniform         2u - 1
    integers < n    floor(u * n)

The weights of a model are made by their name in its state_dict. The first row that fits decides;
`last` is what follows the last dot of the name, `owner` what stands between the last two dots:

    last = num_batches_tracked                     0
    last = running_mean                            0.1 * (2u - 1)
    last = running_var                             1 + 0.2 * u
    last contains `bias`                           0.1 * (2u - 1)
    at most one dimension                          1 + 0.2 * (2u - 1)
    owner or last is one of EMBEDDINGS             0.5 * (2u - 1)
    anything else                                  (2u - 1) * sqrt(3 / product(shape[1..]))

A tensor with two names (tied weights) is made by the name which comes first in the state_dict.
A buffer that is not listed above by its name (a mask, say) keeps the values the module gave it.
"""

import numpy as np
import torch

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
EMBEDDINGS = ("wte", "wpe", "embedding", "cls", "position")
STATISTICS = ("num_batches_tracked", "running_mean", "running_var")


def fnv1a64(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def unit(name, count):
    """`count` numbers in [0, 1) as f64."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a64(name)) + np.arange(count, dtype=np.uint64) * GOLDEN + GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) / float(1 << 24)


def uniform(name, shape, low=-1.0, high=1.0):
    """f32 numbers in [low, high); low + (high - low) * u, which for the default is 2u - 1."""
    count = int(np.prod(shape, dtype=np.int64))
    values = low + (high - low) * unit(name, count)
    return torch.from_numpy(values.astype(np.float32).reshape(shape))


def integers(name, shape, n):
    count = int(np.prod(shape, dtype=np.int64))
    return torch.from_numpy(np.floor(unit(name, count) * n).astype(np.int64).reshape(shape))


def weight(name, shape):
    """The deterministic weight `name`, by the table above."""
    shape = tuple(shape)
    parts = name.split(".")
    last, owner = parts[-1], parts[-2] if len(parts) > 1 else ""
    u = unit(name, int(np.prod(shape, dtype=np.int64)))
    if last == "num_batches_tracked":
        return torch.zeros(shape, dtype=torch.int64)
    if last == "running_mean" or (last != "running_var" and "bias" in last):
        values = 0.1 * (2 * u - 1)
    elif last == "running_var":
        values = 1 + 0.2 * u
    elif len(shape) <= 1:
        values = 1 + 0.2 * (2 * u - 1)
    elif owner in EMBEDDINGS or last in EMBEDDINGS:
        values = 0.5 * (2 * u - 1)
    else:
        values = (2 * u - 1) * np.sqrt(3 / np.prod(shape[1:], dtype=np.float64))
    return torch.from_numpy(values.astype(np.float32).reshape(shape))


def is_generated(name, parameters):
    return name in parameters or name.split(".")[-1] in STATISTICS


def fill(module):
    """Gives every parameter and every running statistic of `module` its deterministic value."""
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    seen = set()
    with torch.no_grad():
        for name, tensor in module.state_dict(keep_vars=True).items():
            if id(tensor) in seen or not is_generated(name, parameters):
                continue
            seen.add(id(tensor))
            tensor.copy_(weight(name, tensor.shape))
    return module
