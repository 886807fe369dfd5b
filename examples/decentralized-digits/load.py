"""Loads the fused model into PyTorch and measures it on digits that it has never seen.

    pip install torch numpy safetensors && python load.py model.safetensors
"""

import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F


class DigitsCnn(nn.Module):
    """The network of cnn.toml."""

    def __init__(self):
        super().__init__()
        self.conv2d_1 = nn.Conv2d(1, 16, 3, padding=1)
        self.bn_1 = nn.BatchNorm2d(16)
        self.conv2d_2 = nn.Conv2d(16, 32, 3, padding=1)
        self.bn_2 = nn.BatchNorm2d(32)
        self.dense_1 = nn.Linear(32, 256)
        self.bn_3 = nn.BatchNorm1d(256)
        self.dense_2 = nn.Linear(256, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2d_1(x)), 2)
        x = F.max_pool2d(self.bn_1(F.dropout(x, 0.25, self.training)), 2)
        x = F.max_pool2d(F.relu(self.conv2d_2(x)), 2)
        x = self.bn_2(F.dropout(x, 0.25, self.training)).flatten(1)
        x = F.dropout(F.relu(self.dense_1(x)), 0.4, self.training)
        return F.softmax(self.dense_2(self.bn_3(x)), dim=1)


model = DigitsCnn()
model.load_state_dict(load_file(sys.argv[1] if len(sys.argv) > 1 else "model.safetensors"))
model.eval()

digits = np.load(pathlib.Path(__file__).resolve().parent.parent / "digits" / "digits.npz")
with torch.no_grad():
    guesses = model(torch.from_numpy(digits["x_test"])).argmax(dim=1).numpy()
right = int((guesses == digits["y_test"]).sum())
print(f"{right} of {len(guesses)} digits recognised: {100 * right / len(guesses):.2f} %")
