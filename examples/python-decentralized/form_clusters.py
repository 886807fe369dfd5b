"""Decides which provider holds which part of the model. Run it once, before the providers."""

import torch
from digits import DigitNet

from phalanx.decentralized import clusterize, set_seed

set_seed(7)
for cluster in clusterize(DigitNet(), (torch.zeros(64, 1, 8, 8),)):
    print(cluster)
