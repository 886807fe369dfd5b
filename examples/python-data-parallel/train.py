"""Trains a torch model on several ranks; goes on when a rank is lost.

    phalanx launch -n 2 -- python train.py
    phalanx launch -n 2 --min 1 -- python train.py     with ranks that may die
"""

import argparse
import pathlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import phalanx.torch as hvd

DIGITS = pathlib.Path(__file__).resolve().parents[1] / "digits" / "digits.npz"

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=32, help="samples of all ranks in a step")
arguments = parser.parse_args()

hvd.init()
torch.set_num_threads(1)
digits = np.load(DIGITS)
x, y = torch.from_numpy(digits["x_train"] / 16), torch.from_numpy(digits["y_train"])
x_test, y_test = torch.from_numpy(digits["x_test"] / 16), torch.from_numpy(digits["y_test"])

model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(x)
# Rank 0 gives this state to all ranks when they have met.
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)


@hvd.elastic.run
def train(state):
    batch = max(1, arguments.batch // hvd.size())
    while state.epoch < arguments.epochs:
        loader = torch.utils.data.DataLoader(list(zip(x, y)), batch_size=batch, sampler=sampler)
        for number, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            sampler.record_batch(number, batch)
        correct = (model(x_test).argmax(dim=1) == y_test).float().mean()
        if hvd.rank() == 0:
            print(f"pass {state.epoch + 1}: loss {loss.item():.3f}, {correct.item():.1%} of the test right", flush=True)
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()


train(state)
if hvd.rank() == 0:
    torch.save(model.state_dict(), "digits.pt")
