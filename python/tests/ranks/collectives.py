"""Every operation, type and shape, in another order on every rank: `collectives.py FRAMEWORK SEED`."""

import concurrent.futures
import importlib
import random
import sys

import numpy as np

FRAMEWORK, SEED = sys.argv[1], int(sys.argv[2])
hvd = importlib.import_module(f"phalanx.{FRAMEWORK}")
torch = importlib.import_module("torch") if FRAMEWORK == "torch" else None

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
DTYPES += ["bfloat16"] if torch else ["uint16", "uint32", "uint64"]
SHAPES = [(), (0,), (5,), (4, 3), (3, 0, 2), (2, 3, 4)]
REDUCTIONS = {
    "Sum": lambda all_ranks: all_ranks.sum(axis=0),
    "Average": lambda all_ranks: all_ranks.sum(axis=0) / len(all_ranks),
    "Min": lambda all_ranks: all_ranks.min(axis=0),
    "Max": lambda all_ranks: all_ranks.max(axis=0),
    "Product": lambda all_ranks: all_ranks.prod(axis=0),
}

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def values(name, rank, shape):
    """Small whole numbers, which every type holds and whose sums and products are exact."""
    rng = np.random.default_rng([sum(map(ord, name)), len(name), rank])
    return rng.integers(0, 3, size=shape).astype("float64")


def tensor(array, dtype, strided):
    """As a tensor of the framework; strided ones do not lie in one piece."""
    if torch is None:
        made = np.asarray(array).astype(dtype)
        return np.repeat(made[..., None], 2, axis=-1)[..., 0] if strided else made
    made = torch.tensor(np.asarray(array)).to(getattr(torch, dtype))
    return made.unsqueeze(-1).repeat_interleave(2, dim=-1)[..., 0] if strided else made


def numbers(result):
    """Back as numbers."""
    return np.asarray(result.to(torch.float64) if torch else result).astype("float64")


def exact(expected, dtype):
    if dtype == "bool":
        return (expected != 0).astype("float64")
    return np.trunc(expected) if "int" in dtype else expected


def check(name, result, expected, dtype):
    got = numbers(result)
    assert got.shape == expected.shape, (name, got.shape, expected.shape)
    close = {"float16": 1e-3, "bfloat16": 1e-2}.get(dtype, 1e-6)
    np.testing.assert_allclose(got, expected, rtol=close, err_msg=name)
    assert str(result.dtype).rpartition(".")[2] == dtype, name


CASES = []


def case(issue):
    CASES.append(issue)


def allreduce(dtype, shape, reduction, strided, in_place):
    name = f"allreduce.{dtype}.{shape}.{reduction}.{strided}.{in_place}"
    every = np.stack([values(name, rank, shape) for rank in range(SIZE)])
    expected = exact(REDUCTIONS[reduction](every), dtype)
    given = tensor(every[RANK], dtype, strided)
    issue = hvd.allreduce_async_ if in_place else hvd.allreduce_async
    handle = issue(given, name=name, op=getattr(hvd, reduction))

    def finish():
        result = hvd.synchronize(handle)
        check(name, result, expected, dtype)
        if in_place:
            check(name, given, expected, dtype)
        else:
            check(name, given, exact(every[RANK], dtype), dtype)

    return handle, finish


def scaled(dtype):
    name = f"scaled.{dtype}"
    every = np.stack([values(name, rank, (7,)) for rank in range(SIZE)])
    handle = hvd.allreduce_async(
        tensor(every[RANK], dtype, False), name=name, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0
    )
    return handle, lambda: check(name, hvd.synchronize(handle), every.sum(axis=0) * 6, dtype)


def grouped(dtypes, in_place):
    name = f"grouped.{dtypes}.{in_place}"
    shapes = [(2, 3), (), (4,)]
    every = [[values(f"{name}{i}", rank, shape) for rank in range(SIZE)] for i, shape in enumerate(shapes)]
    given = [tensor(ranks[RANK], dtype, i == 0) for i, (ranks, dtype) in enumerate(zip(every, dtypes))]
    issue = hvd.grouped_allreduce_async_ if in_place else hvd.grouped_allreduce_async
    handle = issue(given, name=name, op=hvd.Sum)

    def finish():
        for result, ranks, dtype in zip(hvd.synchronize(handle), every, dtypes):
            check(name, result, np.stack(ranks).sum(axis=0), dtype)

    return handle, finish


def allgather(dtype, inner, strided):
    name = f"allgather.{dtype}.{inner}.{strided}"
    every = [values(name, rank, (rank + 1, *inner)) for rank in range(SIZE)]
    handle = hvd.allgather_async(tensor(every[RANK], dtype, strided), name=name)
    return handle, lambda: check(name, hvd.synchronize(handle), exact(np.concatenate(every), dtype), dtype)


def broadcast(dtype, shape, strided, in_place):
    name = f"broadcast.{dtype}.{shape}.{strided}.{in_place}"
    root = len(name) % SIZE
    given = tensor(values(name, RANK, shape), dtype, strided)
    issue = hvd.broadcast_async_ if in_place else hvd.broadcast_async
    handle = issue(given, root, name=name)
    expected = exact(values(name, root, shape), dtype)

    def finish():
        check(name, hvd.synchronize(handle), expected, dtype)
        check(name, given, expected if in_place else exact(values(name, RANK, shape), dtype), dtype)

    return handle, finish


