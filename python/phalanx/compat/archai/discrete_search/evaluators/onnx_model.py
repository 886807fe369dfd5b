"""The latency of modules that were exported as ONNX."""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from phalanx.errors import InputError

from ..api.archai_model import ArchaiModel
from ..api.model_evaluator import ModelEvaluator
from .pt_profiler import average

__all__ = ["AvgOnnxLatency"]

_Shape = Tuple[int, ...]
_PROVIDERS = {"cpu": "CPUExecutionProvider", "gpu": "CUDAExecutionProvider", "cuda": "CUDAExecutionProvider"}


class AvgOnnxLatency(ModelEvaluator):
    """The mean time, in seconds, in which onnxruntime computes a module that torch has exported."""

    def __init__(
        self,
        input_shape: Union[_Shape, List[_Shape]],
        num_trials: int = 1,
        input_dtype: str = "torch.FloatTensor",
        rand_range: Tuple[float, float] = (0.0, 1.0),
        export_kwargs: Optional[Dict[str, Any]] = None,
        device: str = "cpu",
        inf_session_kwargs: Optional[Dict[str, Any]] = None,
    ) -> None:
        if num_trials < 1:
            raise InputError("`num_trials` must be at least 1")
        if device not in _PROVIDERS:
            raise InputError(f"no device is called {device!r}", f"there are {', '.join(_PROVIDERS)}")
        is_one = not input_shape or isinstance(input_shape[0], int)
        shapes: Sequence[Any] = [input_shape] if is_one else input_shape
        self.input_shapes: List[_Shape] = [tuple(shape) for shape in shapes]
        self.num_trials = num_trials
        self.input_dtype = input_dtype
        self.rand_range = rand_range
        self.export_kwargs = dict(export_kwargs or {})
        self.device = device
        self.inf_session_kwargs = dict(inf_session_kwargs or {})

    def evaluate(self, model: ArchaiModel, budget: Optional[float] = None) -> float:
        try:
            import onnxruntime  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError as error:
            raise InputError("the latency of ONNX files needs onnxruntime", "`pip install onnxruntime`") from error
        inputs = self._inputs()
        options = {"providers": [_PROVIDERS[self.device]], **self.inf_session_kwargs}
        with tempfile.TemporaryDirectory(prefix="phalanx-onnx-") as folder:
            path = Path(folder) / "model.onnx"
            self._export(model.arch, inputs, path)
            session = onnxruntime.InferenceSession(str(path), **options)
        given = {each.name: value.numpy() for each, value in zip(session.get_inputs(), inputs)}
        # The first run allocates.
        session.run(None, given)
        seconds = []
        for _ in range(self.num_trials):
            since = time.perf_counter()
            session.run(None, given)
            seconds.append(time.perf_counter() - since)
        return average(seconds)

    def _inputs(self) -> List[Any]:
        """Random tensors, the same ones every time."""
        import torch

        low, high = self.rand_range
        draws = torch.Generator().manual_seed(0)
        dtypes = {"torch.FloatTensor": torch.float32, "torch.LongTensor": torch.int64, "torch.IntTensor": torch.int32}
        if self.input_dtype not in dtypes:
            raise InputError(f"inputs cannot be of {self.input_dtype!r}", f"there are {', '.join(dtypes)}")
        drawn = [torch.rand(shape, generator=draws) * (high - low) + low for shape in self.input_shapes]
        return [each.to(dtypes[self.input_dtype]) for each in drawn]

    def _export(self, module: Any, inputs: List[Any], path: Path) -> None:
        import torch

        was_training = module.training
        module.eval()
        try:
            with warnings.catch_warnings(), torch.no_grad():
                # Of the exporter that needs no further package, that there is a newer one.
                warnings.simplefilter("ignore")
                options: Dict[str, Any] = {"dynamo": False, **self.export_kwargs}
                torch.onnx.export(module.cpu(), tuple(inputs), str(path), **options)
        finally:
            module.train(was_training)
