"""Small models and data that every test can use."""

from __future__ import annotations

import pathlib
from typing import Any, Tuple

import numpy as np
import pytest


def make_model(inputs: int = 4, outputs: int = 3, seed: int = 0) -> Any:
    """A linear model, as a protobuf message."""
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(seed)
    weight = numpy_helper.from_array(rng.normal(size=(outputs, inputs)).astype("float32") / 2, "fc.weight")
    bias = numpy_helper.from_array(np.zeros(outputs, "float32"), "fc.bias")
    node = helper.make_node("Gemm", ["x", "fc.weight", "fc.bias"], ["y"], transB=1)
    graph = helper.make_graph(
        [node],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", outputs])],
        [weight, bias],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def proto() -> Any:
    return make_model()


@pytest.fixture
def model_file(tmp_path: pathlib.Path, proto: Any) -> pathlib.Path:
    path = tmp_path / "linear.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def data() -> Tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 4)).astype("float32")
    return x, np.argmax(x[:, :3], axis=1)
