"""Partial trainings of given candidates with Archai's evaluator and PyTorch: one JSON line with the time they took.

    search_archai.py DATASETS CANDIDATES.json WORKERS SAMPLES BATCH

A candidate is {"nb_layers": 2, "kernel_size": 3, "hidden_dim": 16}; each is trained on the first SAMPLES images of MNIST
and validated on the 10,000 images of its test set, by Ray workers with one thread each.
"""

import json
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import ray
import torch
from archai.discrete_search.api.archai_model import ArchaiModel
from archai.discrete_search.api.model_evaluator import ModelEvaluator
from archai.discrete_search.evaluators.ray import RayParallelEvaluator
from torch import nn

datasets, candidates, workers, samples, batch = sys.argv[1:]
workers, samples, batch = int(workers), int(samples), int(batch)


def load(images, labels):
    x = np.fromfile(os.path.join(datasets, images), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    y = np.fromfile(os.path.join(datasets, labels), np.uint8, offset=8)
    x = (torch.from_numpy(x.astype(np.float32)) / 255 - 0.1307) / 0.3081
    return x, torch.from_numpy(y.astype(np.int64))


def network(nb_layers, kernel_size, hidden_dim):
    layers, width = [], 1
    for _ in range(nb_layers):
        layers += [nn.Conv2d(width, hidden_dim, kernel_size, padding="same"), nn.BatchNorm2d(hidden_dim), nn.ReLU()]
        width = hidden_dim
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class Accuracy(ModelEvaluator):
    """Trains and validates, as a user of Archai writes it."""

    def evaluate(self, arch, budget=None):
        torch.set_num_threads(1)
        torch.manual_seed(1)
        (x, y), (x_test, y_test) = DATA()
        model = network(**arch.metadata)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        loss = nn.CrossEntropyLoss()
        order = torch.randperm(samples)
        for at in range(0, samples - batch + 1, batch):
            rows = order[at : at + batch]
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum(
                (model(x_test[at : at + batch]).argmax(1) == y_test[at : at + batch]).sum().item()
                for at in range(0, len(x_test), batch)
            )
        return right / len(x_test)


HELD = {}


def DATA():
    """Read once in every worker."""
    if not HELD:
        HELD["train"] = load("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
        HELD["test"] = load("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    return HELD["train"], HELD["test"]


with open(candidates) as file:
    archs = [ArchaiModel(None, str(n), metadata=genes) for n, genes in enumerate(json.load(file))]
ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="error")
began = time.perf_counter()
evaluator = RayParallelEvaluator(Accuracy(), num_cpus=1)
for arch in archs:
    evaluator.send(arch, 1)
accuracies = evaluator.fetch_all()
seconds = time.perf_counter() - began
print(json.dumps({"seconds": seconds, "trials": len(archs), "mean_accuracy": sum(accuracies) / len(accuracies)}))
