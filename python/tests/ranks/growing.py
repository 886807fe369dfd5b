"""Two ranks train until a third comes, and two passes more: `growing.py FOLDER`. Nothing is computed twice."""

import os
import pathlib
import sys

import torch
from torch import nn

import phalanx.torch as hvd

torch.set_num_threads(1)
FOLDER = pathlib.Path(sys.argv[1])
# What two ranks read between two commits can be shared evenly among three, as can the rest of a pass.
SAMPLES, BATCH, COMMIT = 72, 4, 3
hvd.init()

data = torch.utils.data.TensorDataset(torch.arange(float(SAMPLES))[:, None])
torch.manual_seed(os.getpid())
net = nn.Linear(1, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1e-5, momentum=0.5), net.named_parameters())
sampler = hvd.elastic.ElasticSampler(data)
state = hvd.elastic.TorchState(model=net, optimizer=optimizer, sampler=sampler, epoch=0, steps=0, seen=[], end=None)
resets = []
state.register_reset_callbacks([lambda: resets.append(hvd.size())])
computed = []


@hvd.elastic.run
def train(state):
    while state.end is None or state.epoch < state.end:
        if state.end is None and hvd.size() == 3:
            state.end = state.epoch + 2
        loader = torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=state.sampler)
        for number, (batch,) in enumerate(loader):
            computed.append(state.steps)
            optimizer.zero_grad()
            (net(batch) - 3 * batch).pow(2).mean().backward()
            optimizer.step()
            state.sampler.record_batch(number, BATCH)
            state.steps += 1
            read = hvd.allgather(batch[:, 0])
            state.seen.append((state.epoch, [int(sample) for sample in read]))
            if hvd.rank() == 0 and state.steps == 2:
                (FOLDER / "trains").touch()
            if number % COMMIT == COMMIT - 1:
                state.commit()
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()


train(state)
assert hvd.size() == 3, hvd.size()
assert computed == list(range(computed[0], state.steps)), computed
assert computed[0] == 0 or not resets
for epoch in range(state.end):
    samples = [sample for number, batch in state.seen if number == epoch for sample in batch]
    assert sorted(samples) == list(range(SAMPLES)), (epoch, sorted(samples))
weights = hvd.allgather(net.weight.detach().view(1))
assert len(set(weights.tolist())) == 1
print("resets", resets, flush=True)
