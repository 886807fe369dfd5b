"""Training on ranks is training of one process with the whole batch; gradients through collectives."""

import copy
import importlib

import torch
from torch import nn
from torch.nn import functional

import phalanx.torch as hvd

torch.set_num_threads(1)
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
STEPS, BATCH = 8, 16

torch.manual_seed(0)
x = torch.randn(STEPS, BATCH, 6)
y = torch.randint(0, 3, (STEPS, BATCH))


def model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))


def whole(make, passes=1):
    """One process with the whole batch."""
    net = model(1)
    optimizer = make(net.parameters())
    for step in range(STEPS // passes):
        optimizer.zero_grad()
        for part in range(passes):
            functional.cross_entropy(net(x[step * passes + part]), y[step * passes + part]).backward()
        optimizer.step()
    return net


def shared(make, passes=1, **options):
    """Ranks with their parts of each batch, from weights of rank 0."""
    net = model(1 + RANK)
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        make(net.parameters()), net.named_parameters(), backward_passes_per_step=passes, **options
    )
    part = slice(RANK * BATCH // SIZE, (RANK + 1) * BATCH // SIZE)
    for step in range(STEPS // passes):
        optimizer.zero_grad()
        for number in range(step * passes, (step + 1) * passes):
            functional.cross_entropy(net(x[number, part]), y[number, part]).backward()
        optimizer.step()
    return net, optimizer


def difference(one, other):
    return max((a - b).abs().max().item() for a, b in zip(one.parameters(), other.parameters()))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


for make in (sgd, adam):
    net, optimizer = shared(make)
    assert isinstance(optimizer, type(make(net.parameters())))
    assert difference(net, whole(make)) < 1e-5
    assert difference(shared(make, passes=2)[0], whole(make, passes=2)) < 1e-5
    assert difference(shared(make, groups=2)[0], whole(make)) < 1e-5
    assert difference(shared(make, groups=0)[0], whole(make)) < 1e-5
    assert difference(shared(make, gradient_predivide_factor=2.0)[0], whole(make)) < 1e-5
    compressed = difference(shared(make, compression=hvd.Compression.fp16)[0], whole(make))
    # Adam's steps do not shrink with gradients, so that those near zero tell the difference of 16 bits.
    assert compressed < (2e-3 if make is sgd else 2e-2), compressed

net, optimizer = shared(sgd, op=hvd.Adasum)
assert all(torch.equal(hvd.broadcast(p.detach(), 0), p) for p in net.parameters())

# All ranks get the settings and moments of rank 0.
net, optimizer = shared(adam)
if RANK > 0:
    optimizer = adam(net.parameters())
    optimizer.param_groups[0]["lr"] = 5.0
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
state = optimizer.state_dict()
assert state["param_groups"][0]["lr"] == 0.01
moments = hvd.allgather_object(state["state"][0]["exp_avg"])
assert all(torch.equal(moments[0], other) for other in moments) and len(state["state"]) == 6

# A parameter without a gradient on some ranks; clipping between synchronize and step.
net = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)])
hvd.broadcast_parameters(net.named_parameters(), root_rank=0)
before = copy.deepcopy(net)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0))
net[RANK % 2](torch.ones(1, 2)).sum().backward()
try:
    optimizer.zero_grad()
except hvd.HorovodInternalError:
    pass
else:
    raise AssertionError("zero_grad must refuse while gradients are on their way")
optimizer.synchronize()
norm = nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
assert abs(norm.item() - (8 * 0.25) ** 0.5) < 1e-6
with optimizer.skip_synchronize():
    optimizer.step()
assert 0 < difference(net, before) < 1e-3

# A scheduler that was made before.
net = nn.Linear(2, 1)
hvd.broadcast_parameters(net.state_dict(), root_rank=0)
plain = torch.optim.SGD(net.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5)
optimizer = hvd.DistributedOptimizer(plain, net.named_parameters())
for step in range(2):
    assert optimizer.param_groups[0]["lr"] == 0.5**step
    optimizer.zero_grad()
    net(torch.full((1, 2), float(RANK))).sum().backward()
    optimizer.step()
    scheduler.step()
assert all(torch.equal(hvd.broadcast(p.detach(), 0), p) for p in net.parameters())

# Workers of a loader are forked from a rank.
loaded = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[0]), batch_size=4, num_workers=1)
assert sum(len(batch) for (batch,) in loaded) == BATCH
hvd.barrier()

# Sparse gradients.
table = nn.Embedding(8, 2, sparse=True)
hvd.broadcast_parameters(table.state_dict(), root_rank=0)
start = table.weight.detach().clone()
for dense in (False, True):
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), op=hvd.Sum, sparse_as_dense=dense)
    optimizer.zero_grad()
    table(torch.tensor([RANK, 7])).sum().backward()
    optimizer.step()
    for hook in optimizer._exchange.hooks:
        hook.remove()
change = start - table.weight.detach()
expected = torch.zeros(8, 2)
expected[:SIZE] = 2.0
expected[7] += 2.0 * SIZE
assert torch.allclose(change, expected, atol=1e-5), change

# Normalisation over the batches of all ranks, which have different sizes.
sizes = [2 + rank for rank in range(SIZE)]
batch = torch.randn(sum(sizes), 3, 4, generator=torch.Generator().manual_seed(5))
weight = torch.randn(batch.shape, generator=torch.Generator().manual_seed(6))
plain, norm = nn.BatchNorm1d(3), hvd.SyncBatchNorm(3)
mine = slice(sum(sizes[:RANK]), sum(sizes[: RANK + 1]))
every = batch.clone().requires_grad_()
own = batch[mine].clone().requires_grad_()
whole_out = plain(every)
(whole_out * weight).sum().backward()
out = norm(own)
(out * weight[mine]).sum().backward()
assert torch.allclose(out, whole_out[mine], atol=1e-5)
assert torch.allclose(norm.running_mean, plain.running_mean, atol=1e-6)
assert torch.allclose(norm.running_var, plain.running_var, atol=1e-5)
assert torch.allclose(own.grad, every.grad[mine], atol=1e-4)
reduced = hvd.allreduce(norm.weight.grad, op=hvd.Sum)
assert torch.allclose(reduced, plain.weight.grad, atol=1e-4)
importlib.import_module("gradients")
print("done", flush=True)
