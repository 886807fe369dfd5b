"""What a case of one operator is: a module or a hand-written ONNX graph, its inputs, and the reference values."""

import copy
from dataclasses import dataclass

import torch
from torch import nn

import generator

CASES = {}


@dataclass
class Input:
    shape: tuple
    kind: str = "float"  # float | int | bool
    low: float = -1.0
    high: float = 1.0
    steps: int = 0  # of a float: round to multiples of 1/steps, so that equal values occur

    def make(self, name):
        if self.kind == "int":
            return generator.integers(name, self.shape, int(self.high))
        if self.kind == "bool":
            return generator.uniform(name, self.shape) >= 0
        values = generator.uniform(name, self.shape, self.low, self.high)
        return torch.round(values * self.steps) / self.steps if self.steps else values


def f(*shape, low=-1.0, high=1.0, steps=0):
    return Input(shape, "float", low, high, steps)


def ints(*shape, n):
    return Input(shape, "int", 0, n)


def bools(*shape):
    return Input(shape, "bool")


class Net(nn.Module):
    """Runs its parts one after the other, or `function(self, *inputs)` if there is one."""

    def __init__(self, function=None, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs):
        if self.function:
            return self.function(self, *inputs)
        for part in self.children():
            inputs = (part(*inputs),)
        return inputs[0]


@dataclass
class Case:
    name: str
    make: object  # () -> Module for the reference, with parameters named as in the ONNX graph
    inputs: list
    train: bool = True
    opset: int = 17
    batch: bool = True  # the first dimension of every input is N
    torchscript: bool = True
    dynamo: bool = True
    optimize: bool = True  # by the new exporter, which then also folds a BatchNorm into the Conv before it, even in training
    group: str = ""  # the file in cases/
    text: str = ""  # a hand-written ONNX graph; then the module is only the reference

    def values(self):
        return [spec.make(f"{self.name}.input.{i}") for i, spec in enumerate(self.inputs)]

    def module(self):
        return generator.fill(self.make()).train(self.train)


def case(name, *inputs, fn=None, parts=None, **options):
    """A case that torch exports: `fn(self, *inputs)` over the modules that `parts()` gives, or just those in a row."""
    assert name not in CASES, name
    CASES[name] = Case(name, lambda: Net(fn, **(parts() if parts else {})), list(inputs), **options)


def onnx_case(name, text, *inputs, fn, params=None, **options):
    """A case torch does not export: an ONNX graph as text, `fn(self, *inputs)` in torch; `params` gives the shapes."""
    name += "_onnx"
    assert name not in CASES, name

    def make():
        net = Net(fn)
        for key, shape in (params or {}).items():
            net.register_parameter(key, nn.Parameter(torch.zeros(shape)))
        return net

    CASES[name] = Case(name, make, list(inputs), text=text, dynamo=False, **options)


def flat(outputs):
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [tensor for part in outputs for tensor in flat(part)]


def reference(case):
    """The tensors of the safetensors file, computed in f64 and rounded to f32."""
    module = case.module().double()
    inputs = case.values()
    tensors = {f"input.{i}": value for i, value in enumerate(inputs)}
    leaves = [x.double().requires_grad_() if x.is_floating_point() else x for x in inputs]
    outputs = flat(module(*leaves))
    total = torch.zeros((), dtype=torch.float64)
    for i, output in enumerate(outputs):
        tensors[f"output.{i}"] = output.detach()
        if output.requires_grad:
            dout = generator.uniform(f"{case.name}.dout.{i}", output.shape)
            tensors[f"dout.{i}"] = dout
            total = total + (output * dout.double()).sum()
    if total.requires_grad:
        total.backward()
    for i, leaf in enumerate(leaves):
        if leaf.is_floating_point():
            tensors[f"dinput.{i}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    for name, parameter in module.named_parameters():
        tensors[f"dparam.{name}"] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    for name, buffer in module.named_buffers():
        if name.split(".")[-1] in generator.STATISTICS:
            tensors[f"buffer.{name}"] = buffer
    return {name: narrow(tensor) for name, tensor in tensors.items()}


def narrow(tensor):
    tensor = tensor.detach().clone().contiguous()
    return tensor.float() if tensor.is_floating_point() else tensor


def fresh(case):
    """A module to export; exporters may change what they are given."""
    return copy.deepcopy(case.module())