def alltoall(dtype, inner, with_splits):
    name = f"alltoall.{dtype}.{inner}.{with_splits}"

    def splits(rank):
        return [(rank + to) % 3 if with_splits else 2 for to in range(SIZE)]

    every = [values(name, rank, (sum(splits(rank)), *inner)) for rank in range(SIZE)]
    parts = [np.split(every[rank], np.cumsum(splits(rank))[:-1])[RANK] for rank in range(SIZE)]
    given = splits(RANK) if with_splits else None
    handle = hvd.alltoall_async(tensor(every[RANK], dtype, False), given, name=name)

    def finish():
        received, rows = hvd.synchronize(handle)
        check(name, received, exact(np.concatenate(parts), dtype), dtype)
        assert list(rows) == [len(part) for part in parts], name

    return handle, finish


def reducescatter(dtype, shape, reduction):
    name = f"reducescatter.{dtype}.{shape}.{reduction}"
    every = np.stack([values(name, rank, shape) for rank in range(SIZE)])
    whole = exact(REDUCTIONS[reduction](every), dtype)
    rows = [len(part) for part in np.array_split(whole, SIZE)]
    begin = sum(rows[:RANK])
    expected = whole[begin : begin + rows[RANK]]
    handle = hvd.reducescatter_async(tensor(every[RANK], dtype, False), name=name, op=getattr(hvd, reduction))
    return handle, lambda: check(name, hvd.synchronize(handle), expected, dtype)


for number, dtype in enumerate(DTYPES):
    for place, shape in enumerate(SHAPES):
        for reduction in REDUCTIONS:
            unsigned = dtype == "uint64" and reduction in ("Average", "Min", "Max")
            if unsigned or (dtype == "bool" and reduction == "Average"):
                continue
            odd = (number + place) % 2 == 0
            case(lambda d=dtype, s=shape, r=reduction, o=odd: allreduce(d, s, r, o, not o))
            case(lambda d=dtype, s=shape, r=reduction, o=odd: allreduce(d, s, r, o, o))
        case(lambda d=dtype, s=shape, o=place % 2 == 0: broadcast(d, s, o, o))
        case(lambda d=dtype, s=shape, o=place % 2 == 0: broadcast(d, s, o, not o))
    for inner in [(), (3,), (2, 2), (0,)]:
        case(lambda d=dtype, i=inner: allgather(d, i, bool(i)))
        case(lambda d=dtype, i=inner: alltoall(d, i, bool(i)))
    if dtype not in ("bool", "uint64"):
        for shape in [(7,), (4, 3), (1, 2), (0, 2)]:
            case(lambda d=dtype, s=shape: reducescatter(d, s, "Sum"))
            case(lambda d=dtype, s=shape: reducescatter(d, s, "Average"))
for dtype in ("float32", "float64", "float16"):
    case(lambda d=dtype: scaled(d))
case(lambda: grouped(["float32", "float32", "float32"], False))
case(lambda: grouped(["float32", "float64", "int32"], True))

# Shapes, types and operations drawn by the seed, the same on all ranks.
drawn = random.Random(SEED)
for number in range(10, 70):
    dtype = drawn.choice([dtype for dtype in DTYPES if dtype not in ("bool", "uint64")])
    shape = tuple(drawn.randrange(5) for _ in range(drawn.randrange(5)))
    reduction, flag, other = drawn.choice(list(REDUCTIONS)), drawn.random() < 0.5, drawn.random() < 0.5
    kinds = [
        lambda d=dtype, s=shape, r=reduction, f=flag, o=other, n=number: allreduce(d, (n, *s), r, f, o),
        lambda d=dtype, s=shape, f=flag, o=other, n=number: broadcast(d, (n, *s), f, o),
        lambda d=dtype, s=shape, f=flag, n=number: allgather(d, (n, *s), f),
        lambda d=dtype, s=shape, f=flag, n=number: alltoall(d, (n, *s), f),
        lambda d=dtype, s=shape, r=reduction, n=number: reducescatter(d, (n, *s), r),
    ]
    case(drawn.choice(kinds))

# Another order of issuing and of waiting on every rank.
shuffler = random.Random(SEED * 1000 + RANK)
shuffler.shuffle(CASES)
under_way = [issue() for issue in CASES]
shuffler.shuffle(under_way)
for handle, finish in under_way:
    finish()
    assert hvd.poll(handle)


def several(thread):
    for step in range(50):
        total = hvd.allreduce(tensor(np.full(9, RANK), "float64", False), name=f"thread {thread}", op=hvd.Sum)
        assert numbers(total)[0] == SIZE * (SIZE - 1) / 2, step


with concurrent.futures.ThreadPoolExecutor(3) as pool:
    list(pool.map(several, range(3)))
print(f"checked {len(CASES)}", flush=True)
hvd.shutdown()
