"""Keras models: out as ONNX, back with their weights trained. Models of Keras 2 and 3, with channels last.

Images are (height, width, channels) in Keras and (channels, height, width) in ONNX. A value keeps the layout of the
operator that made it, and is transposed where the next one needs the other.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterator, Optional, Sequence, Tuple

import numpy as np

from ._arrays import Array, from_memory
from ._onnx import GraphWriter
from .errors import ModelError

_log = logging.getLogger("phalanx.keras")
_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)


@dataclass(frozen=True)
class Value:
    """A value of the graph: its name, its shape as Keras has it, without the batch, and its layout."""

    name: str
    shape: Tuple[int, ...]
    channels_first: bool = False


@dataclass(frozen=True)
class Weight:
    """A variable of the model, and the order in which ONNX has its axes."""

    variable: Any
    order: Optional[Tuple[int, ...]] = None

    def read(self) -> Array:
        array = np.asarray(self.variable.numpy(), dtype=np.float32)
        return array if self.order is None else array.transpose(self.order)

    def write(self, array: Array) -> None:
        self.variable.assign(array if self.order is None else array.transpose(np.argsort(self.order)))


@dataclass
class Exported:
    """A model as ONNX, with its variables by the names that they have there."""

    data: bytes
    weights: dict[str, Weight]
    constants: set[str]


def export(model: Any, example: Array, *, logits: bool = False) -> Exported:
    """The model as an ONNX model that can be trained. With ``logits`` a softmax at the end is left out."""
    if not model.built:
        model(example[:1])
    writer = _Writer(GraphWriter(model.name), logits_of=_last_layer(model) if logits else None)
    given = Value("x", tuple(example.shape[1:]))
    last = writer.last(writer.whole(model, given))
    kind = "float32" if example.dtype.kind == "f" else "int64"
    shape: list[Optional[int]] = [None]
    data = writer.graph.model(("x", kind, shape + list(given.shape)), (last.name, shape + list(last.shape)))
    return Exported(data, writer.weights, writer.constants)


def load(model: Any, state: list[Tuple[str, str, list[int], bytearray]]) -> None:
    """Puts trained weights into the model."""
    if not model.built:
        raise ModelError("the Keras model has no weights yet", "say `model.build(…)`, or call it with a sample")
    weights = dict(_all_weights(model))
    for name, dtype, shape, memory in state:
        if name not in weights:
            raise ModelError(f"the Keras model has no `{name}`", "give the model that was trained")
        array, weight = from_memory(memory, shape, dtype), weights[name]
        if array.shape != weight.read().shape:
            raise ModelError(f"`{name}` has the shape {weight.read().shape}, and was trained as {array.shape}")
        weight.write(array)


def _flat(layers: Any, path: str = "") -> Iterator[Tuple[str, Any]]:
    """All layers, also of models inside, with their paths."""
    for layer in layers:
        inner = getattr(layer, "layers", None)
        if inner is None:
            yield path + layer.name, layer
        else:
            yield from _flat(inner, f"{path}{layer.name}.")


def _last_layer(model: Any) -> str:
    layers = list(_flat(model.layers))
    return layers[-1][0] if layers else ""


def _all_weights(model: Any) -> Iterator[Tuple[str, Weight]]:
    for path, layer in _flat(model.layers):
        yield from _weights_of(path, layer).items()


_ORDERS = {
    ("Conv2D", "kernel"): (3, 2, 0, 1),
    ("DepthwiseConv2D", "depthwise_kernel"): (2, 3, 0, 1),
    ("DepthwiseConv2D", "kernel"): (2, 3, 0, 1),
}


def _weights_of(path: str, layer: Any) -> dict[str, Weight]:
    """The variables of a layer under `path.kernel` and so on."""
    found = {}
    for variable in layer.weights:
        own = variable.name.split("/")[-1].split(":")[0]
        found[f"{path}.{own}"] = Weight(variable, _ORDERS.get((type(layer).__name__, own)))
    return found


@dataclass
class _Writer:
    graph: GraphWriter
    logits_of: Optional[str] = None
    """The layer whose softmax is left out."""
    weights: dict[str, Weight] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> str:
        return self.graph.node(op, inputs, outputs, **attributes)

    def last(self, value: Value) -> Value:
        """The value with channels last."""
        if not value.channels_first:
            return value
        return replace(value, name=self.node("Transpose", [value.name], perm=_LAST), channels_first=False)

    def first(self, value: Value) -> Value:
        """An image with channels first."""
        if value.channels_first:
            return value
        return replace(value, name=self.node("Transpose", [value.name], perm=_FIRST), channels_first=True)

    def of(self, path: str, layer: Any, name: str) -> Optional[str]:
        """A variable of a layer, if it has it."""
        full = f"{path}.{name}"
        weight = _weights_of(path, layer).get(full)
        if weight is None:
            return None
        self.weights[full] = weight
        statistic = name.startswith("moving_")
        if not layer.trainable or not (statistic or bool(getattr(weight.variable, "trainable", True))):
            self.constants.add(full)
        return self.graph.weight(full, weight.read())

    def whole(self, model: Any, given: Value, path: str = "") -> Value:
        """A model, or one inside another."""
        config = model.get_config()
        if "output_layers" not in config:
            value = given
            for layer in model.layers:
                value = self.layer(path + layer.name, layer, [value])
            return value
        return self._functional(model, config, given, path)

    def _functional(self, model: Any, config: Any, given: Value, path: str) -> Value:
        inputs, outputs = list(_histories(config["input_layers"])), list(_histories(config["output_layers"]))
        if len(inputs) != 1 or len(outputs) != 1:
            raise ModelError(f"`{model.name}` has {len(inputs)} inputs and {len(outputs)} outputs, and needs one of each")
        done = {inputs[0]: given}
        waiting = [
            (entry["name"], index, list(_histories(call)))
            for entry in config["layers"]
            for index, call in enumerate(entry.get("inbound_nodes", []))
            if (entry["name"], index) != inputs[0]
        ]
        while waiting:
            ready = [call for call in waiting if all(source in done for source in call[2])]
            if not ready:
                raise ModelError(f"the layers of `{model.name}` do not depend on its input alone")
            for name, index, sources in ready:
                layer = model.get_layer(name)
                done[(name, index)] = self.layer(path + name, layer, [done[source] for source in sources])
            waiting = [call for call in waiting if call not in ready]
        return done[outputs[0]]

    def layer(self, path: str, layer: Any, given: list[Value]) -> Value:
        kind = type(layer).__name__
        if hasattr(layer, "layers"):
            return self.whole(layer, given[0], f"{path}.")
        if getattr(layer, "data_format", None) not in (None, "channels_last"):
            raise ModelError(f"layer `{path}` has its channels first", 'say `data_format="channels_last"`')
        write = _LAYERS.get(kind)
        if write is None:
            known = ", ".join(sorted(_LAYERS))
            raise ModelError(
                f"layer `{path}` of type {kind} is not supported", f"these are: {known}; or give an ONNX file"
            )
        if kind not in _MERGES and len(given) != 1:
            raise ModelError(f"layer `{path}` of type {kind} has {len(given)} inputs")
        return write(self, path, layer, given[0] if kind not in _MERGES else given)

    def activation(self, path: str, function: Any, value: Value) -> Value:
        name = function if isinstance(function, str) else getattr(function, "__name__", type(function).__name__)
        if name == "linear":
            return value
        if name == "softmax":
            if path == self.logits_of:
                _log.info("the softmax of `%s` is part of the loss: the run predicts logits", path)
                return value
            value = self.last(value)
        write = _ACTIVATIONS.get(name)
        if write is None:
            raise ModelError(f"activation `{name}` of layer `{path}` is not supported")
        return replace(value, name=write(self, value.name))


def _histories(told: Any) -> Iterator[Tuple[str, int]]:
    """Layers and their calls, wherever a configuration of Keras 2 or 3 names them."""
    if isinstance(told, dict):
        history = told.get("config", {}).get("keras_history") if told.get("class_name") == "__keras_tensor__" else None
        yield from _histories(history if history is not None else list(told.values()))
    elif isinstance(told, (list, tuple)):
        if len(told) >= 3 and isinstance(told[0], str) and isinstance(told[1], int) and isinstance(told[2], int):
            yield told[0], told[1]
        else:
            for item in told:
                yield from _histories(item)


def _gelu(writer: _Writer, x: str) -> str:
    scaled = writer.node("Div", [x, writer.graph.constant(np.float32(np.sqrt(2.0)))])
    shifted = writer.node("Add", [writer.node("Erf", [scaled]), writer.graph.constant(np.float32(1))])
    return writer.node("Mul", [writer.node("Mul", [x, shifted]), writer.graph.constant(np.float32(0.5))])


def _clip(writer: _Writer, x: str, most: float) -> str:
    low, high = writer.graph.constant(np.float32(0)), writer.graph.constant(np.float32(most))
    return writer.node("Clip", [x, low, high])


_ACTIVATIONS: dict[str, Callable[[_Writer, str], str]] = {
    "relu": lambda w, x: w.node("Relu", [x]),
    "relu6": lambda w, x: _clip(w, x, 6.0),
    "sigmoid": lambda w, x: w.node("Sigmoid", [x]),
    "tanh": lambda w, x: w.node("Tanh", [x]),
    "softmax": lambda w, x: w.node("Softmax", [x], axis=-1),
    "softplus": lambda w, x: w.node("Softplus", [x]),
    "elu": lambda w, x: w.node("Elu", [x], alpha=1.0),
    "gelu": _gelu,
    "swish": lambda w, x: w.node("Mul", [x, w.node("Sigmoid", [x])]),
    "silu": lambda w, x: w.node("Mul", [x, w.node("Sigmoid", [x])]),
}


def _biased(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    bias = writer.of(path, layer, "bias")
    added = value if bias is None else replace(value, name=writer.node("Add", [value.name, bias]))
    return writer.activation(path, layer.activation, added)


def _dense(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    value = writer.last(value)
    kernel = writer.of(path, layer, "kernel")
    product = writer.node("MatMul", [value.name, str(kernel)])
    return _biased(writer, path, layer, Value(product, (*value.shape[:-1], int(layer.units))))


def _windows(value: Value, layer: Any, size: Sequence[int], dilation: Sequence[int]) -> Tuple[list[int], list[int]]:
    """The padding of both sides, and the size of the result."""
    before, after, sizes = [], [], []
    for extent, window, stride, spread in zip(value.shape[:2], size, layer.strides, dilation):
        reach = (window - 1) * spread + 1
        if layer.padding == "same":
            steps = -(-extent // stride)
            missing = max((steps - 1) * stride + reach - extent, 0)
            # What is odd goes to the end.
            before.append(missing // 2)
            after.append(missing - missing // 2)
        else:
            steps = (extent - reach) // stride + 1
            before.append(0)
            after.append(0)
        sizes.append(steps)
    return before + after, sizes


def _convolution(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    depthwise = type(layer).__name__ == "DepthwiseConv2D"
    if depthwise and int(layer.depth_multiplier) != 1:
        raise ModelError(f"layer `{path}` has a depth multiplier, which is not supported")
    size, dilation = tuple(layer.kernel_size), tuple(layer.dilation_rate)
    pads, sizes = _windows(value, layer, size, dilation)
    names = ("depthwise_kernel", "kernel") if depthwise else ("kernel",)
    kernel = next(found for found in (writer.of(path, layer, name) for name in names) if found is not None)
    bias = writer.of(path, layer, "bias")
    channels = value.shape[2] if depthwise else int(layer.filters)
    made = writer.node(
        "Conv",
        [writer.first(value).name, kernel] + ([bias] if bias is not None else []),
        kernel_shape=size,
        strides=tuple(layer.strides),
        dilations=dilation,
        pads=pads,
        group=channels if depthwise else int(getattr(layer, "groups", 1)),
    )
    return writer.activation(path, layer.activation, Value(made, (*sizes, channels), True))


def _pooling(op: str) -> Callable[..., Value]:
    def write(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
        size = tuple(layer.pool_size)
        pads, sizes = _windows(value, layer, size, (1, 1))
        strides = tuple(layer.strides)
        made = writer.node(op, [writer.first(value).name], kernel_shape=size, strides=strides, pads=pads)
        return Value(made, (*sizes, value.shape[2]), True)

    return write


def _global(op: str) -> Callable[..., Value]:
    def write(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
        if getattr(layer, "keepdims", False):
            raise ModelError(f"layer `{path}` keeps its dimensions, which is not supported")
        axes = (2, 3) if value.channels_first else (1, 2)
        return Value(writer.node(op, [value.name], axes=axes, keepdims=0), value.shape[-1:])

    return write


def _flatten(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    value = writer.last(value)
    return Value(writer.node("Flatten", [value.name], axis=1), (int(np.prod(value.shape)),))


def _reshape(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    value = writer.last(value)
    shape = np.zeros(value.shape, np.bool_).reshape(tuple(layer.target_shape)).shape
    target = writer.graph.constant(np.array([0, *shape], np.int64))
    return Value(writer.node("Reshape", [value.name, target]), shape)


def _dropout(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    ratio = writer.graph.constant(np.float32(layer.rate))
    return replace(value, name=writer.node("Dropout", [value.name, ratio, writer.graph.constant(np.bool_(True))]))


def _batch_norm(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    axis = layer.axis[0] if isinstance(layer.axis, (list, tuple)) else layer.axis
    if axis not in (-1, len(value.shape)) or len(value.shape) not in (1, 3):
        raise ModelError(f"layer `{path}` normalizes another axis than the channels of an image or vector")
    value = writer.first(value) if len(value.shape) == 3 else value
    channels = value.shape[-1]
    plain = {"gamma": np.ones(channels, np.float32), "beta": np.zeros(channels, np.float32)}
    names = []
    for own in ("gamma", "beta", "moving_mean", "moving_variance"):
        found = writer.of(path, layer, own)
        names.append(writer.graph.constant(plain[own]) if found is None else found)
    settings = {"epsilon": float(layer.epsilon), "momentum": float(layer.momentum), "training_mode": 1}
    return replace(value, name=writer.node("BatchNormalization", [value.name, *names], 3, **settings))


def _layer_norm(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    value = writer.last(value)
    axis = layer.axis[0] if isinstance(layer.axis, (list, tuple)) else layer.axis
    gamma, beta = writer.of(path, layer, "gamma"), writer.of(path, layer, "beta")
    if axis not in (-1, len(value.shape)) or gamma is None:
        raise ModelError(f"layer `{path}` normalizes another axis than the last, or does not scale")
    inputs = [value.name, gamma] + ([beta] if beta is not None else [])
    return replace(value, name=writer.node("LayerNormalization", inputs, axis=-1, epsilon=float(layer.epsilon)))


def _embedding(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    table = writer.of(path, layer, "embeddings")
    return Value(writer.node("Gather", [str(table), value.name], axis=0), (*value.shape, int(layer.output_dim)))


def _leaky(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    slope = float(np.asarray(getattr(layer, "negative_slope", getattr(layer, "alpha", 0.3))))
    return replace(value, name=writer.node("LeakyRelu", [value.name], alpha=slope))


def _relu(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    if float(np.asarray(layer.negative_slope)) != 0 or float(np.asarray(layer.threshold)) != 0:
        raise ModelError(f"layer `{path}` has a slope or a threshold, which is not supported")
    if layer.max_value is None:
        return replace(value, name=writer.node("Relu", [value.name]))
    return replace(value, name=_clip(writer, value.name, float(np.asarray(layer.max_value))))


def _softmax(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    if layer.axis not in (-1, len(value.shape)):
        raise ModelError(f"layer `{path}` has its softmax over another axis than the last")
    return writer.activation(path, "softmax", value)


def _rescaling(writer: _Writer, path: str, layer: Any, value: Value) -> Value:
    scaled = writer.node("Mul", [value.name, writer.graph.constant(np.float32(layer.scale))])
    return replace(value, name=writer.node("Add", [scaled, writer.graph.constant(np.float32(layer.offset))]))


def _merge(op: str) -> Callable[..., Value]:
    def write(writer: _Writer, path: str, layer: Any, given: list[Value]) -> Value:
        if len({value.shape for value in given}) != 1:
            raise ModelError(f"the inputs of layer `{path}` have different shapes, which is not supported")
        if not all(value.channels_first for value in given):
            given = [writer.last(value) for value in given]
        made = given[0]
        for value in given[1:]:
            made = replace(made, name=writer.node(op, [made.name, value.name]))
        return made

    return write


def _concatenate(writer: _Writer, path: str, layer: Any, given: list[Value]) -> Value:
    rank = len(given[0].shape)
    if layer.axis not in (-1, rank):
        raise ModelError(f"layer `{path}` joins another axis than the last, which is not supported")
    first = all(value.channels_first for value in given)
    values = given if first else [writer.last(value) for value in given]
    made = writer.node("Concat", [value.name for value in values], axis=1 if first else rank)
    return Value(made, (*given[0].shape[:-1], sum(value.shape[-1] for value in given)), first)


_MERGES = ("Add", "Multiply", "Concatenate")
_LAYERS: dict[str, Callable[..., Value]] = {
    "InputLayer": lambda writer, path, layer, value: value,
    "Activation": lambda writer, path, layer, value: writer.activation(path, layer.activation, value),
    "Add": _merge("Add"),
    "AveragePooling2D": _pooling("AveragePool"),
    "BatchNormalization": _batch_norm,
    "Concatenate": _concatenate,
    "Conv2D": _convolution,
    "Dense": _dense,
    "DepthwiseConv2D": _convolution,
    "Dropout": _dropout,
    "Embedding": _embedding,
    "Flatten": _flatten,
    "GlobalAveragePooling2D": _global("ReduceMean"),
    "GlobalMaxPooling2D": _global("ReduceMax"),
    "LayerNormalization": _layer_norm,
    "LeakyReLU": _leaky,
    "MaxPooling2D": _pooling("MaxPool"),
    "Multiply": _merge("Mul"),
    "ReLU": _relu,
    "Rescaling": _rescaling,
    "Reshape": _reshape,
    "Softmax": _softmax,
}
