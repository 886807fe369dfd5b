"""A rank is killed in the second pass; the others go on from the last commit with a new one: `elastic.py FOLDER`."""

import os
import pathlib
import signal
import sys

import torch
from torch import nn

import phalanx.torch as hvd

torch.set_num_threads(1)
FOLDER = pathlib.Path(sys.argv[1])
PASSES, BATCH = 3, 4
hvd.init()

data = torch.utils.data.TensorDataset(torch.arange(72.0)[:, None])
torch.manual_seed(os.getpid())
net = nn.Linear(1, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1e-5, momentum=0.5), net.named_parameters())
sampler = hvd.elastic.ElasticSampler(data)
state = hvd.elastic.TorchState(model=net, optimizer=optimizer, sampler=sampler, epoch=0, steps=0, seen=[])
resets = []
state.register_reset_callbacks([lambda: resets.append(hvd.size())])


@hvd.elastic.run
def train(state):
    while state.epoch < PASSES:
        loader = torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=state.sampler)
        for number, (batch,) in enumerate(loader):
            if state.steps == 9 and hvd.rank() == 1 and not (FOLDER / "killed").exists():
                (FOLDER / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            (net(batch) - 3 * batch).pow(2).mean().backward()
            optimizer.step()
            state.sampler.record_batch(number, BATCH)
            state.steps += 1
            read = hvd.allgather(batch[:, 0])
            state.seen.append((state.epoch, [int(sample) for sample in read]))
            if state.steps % 2 == 0:
                state.commit()
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()


train(state)
assert state.steps == PASSES * 72 // (BATCH * hvd.size()) == 18
for epoch in range(PASSES):
    samples = [sample for number, batch in state.seen if number == epoch for sample in batch]
    assert sorted(samples) == list(range(72)), (epoch, sorted(samples))
weights = hvd.allgather(net.weight.detach().view(1))
assert len(set(weights.tolist())) == 1
print("resets", resets, "epochs", hvd.size(), flush=True)
