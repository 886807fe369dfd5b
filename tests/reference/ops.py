"""Writes `ops/<case>.onnx` and `ops/<case>.safetensors`."""

import fnmatch
import importlib
import json
import os
import pkgutil

import numpy as np
import onnx
import torch
from onnx import numpy_helper

import cases
import export
import store
from case import CASES, fresh, reference
from recipe import Matcher, renamed


def load_cases():
    for module in pkgutil.iter_modules(cases.__path__):
        before = set(CASES)
        importlib.import_module(f"cases.{module.name}")
        for name in CASES.keys() - before:
            CASES[name].group = module.name
    return CASES


def hand_written(case):
    header = f'<ir_version: 8, opset_import: ["" : {case.opset}], producer_name: "by hand">\n'
    model = onnx.parser.parse_model(header + case.text)
    for name, tensor in case.module().state_dict().items():
        model.graph.initializer.append(numpy_helper.from_array(tensor.numpy(), name))
    return model


def make(folder, only):
    os.makedirs(folder, exist_ok=True)
    failures, used = [], {}
    for name, case in load_cases().items():
        exporters = ["hand"] if case.text else [which for which in ("torchscript", "dynamo") if getattr(case, which)]
        for exporter in exporters:
            file = name + ("_dynamo" if exporter == "dynamo" else "")
            if only and only != f"ops/{case.group}" and not fnmatch.fnmatch(f"ops/{file}", only):
                continue
            try:
                if exporter == "hand":
                    model = hand_written(case)
                else:
                    model = export.to_onnx(fresh(case), case.values(), exporter, case.opset, case.batch, optimize=case.optimize)
                onnx.checker.check_model(model, full_check=True)
                tensors = reference(case)
                difference = run(model, case, exporter, tensors)
                recipe, extra = gradients_of_initializers(model, case, tensors)
            except Exception as error:  # one case that cannot be exported must not stop the others
                failures.append((file, f"{type(error).__name__}: {str(error).strip()[:600]}"))
                continue
            onnx.save(model, os.path.join(folder, file + ".onnx"))
            metadata = {"case": file, "source": exporter, "mode": "train" if case.train else "eval"}
            if recipe:
                metadata["recipe"] = json.dumps(recipe, separators=(",", ":"))
                tensors.update(extra)
            store.save(tensors, os.path.join(folder, file + ".safetensors"), metadata)
            used.setdefault(exporter, set()).update(export.op_types(model))
            print(f"ops/{file}: {difference}", flush=True)
    for file, error in failures:
        print(f"FAILED ops/{file}: {error}")
    for exporter, types in used.items():
        print(f"{exporter}: {' '.join(sorted(types))}")
    return failures


def gradients_of_initializers(model, case, tensors):
    """The new exporter folds transposes, slices and the order of gates into initializers that it gives other names."""
    state = {name: tensor.numpy() for name, tensor in case.module().state_dict().items()}
    matcher = Matcher(state)
    gradients = {name.removeprefix("dparam."): tensor.numpy() for name, tensor in tensors.items() if name.startswith("dparam.")}
    recipe = renamed(model, matcher)
    extra = {}
    kept = {tensor.name for tensor in model.graph.initializer}
    for entry in recipe:
        # a weight that is also there as it is was used twice; what each use adds is not known
        if "parts" in entry and all(part["source"] in gradients.keys() - kept for part in entry["parts"]):
            extra[f"dinit.{entry['name']}"] = torch.from_numpy(np.ascontiguousarray(matcher.build(entry, gradients)))
    return recipe, extra


def run(model, case, exporter, tensors):
    """Runs the graph in onnxruntime, to see that the file says what the reference computed."""
    import onnxruntime

    if exporter == "dynamo" and case.train and "BatchNormalization" in export.op_types(model):
        return "not run (the new exporter forgets training_mode)"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        outputs = session.run(None, {f"x{i}": x.numpy() for i, x in enumerate(case.values())})
    except Exception as error:  # onnxruntime does not know everything
        return f"not run ({str(error).strip().splitlines()[0][:120]})"
    worst = 0.0
    for i, output in enumerate(outputs):
        wanted = tensors[f"output.{i}"].numpy() if f"output.{i}" in tensors else None
        if wanted is None:
            return f"output {i} has no reference"
        if output.shape != wanted.shape:
            raise ValueError(f"output {i} has the shape {output.shape}, not {wanted.shape}")
        if output.size:
            worst = max(worst, float(np.max(np.abs(output.astype(np.float64) - wanted.astype(np.float64)))))
    if worst > 1e-4:
        raise ValueError(f"onnxruntime differs by {worst}")
    return f"{worst:.1e}"
