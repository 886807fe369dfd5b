"""A provider's node: what it learns with."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Optional

import torch

from .._nodes import Domain, EmbeddedNode
from ..errors import ConfigError
from ._clusters import FOLDER, Member, read_member
from ._optim import optimizer_settings
from ._pool import Provider, read_pool

Criterion = Callable[..., torch.Tensor]


class Node:
    """What a provider process learns with. It joins the other nodes of its project when its trainer trains.

    Args:
        name: ``node_0`` for the node ``0`` of ``node_configs.json``, and so on.
        optimizer: a class of ``torch.optim``: SGD, Adam, AdamW, RMSprop or Adagrad.
        optimizer_params: its parameters, such as ``{"lr": 0.01}``.
        criterion: the loss, a function of predictions and of the batch. ``batch[1]`` are the labels; inputs are not
            sent to the node with the loss, so ``batch[0]`` is None. A loss module of torch gets the labels instead.
            Every provider needs it: any of them may hold the last stage after another was lost.
        labels: taken for programs that give it; labels come with the samples of the trainer's loader.
        test_labels: the same of the validation.
        lr_scheduler: a class of ``torch.optim.lr_scheduler``.
        lr_scheduler_params: its parameters.
        lr_step_on_epoch_change: whether the scheduler steps after every pass; after every update if not.
        update_frequency: batches before an update, which uses the mean of their gradients.
        reduce_factor: updates after which several clusters average their parameters. Without it they average every
            gradient, and so compute what one cluster would with the batches of all.
        average_optim: whether clusters average the state of optimizers, too.
        compression: whether values between stages travel as 16-bit floats.
        device: only the CPU.
        loss_filename: where the losses of all updates are written.
        folder: where ``node_configs.json`` is.
    """

    def __init__(
        self,
        name: str,
        optimizer: Any = torch.optim.Adam,
        *,
        optimizer_params: Optional[Mapping[str, Any]] = None,
        criterion: Optional[Criterion] = None,
        labels: Any = None,
        test_labels: Any = None,
        lr_scheduler: Any = None,
        lr_scheduler_params: Optional[Mapping[str, Any]] = None,
        lr_step_on_epoch_change: bool = True,
        update_frequency: int = 1,
        reduce_factor: Optional[int] = None,
        average_optim: bool = False,
        compression: bool = False,
        device: Any = "cpu",
        loss_filename: str = "losses.txt",
        folder: str = FOLDER,
    ) -> None:
        if criterion is None:
            raise ConfigError(
                f"{name} has no criterion", "give it in every provider: any of them may hold the last stage"
            )
        if torch.device(device).type != "cpu":
            raise ConfigError(f"{name} cannot compute on {device}", "leave `device` out: nodes compute on the CPU")
        for given, value in (("update_frequency", update_frequency), ("reduce_factor", reduce_factor)):
            if value is not None and value < 1:
                raise ConfigError(f"`{given}` must be at least 1, not {value}")
        self.name = name
        self.folder = folder
        self.member: Member = read_member(folder, name)
        self.criterion = criterion
        self.optimizer = optimizer
        self.optimizer_params = dict(optimizer_params or {})
        self.optimizer_settings = optimizer_settings(optimizer, optimizer_params)
        self.lr_scheduler = lr_scheduler
        self.lr_scheduler_params = dict(lr_scheduler_params or {})
        self.lr_step_on_epoch_change = lr_step_on_epoch_change
        self.update_frequency = update_frequency
        self.reduce_factor = reduce_factor
        self.average_optim = average_optim
        self.compression = compression
        self.loss_filename = loss_filename
        self._pool = read_pool(folder)
        self._provider = self._find_provider()

    def _find_provider(self) -> Provider:
        for provider in self._pool.providers:
            if provider.name == self.name and provider.address == self.member.address:
                return provider
        raise ConfigError(f"node_configs.json has changed since clusters were formed: {self.name}", "run `clusterize`")

    @property
    def domain(self) -> Domain:
        """The domain of the process that drives the run."""
        return self._pool.domain(self._provider, drives=True)

    @property
    def is_local(self) -> bool:
        """Whether all nodes of the project are on this machine."""
        return self._pool.is_local

    def embedded(self) -> EmbeddedNode:
        """The node of this process. Nodes of one machine share its cores."""
        cores = max(1, (os.cpu_count() or 1) // self._pool.beside(self._provider))
        memory = int(self._provider.ram * 1e9)
        return EmbeddedNode(self._pool.domain(self._provider), self.name, cores, memory)

    def loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The criterion of a batch."""
        if isinstance(self.criterion, torch.nn.modules.loss._Loss):
            return torch.as_tensor(self.criterion(outputs, labels))
        return torch.as_tensor(self.criterion(outputs, (None, labels)))

    def __repr__(self) -> str:
        return f"Node({self.name!r}, {self.member.role} of cluster {self.member.cluster})"
