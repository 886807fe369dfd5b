"""A provider: `python provider.py node_1`. Start one for every node, in any order."""

import os
import sys

import torch
from digits import criterion, loaders

from phalanx.decentralized import Node, Trainer, set_seed


def main(name):
    set_seed(7)
    train, valid = loaders()
    node = Node(name, torch.optim.Adam, optimizer_params={"lr": 2e-3}, criterion=criterion)
    epochs = int(os.environ.get("EPOCHS", "40"))
    trainer = Trainer(node, train, valid, val_freq=34, epochs=epochs, batch_size=64, save=True)
    trainer.train()
    found = trainer.evaluate()
    if found is not None:
        print(f"accuracy {found['accuracy']:.2%}")
        print(f"the first label of the validation is predicted as {int(trainer.pred(valid.dataset[0][0][None]).argmax())}")


if __name__ == "__main__":
    main(sys.argv[1])
