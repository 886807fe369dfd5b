"""Models in a store compute what ONNX Runtime computes, alone and joined with others' requests."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import pytest
from phalanx.store import Store, serve

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(5)


def _weights(**shapes: Tuple[int, ...]) -> List[Any]:
    return [numpy_helper.from_array(RNG.normal(size=s).astype("float32") / 3, n) for n, s in shapes.items()]


def _model(nodes: List[Any], weights: List[Any], inputs: Dict[str, List[int]], output: List[Any]) -> bytes:
    value = helper.make_tensor_value_info
    given = [value(name, TensorProto.FLOAT, ["batch", *shape]) for name, shape in inputs.items()]
    graph = helper.make_graph(nodes, "m", given, [value("y", TensorProto.FLOAT, output)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def perceptron() -> bytes:
    node = helper.make_node
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
        node("Relu", ["h"], ["r"]),
        node("Gemm", ["r", "w2", "b2"], ["o"], transB=1),
        node("Softmax", ["o"], ["y"], axis=1),
    ]
    return _model(nodes, _weights(w1=(32, 12), b1=(32,), w2=(5, 32), b2=(5,)), {"x": [12]}, ["batch", 5])


def convolutions() -> bytes:
    node = helper.make_node
    weights = _weights(w1=(6, 3, 3, 3), b1=(6,), w2=(8, 6, 3, 3), scale=(8,), shift=(8,), mean=(8,), w3=(4, 8), b3=(4,))
    weights.append(numpy_helper.from_array(np.linspace(0.5, 2, 8, dtype="float32"), "variance"))
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c2", "scale", "shift", "mean", "variance"], ["n2"]),
        node("Relu", ["n2"], ["r2"]),
        node("GlobalAveragePool", ["r2"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    return _model(nodes, weights, {"x": [3, 8, 8]}, ["batch", 4])


def two_inputs() -> bytes:
    node = helper.make_node
    nodes = [
        node("MatMul", ["a", "wa"], ["ha"]),
        node("MatMul", ["b", "wb"], ["hb"]),
        node("Add", ["ha", "hb"], ["s"]),
        node("Tanh", ["s"], ["t"]),
        node("Sigmoid", ["t"], ["y"]),
    ]
    return _model(nodes, _weights(wa=(6, 7), wb=(3, 7)), {"a": [6], "b": [3]}, ["batch", 7])


@pytest.fixture(params=["process", "inside"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """A store in a process of its own, and one inside this process."""
    if request.param == "inside":
        with serve() as inside:
            yield inside.address
        return
    command = [sys.executable, "-m", "phalanx", "--output", "quiet", "store", "serve", "--bind", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


MODELS = {"perceptron": perceptron, "convolutions": convolutions, "two_inputs": two_inputs}


def _ask(store: Store, key: str, inputs: Dict[str, Any], mark: int) -> Any:
    names = [f"{name}{mark}" for name in inputs]
    for name, value in zip(names, inputs.values()):
        store.put(name, value)
    store.command("AI.MODELEXECUTE", key, "INPUTS", len(names), *names, "OUTPUTS", 1, f"y{mark}")
    return store.get(f"y{mark}")


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_onnx_runtime(name: str, address: str) -> None:
    blob = MODELS[name]()
    session = onnxruntime.InferenceSession(blob, providers=["CPUExecutionProvider"])
    shapes = {given.name: given.shape[1:] for given in session.get_inputs()}
    cases = [
        {name: RNG.normal(size=(rows, *shape)).astype("float32") for name, shape in shapes.items()}
        for rows in (1, 1, 2, 3, 1, 7, 1, 4)
    ]
    with Store(address) as store:
        store.command("AI.MODELSTORE", "alone", "ONNX", "CPU", "BLOB", blob)
        batching = ["BATCHSIZE", 16, "MINBATCHSIZE", 8, "MINBATCHTIMEOUT", 200]
        store.command("AI.MODELSTORE", "joined", "ONNX", "CPU", *batching, "BLOB", blob)
        answers: Dict[int, Any] = {}

        def joined(n: int) -> None:
            with Store(address) as other:
                answers[n] = np.array(_ask(other, "joined", cases[n], 100 + n))

        threads = [threading.Thread(target=joined, args=(n,)) for n in range(len(cases))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for n, case in enumerate(cases):
            (expected,) = session.run(None, case)
            np.testing.assert_allclose(_ask(store, "alone", case, n), expected, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(answers[n], expected, rtol=1e-5, atol=1e-5)
