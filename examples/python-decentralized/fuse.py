"""Puts the trained parts together, and loads them into the module."""

import torch
from digits import DigitNet, loaders

from phalanx.decentralized import model_fusion

model_fusion(cluster_id=0)
model = DigitNet()
model.load_state_dict(torch.load("trained/trained_state_dict.pt", weights_only=True), strict=True)
model.eval()
images, labels = loaders()[1].dataset.tensors
with torch.no_grad():
    print(f"accuracy {(model(images).argmax(dim=1) == labels).float().mean():.2%}")
