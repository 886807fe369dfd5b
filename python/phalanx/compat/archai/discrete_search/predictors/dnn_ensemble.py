"""Several networks that learn the same: where they differ, the prediction is uncertain."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import numpy

from phalanx.errors import InputError

from ..api.predictor import MeanVar, Predictor

__all__ = ["PredictiveDNNEnsemble"]

# Of Adam.
_FIRST, _SECOND, _SMALL = 0.9, 0.999, 1e-8

_Layers = List[Tuple[Any, Any]]


class PredictiveDNNEnsemble(Predictor):
    """Networks of fully connected layers, computed together with NumPy. ``device`` changes nothing."""

    def __init__(
        self,
        num_ensemble_members: int = 5,
        num_layers: int = 5,
        width: int = 64,
        lr: float = 1e-4,
        num_tr_steps: int = 2_000,
        replace_nan_value: float = -1.0,
        device: Optional[str] = "cpu",
        seed: int = 1,
    ) -> None:
        if min(num_ensemble_members, num_layers, width) < 1:
            raise InputError("an ensemble has at least one member, one layer and one unit")
        self.num_ensemble_members = num_ensemble_members
        self.num_layers = num_layers
        self.width = width
        self.lr = lr
        self.num_tr_steps = num_tr_steps
        self.replace_nan_value = replace_nan_value
        self.device = device
        self._rng = numpy.random.default_rng(seed)
        self._layers: Optional[_Layers] = None
        self._x_scale: Tuple[Any, Any] = (0.0, 1.0)
        self._y_scale: Tuple[Any, Any] = (0.0, 1.0)

    def fit(self, encoded_archs: Any, y: Any) -> None:
        x, y = self._filled(encoded_archs), numpy.asarray(y, dtype=numpy.float64)
        if len(x) == 0 or len(x) != len(y):
            raise InputError(f"there are {len(x)} architectures and {len(y)} rows of values")
        self._x_scale, self._y_scale = _scale(x), _scale(y)
        x, y = (x - self._x_scale[0]) / self._x_scale[1], (y - self._y_scale[0]) / self._y_scale[1]
        layers = self._fresh(x.shape[1], y.shape[1])
        parameters = [each for layer in layers for each in layer]
        first = [numpy.zeros_like(each) for each in parameters]
        second = [numpy.zeros_like(each) for each in parameters]
        for step in range(1, self.num_tr_steps + 1):
            gradients = _gradients(layers, x, y)
            for value, gradient, mean, square in zip(parameters, gradients, first, second):
                mean += (1 - _FIRST) * (gradient - mean)
                square += (1 - _SECOND) * (gradient * gradient - square)
                size = numpy.sqrt(square / (1 - _SECOND**step)) + _SMALL
                value -= self.lr * (mean / (1 - _FIRST**step)) / size
        self._layers = layers

    def predict(self, encoded_archs: Any) -> MeanVar:
        if self._layers is None:
            raise InputError("the predictor has learned nothing", "call `fit` first")
        x = (self._filled(encoded_archs) - self._x_scale[0]) / self._x_scale[1]
        outputs = _forward(self._layers, x)[-1] * self._y_scale[1] + self._y_scale[0]
        return MeanVar(outputs.mean(axis=0), outputs.var(axis=0))

    def _filled(self, encoded: Any) -> Any:
        encoded = numpy.asarray(encoded, dtype=numpy.float64)
        return numpy.where(numpy.isnan(encoded), self.replace_nan_value, encoded)

    def _fresh(self, inputs: int, outputs: int) -> _Layers:
        """Layers of all members: weights of shape (members, from, to)."""
        sizes = [inputs, *[self.width] * (self.num_layers - 1), outputs]
        layers = []
        for before, after in zip(sizes, sizes[1:]):
            bound = before**-0.5
            weight = self._rng.uniform(-bound, bound, (self.num_ensemble_members, before, after))
            layers.append((weight, self._rng.uniform(-bound, bound, (self.num_ensemble_members, 1, after))))
        return layers


def _scale(values: Any) -> Tuple[Any, Any]:
    """Mean and deviation of each column; 1 where all values are the same."""
    deviation = values.std(axis=0)
    return values.mean(axis=0), numpy.where(deviation > 0, deviation, 1.0)


def _forward(layers: _Layers, x: Any) -> List[Any]:
    """The input and the outputs of every layer, of all members."""
    values = [numpy.broadcast_to(x, (len(layers[0][0]), *x.shape))]
    for number, (weight, bias) in enumerate(layers):
        output = values[-1] @ weight + bias
        values.append(output if number == len(layers) - 1 else numpy.maximum(output, 0.0))
    return values


def _gradients(layers: _Layers, x: Any, y: Any) -> List[Any]:
    """Of the mean absolute error, for the weight and the bias of each layer."""
    values = _forward(layers, x)
    slope = numpy.sign(values[-1] - y) / y.size
    found: List[Any] = []
    for (weight, _), before in zip(reversed(layers), reversed(values[:-1])):
        found += [slope.sum(axis=1, keepdims=True), before.transpose(0, 2, 1) @ slope]
        slope = (slope @ weight.transpose(0, 2, 1)) * (before > 0)
    return found[::-1]
