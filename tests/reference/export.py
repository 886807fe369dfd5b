"""Exports of modules to ONNX by the two exporters of PyTorch, made the same on every machine."""

import contextlib
import io
import logging
import os
import tempfile
import warnings

import onnx
import torch
from onnx import numpy_helper

import generator

NOISE = ("stack_trace", "fx_node")


@contextlib.contextmanager
def quiet():
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def to_onnx(module, inputs, exporter, opset=17, batch=True, fold=False, optimize=True):
    """`exporter` is `torchscript` or `dynamo`; the module is exported in the mode it is in."""
    names = [f"x{i}" for i in range(len(inputs))]
    training = module.training
    handle, path = tempfile.mkstemp(suffix=".onnx")
    os.close(handle)
    # The new exporter takes a batch of 1 or dimensions of equal size for constants; inputs are made to avoid that.
    with quiet():
        if exporter == "torchscript":
            mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.PRESERVE
            if fold:
                mode = torch.onnx.TrainingMode.EVAL
            axes = {name: {0: "N"} for name, x in zip(names, inputs) if x.ndim} if batch else None
            torch.onnx.export(module, tuple(inputs), path, dynamo=False, opset_version=opset, training=mode,
                              do_constant_folding=fold, input_names=names, dynamic_axes=axes)
        else:
            shapes = None
            if batch:
                n = torch.export.Dim("N")
                each = tuple({0: n} if x.ndim else None for x in inputs)
                shapes = (each,) if takes_many(module) else each
            torch.onnx.export(module, tuple(inputs), path, dynamo=True, input_names=names, dynamic_shapes=shapes,
                              external_data=False, optimize=optimize)
    model = onnx.load(path)
    os.remove(path)
    return tidy(model)


def takes_many(module):
    """Whether `forward` is written as `forward(self, *inputs)`."""
    return bool(module.forward.__func__.__code__.co_flags & 0x04)


def tidy(model):
    """Drops what names files of this machine, and puts back the running statistics that tracing has changed."""
    graphs = [model.graph, *model.functions]
    del model.metadata_props[:]
    for graph in graphs:
        for node in graph.node:
            node.doc_string = ""
            kept = [p for p in node.metadata_props if not any(word in p.key for word in NOISE)]
            del node.metadata_props[:]
            node.metadata_props.extend(kept)
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info, *model.graph.initializer]:
        value.doc_string = ""
        del value.metadata_props[:]
    for tensor in model.graph.initializer:
        if tensor.name.split(".")[-1] in generator.STATISTICS:
            value = generator.weight(tensor.name, tuple(tensor.dims)).numpy()
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    return model


def op_types(model):
    """Every operator that occurs, with its domain if it has one, also inside of subgraphs and functions."""
    found = set()

    def walk(nodes):
        for node in nodes:
            found.add(f"{node.domain}::{node.op_type}" if node.domain else node.op_type)
            for attribute in node.attribute:
                for graph in [attribute.g, *attribute.graphs]:
                    walk(graph.node)

    walk(model.graph.node)
    for function in model.functions:
        walk(function.node)
    return found
