"""Decentralized training: a model cut over provider programs, each of which holds a part of it.

One program forms clusters of the nodes that ``node_data/node_configs.json`` lists::

    from phalanx.decentralized import clusterize, set_seed

    set_seed(42)
    clusterize(model, (torch.rand(64, 1, 8, 8),))

Then every provider, in any order and in processes of their own, trains its part::

    node = Node("node_0", optimizer=torch.optim.Adam, criterion=criterion)
    trainer = Trainer(node, train_loader, val_loader, epochs=100, batch_size=64)
    trainer.train()

``model_fusion`` puts the parts together to one ``state_dict``.
"""

from ._clusters import Cluster, Member, clusterize, model_fusion
from ._node import Node
from ._seed import set_seed
from ._trainer import Trainer

__all__ = ["Cluster", "Member", "Node", "Trainer", "clusterize", "model_fusion", "set_seed"]
