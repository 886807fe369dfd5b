"""Checks that PyTorch and ONNX Runtime see in a trained model what Phalanx saw.

    phalanx export RUN --safetensors model.safetensors --onnx model.onnx
    phalanx predict RUN digits.npz --x x_test -o predictions.safetensors
    python tests/roundtrip/check.py model.safetensors model.onnx predictions.safetensors digits.npz \\
        --x x_test --y y_test --arch digits-cnn

The samples, in a .npz or .safetensors file, must be what the model takes: nothing is scaled or cut here.
Prints one JSON object; ends with a message and a status other than 0 if anything differs. The versions it is known to
work with are in requirements.txt.
"""

import argparse
import json
import os
import sys

import numpy as np
import onnx
import onnxruntime
import torch
from safetensors import numpy as arrays
from safetensors.torch import load_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import zoo  # noqa: E402

TOLERANCE = 1e-5
# outputs that hardly depend on the samples would be the same whatever an engine computes
LEAST_SPREAD = 100 * TOLERANCE


def fail(message):
    sys.exit(f"roundtrip: {message}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", metavar="MODEL.safetensors")
    parser.add_argument("graph", metavar="MODEL.onnx")
    parser.add_argument("predictions", metavar="PREDICTIONS.safetensors")
    parser.add_argument("samples", metavar="SAMPLES")
    parser.add_argument("--x", default="x", help="the array of samples")
    parser.add_argument("--y", default="y", help="the array of labels")
    parser.add_argument("--arch", required=True, choices=sorted(zoo.ZOO))
    parser.add_argument("--classes", type=int, help="of mobilenet-v2 and resnet-18, if not 1000")
    return parser.parse_args()


def array(path, name):
    tensors = np.load(path) if path.endswith(".npz") else arrays.load_file(path)
    if name not in tensors:
        fail(f"{path} lacks {name}")
    return tensors[name]


def by_torch(options, x):
    make = zoo.ZOO[options.arch][0]
    module = make(num_classes=options.classes) if options.classes else make()
    try:
        module.load_state_dict(load_file(options.weights), strict=True)
    except RuntimeError as error:
        fail(f"PyTorch cannot load {options.weights}: {error}")
    with torch.no_grad():
        return module.eval()(torch.from_numpy(x)).numpy()


def by_onnxruntime(options, x):
    try:
        onnx.checker.check_model(options.graph, full_check=True)
    except Exception as error:
        fail(f"{options.graph} is not valid ONNX: {error}")
    session = onnxruntime.InferenceSession(options.graph, providers=["CPUExecutionProvider"])
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1:
        fail(f"{options.graph} has {len(inputs)} inputs and {len(outputs)} outputs, not one of each")
    return session.run(None, {inputs[0].name: x})[0]


def difference(who, found, wanted):
    if found.shape != wanted.shape:
        fail(f"{who} gives the shape {found.shape}, Phalanx {wanted.shape}")
    if not np.isfinite(found).all():
        fail(f"{who} gives numbers that are not finite")
    return float(np.abs(found - wanted).max())


def accuracy(outputs, labels):
    return float((outputs.argmax(-1) == labels).mean())


def main():
    options = arguments()
    torch.manual_seed(0)
    x, labels = array(options.samples, options.x), array(options.samples, options.y)
    y = array(options.predictions, "outputs")
    outputs = {"torch": by_torch(options, x), "ort": by_onnxruntime(options, x)}
    result = {f"{who}_max_diff": difference(who, output, y) for who, output in outputs.items()}
    result |= {f"{who}_acc": accuracy(output, labels) for who, output in [*outputs.items(), ("phalanx", y)]}
    result["spread"] = float((y - y.mean(axis=0)).std())
    print(json.dumps(result))
    if not result["spread"] >= LEAST_SPREAD:
        fail(f"the outputs hardly depend on the samples: they spread by {result['spread']:.3e}")
    for who in outputs:
        if result[f"{who}_max_diff"] > TOLERANCE:
            fail(f"{who} differs from Phalanx by {result[f'{who}_max_diff']:.3e}, more than {TOLERANCE}")
        # a label may turn where two classes are as likely as each other, so one sample may differ
        if abs(result[f"{who}_acc"] - result["phalanx_acc"]) > 1.5 / labels.size:
            fail(f"{who} is right in {result[f'{who}_acc']:.4f} of all cases, Phalanx in {result['phalanx_acc']:.4f}")


if __name__ == "__main__":
    main()
