"""Gradients through collectives, for any number of ranks."""

import torch

import phalanx.torch as hvd

torch.set_num_threads(1)
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def own(*shape):
    return torch.full(shape, float(RANK + 1), requires_grad=True)


x = own(3)
hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0).backward(torch.ones(3))
assert x.grad.tolist() == [2.0 * SIZE] * 3
x = own(3)
hvd.allreduce(x).backward(torch.full([3], float(RANK)))
assert x.grad.tolist() == [(SIZE - 1) / 2] * 3
x, z = own(2), own(2, 2)
a, b = hvd.grouped_allreduce([x, z], op=hvd.Sum)
(a.sum() + 2 * b.sum()).backward()
assert x.grad.tolist() == [SIZE] * 2 and z.grad.tolist() == [[2 * SIZE] * 2] * 2

x = own(RANK + 1, 2)
gathered = hvd.allgather(x)
rows = SIZE * (SIZE + 1) // 2
assert gathered.shape == (rows, 2)
gathered.backward(torch.arange(float(rows))[:, None].expand(rows, 2))
begin = sum(range(RANK + 1))
assert x.grad[:, 0].tolist() == [float(row) for row in range(begin, begin + RANK + 1)]

x = own(2)
sent = hvd.broadcast(x, 1)
assert sent.tolist() == [2.0, 2.0]
sent.backward(torch.full([2], float(RANK)))
assert x.grad.tolist() == ([(SIZE - 1) / 2] * 2 if RANK == 1 else [0.0, 0.0])

x = own(SIZE)
received, rows = hvd.alltoall(x, splits=[1] * SIZE)
assert received.tolist() == [rank + 1.0 for rank in range(SIZE)] and rows.tolist() == [1] * SIZE
received.backward(torch.full([SIZE], float(RANK)))
assert x.grad.tolist() == [float(rank) for rank in range(SIZE)]

x = own(SIZE, 2)
part = hvd.reducescatter(x, op=hvd.Sum)
assert part.tolist() == [[SIZE * (SIZE + 1) / 2] * 2]
part.backward(torch.full([1, 2], float(RANK)))
assert x.grad[:, 0].tolist() == [float(SIZE * rank) for rank in range(SIZE)]

for wrong in ([1.0], torch.ones(2).to_sparse(), torch.ones(1, dtype=torch.complex64), torch.ones(1).expand(3)):
    try:
        hvd.allreduce_(wrong)
    except ValueError:
        continue
    raise AssertionError(wrong)

small = hvd.allreduce(torch.full([4], 0.1), compression=hvd.Compression.fp16)
assert small.dtype == torch.float32 and abs(small[0].item() - 0.1) < 1e-4

sparse = torch.sparse_coo_tensor([[RANK, 0]], [1.0, 2.0], (SIZE + 1,))
total = hvd.synchronize(hvd.sparse_allreduce_async(sparse, name="sparse", op=hvd.Average))
assert torch.allclose(total.to_dense(), torch.tensor([2.0 * SIZE + 1] + [1.0] * (SIZE - 1) + [0.0]) / SIZE)

try:
    hvd.allreduce(torch.ones(2 + RANK), name="shape of rank")
except RuntimeError as error:
    assert "shape of rank" in str(error)
else:
    raise AssertionError("shapes differ")
# A rank that is late must find the first one.
hvd.barrier()
