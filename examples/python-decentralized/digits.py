"""The model and the data, which all programs of this example share."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DATA = os.environ.get("DIGITS", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "digits", "digits.npz"))


class DigitNet(nn.Module):
    """Two convolutions and two dense layers, for images of 8 by 8 pixels."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding="same"),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding="same"),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Linear(96, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))

    def forward(self, images):
        return self.classify(self.features(images / 16))


def loaders(batch=64):
    """Training and validation samples."""
    data = np.load(DATA)
    train = TensorDataset(torch.from_numpy(data["x_train"]), torch.from_numpy(data["y_train"]))
    valid = TensorDataset(torch.from_numpy(data["x_test"]), torch.from_numpy(data["y_test"]))
    return DataLoader(train, batch_size=batch, shuffle=True), DataLoader(valid, batch_size=batch)


def criterion(outputs, batch):
    """Cross-entropy that is content with 95 %."""
    return nn.functional.cross_entropy(outputs, batch[1], label_smoothing=0.05)
