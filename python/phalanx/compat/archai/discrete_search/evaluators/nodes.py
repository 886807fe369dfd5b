"""Evaluators whose models are evaluated by nodes, many at once."""

from __future__ import annotations

import logging
import os
from concurrent.futures import Executor as AnyExecutor
from concurrent.futures import Future, wait
from typing import Any, List, Optional, Union

from phalanx import Domain
from phalanx.errors import InputError
from phalanx.jobs import Executor

from ..api.archai_model import ArchaiModel
from ..api.model_evaluator import AsyncModelEvaluator, ModelEvaluator

__all__ = ["NodesEvaluator", "RayParallelEvaluator"]

_log = logging.getLogger("phalanx.search")


def _evaluate(evaluator: ModelEvaluator, arch: ArchaiModel, budget: Optional[float]) -> float:
    return evaluator.evaluate(arch, budget)


class NodesEvaluator(AsyncModelEvaluator):
    """Sends models to nodes, where the evaluator is called: those of a domain, or ``local`` ones of this machine.

    Nodes of a domain must be started with ``phalanx node --allow-python``. A model whose node dies is evaluated again.
    A model has no value whose evaluation raises, or is not over ``timeout`` seconds after ``fetch_all`` was called;
    ``force_stop`` also ends evaluations that have begun. Any other executor of ``concurrent.futures`` may be given.
    """

    def __init__(
        self,
        obj: ModelEvaluator,
        domain: Union[str, Domain, None] = None,
        *,
        local: Optional[int] = None,
        executor: Optional[AnyExecutor] = None,
        timeout: Optional[float] = None,
        force_stop: bool = False,
        cores: int = 1,
    ) -> None:
        if sum(each is not None for each in (domain, local, executor)) > 1:
            raise InputError("`domain`, `local` and `executor` say the same", "say one of them")
        self.obj = obj
        self.timeout = timeout
        self.force_stop = force_stop
        self._domain, self._local, self._cores = domain, local, cores
        self._executor = executor
        self._owns = executor is None
        self._sent: "List[Future[float]]" = []

    def _nodes(self) -> AnyExecutor:
        if self._executor is None:
            if self._local is not None:
                self._executor = Executor(local=self._local, local_cores=self._cores)
            else:
                started = Executor("default" if self._domain is None else self._domain)
                self._executor = started.options(cores=self._cores)
        return self._executor

    def send(self, arch: ArchaiModel, budget: Optional[float] = None) -> None:
        self._sent.append(self._nodes().submit(_evaluate, self.obj, arch, budget))

    def fetch_all(self) -> List[Optional[float]]:
        sent, self._sent = self._sent, []
        wait(sent, self.timeout)
        return [self._value(future) for future in sent]

    def _value(self, future: "Future[float]") -> Optional[float]:
        if not future.done():
            if self.force_stop or not future.running():
                future.cancel()
            _log.warning("a model was not evaluated within %s s", self.timeout)
            return None
        try:
            return future.result()
        except Exception as error:
            _log.warning("a model could not be evaluated: %s: %s", type(error).__name__, error)
            return None

    def close(self) -> None:
        """Ends the nodes that were started here."""
        if self._owns and self._executor is not None:
            self._executor.shutdown()
            self._executor = None

    def __getstate__(self) -> Any:
        raise TypeError("an evaluator that sends to nodes cannot itself be sent")


class RayParallelEvaluator(NodesEvaluator):
    """The name of Ray's evaluator, on nodes of this machine: one for each ``num_cpus`` of its cores."""

    def __init__(
        self, obj: ModelEvaluator, timeout: Optional[float] = None, force_stop: bool = False, **ray_kwargs: Any
    ) -> None:
        cpus = ray_kwargs.pop("num_cpus", 1)
        if ray_kwargs:
            raise InputError(f"Ray's options are not there: {', '.join(ray_kwargs)}", "`num_cpus` is")
        cores = max(1, int(cpus))
        local = max(1, (os.cpu_count() or 1) // cores)
        super().__init__(obj, local=local, timeout=timeout, force_stop=force_stop, cores=cores)
