"""Writes `models/<name>.safetensors`, and for each exporter `models/<name>.<exporter>.onnx` with its recipe."""

import fnmatch
import json
import os
import tempfile

import numpy as np
import onnx
import torch
from onnx import TensorProto, numpy_helper

import export
import generator
import store
from catalog import MODELS
from recipe import Matcher

INLINE = 64  # elements of the largest initializer that stays in the file
WHOLE = 256  # elements of the largest gradient that is stored as it is
HEAD = 16384  # elements that are kept of an output or an input gradient that is larger
STEPS = 20


def make(folder, only):
    os.makedirs(folder, exist_ok=True)
    failures = []
    for name, model in MODELS.items():
        if not only or fnmatch.fnmatch(f"models/{name}.safetensors", only):
            save_values(folder, name, model)
        for exporter in model.exports:
            if only and not fnmatch.fnmatch(f"models/{name}.{exporter}.onnx", only):
                continue
            try:
                save_export(folder, name, model, exporter)
            except Exception as error:  # one export that fails must not stop the others
                failures.append(f"{name}.{exporter}")
                print(f"FAILED models/{name}.{exporter}: {type(error).__name__}: {str(error).strip()[:600]}", flush=True)
    return failures


def stats(name, tensor):
    """The l2 norm, the sum, and the product with the uniform tensor called `probe.<name>`."""
    flat = tensor.detach().double().reshape(-1)
    probe = generator.uniform(f"probe.{name}", flat.shape).double()
    return torch.stack([flat.norm(), flat.sum(), flat @ probe])


def keep(tensors, name, tensor):
    tensors[f"{name}_stats"] = stats(name, tensor)
    if tensor.numel() <= HEAD:
        tensors[name] = tensor
    else:
        tensors[f"{name}_head"] = tensor.reshape(-1)[:HEAD]


def gradients(name, model, dtype):
    """One forward and backward pass in training mode: the module, the input, the output, the loss."""
    module = model.module().to(dtype).train()
    x, target = model.batch(name)
    leaf = x if model.tokens else x.to(dtype).requires_grad_()
    output = module(leaf)
    loss = model.loss(output, target)
    loss.backward()
    return module, leaf, output, loss


def f32_error(name, model, exact):
    """How far PyTorch itself is off in f32: output and loss absolutely, the gradients by their l2 norm."""
    module, leaf, output, loss = exact
    module32, leaf32, output32, loss32 = gradients(name, model, torch.float32)
    relative = lambda a, b: ((a.double() - b).norm() / b.norm()).item() if b.norm() > 1e-8 else 0.0  # noqa: E731
    inputs = 0.0 if model.tokens else relative(leaf32.grad, leaf.grad)
    pairs = zip(module32.parameters(), module.parameters())
    worst = max(relative(p32.grad, p.grad) for p32, p in pairs)
    return torch.tensor([(output32 - output).abs().max().item(), abs(loss32.item() - loss.item()), inputs, worst])


def save_values(folder, name, model):
    exact = gradients(name, model, torch.float64)
    module, leaf, output, loss = exact
    x, target = model.batch(name)
    tensors = {"input.0": x, "target": target, "loss": loss, "f32_error": f32_error(name, model, exact)}
    with torch.no_grad():
        keep(tensors, "eval_output", model.module().double().eval()(leaf))
    keep(tensors, "output", output)
    if not model.tokens:
        keep(tensors, "dinput.0", leaf.grad)
    for parameter, value in module.named_parameters():
        tensors[f"dparam_stats.{parameter}"] = stats(parameter, value.grad)
        if value.numel() <= WHOLE:
            tensors[f"dparam.{parameter}"] = value.grad
    for buffer, value in module.named_buffers():
        if buffer.split(".")[-1] in ("running_mean", "running_var"):
            tensors[f"buffer_stats.{buffer}"] = stats(buffer, value)
    for suffix, dtype in (("", torch.float64), ("_f32", torch.float32)):
        for optimizer in ("sgd", "adam"):
            tensors[f"losses{suffix}.{optimizer}"] = train(name, model, optimizer, dtype)
    metadata = {"model": name, "loss": model.loss.__name__, "steps": str(STEPS), "mode": "train",
                **{f"rate.{kind}": f"{rate:.6f}" for kind, rate in model.rates.items()}}
    narrow = {key: value.detach().clone().contiguous() for key, value in tensors.items()}
    narrow = {key: value.float() if value.is_floating_point() else value for key, value in narrow.items()}
    store.save(narrow, os.path.join(folder, f"{name}.safetensors"), metadata)
    drift = {o: float((narrow[f"losses.{o}"] - narrow[f"losses_f32.{o}"]).abs().max()) for o in ("sgd", "adam")}
    off = [f"{value:.1e}" for value in tensors["f32_error"].tolist()]
    print(f"models/{name}.safetensors: loss {loss.item():.4f}, f32 is off by {off}, drifts by {drift}", flush=True)


def train(name, model, kind, dtype):
    module = model.module().to(dtype).train()
    if kind == "sgd":
        optimizer = torch.optim.SGD(module.parameters(), lr=model.rates[kind], momentum=0.9)
    else:
        optimizer = torch.optim.Adam(module.parameters(), lr=model.rates[kind])
    losses = []
    for step in range(STEPS):
        x, target = model.batch(f"{name}.step.{step}")
        optimizer.zero_grad()
        loss = model.loss(module(x if model.tokens else x.to(dtype)), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def save_export(folder, name, model, exporter):
    base, _, variant = exporter.partition("-")
    module = model.module(dropout=variant == "dropout").train(variant not in ("eval", "folded"))
    x, _ = model.batch(name)
    graph = export.to_onnx(module, (x,), base, batch=variant != "fixed", fold=variant == "folded", optimize=variant != "raw")
    for node in graph.graph.node:  # of what the new exporter notes at each node only the scope could be of use
        kept = [p for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes"]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    recipe = {"model": name, "exporter": exporter, "state_dict": describe(model), "initializers": []}
    with tempfile.TemporaryDirectory() as scratch:
        stem = f"{name}.{exporter}"
        externalize(graph, model, stem, recipe, os.path.join(scratch, f"{stem}.weights"))
        path = os.path.join(scratch, f"{stem}.onnx")
        onnx.save(graph, path)
        onnx.checker.check_model(path, full_check=True)
        difference = run(path, x, os.path.join(folder, f"{name}.safetensors"))
    onnx.save(graph, os.path.join(folder, f"{stem}.onnx"))
    with open(os.path.join(folder, f"{stem}.json"), "w") as file:
        file.write(lines(recipe))
    size, types = len(graph.SerializeToString()), " ".join(sorted(export.op_types(graph)))
    inline = {t.name: list(t.dims) for t in graph.graph.initializer if np.prod(t.dims) > INLINE and not t.external_data}
    print(f"models/{stem}.onnx: {size} bytes, {difference}, large and inline: {inline}\n    {types}", flush=True)


def describe(model):
    """The names of the state_dict; what is `generated` has the values of generator.weight."""
    module = model.module()
    buffers = {name for name, _ in module.named_buffers()}
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    first, rows = {}, []
    for name, tensor in module.state_dict(keep_vars=True).items():
        row = {"name": name, "shape": list(tensor.shape), "buffer": name in buffers,
               "generated": generator.is_generated(name, parameters)}
        if id(tensor) in first:
            row["tied"] = first[id(tensor)]
        first.setdefault(id(tensor), name)
        rows.append(row)
    return rows


def externalize(graph, model, stem, recipe, path):
    """Moves the large initializers which the recipe can make again to `path`, and checks that it can."""
    tied = {row["name"] for row in recipe["state_dict"] if "tied" in row or not row["generated"]}
    state = {name: tensor.detach().numpy() for name, tensor in model.module().state_dict().items() if name not in tied}
    matcher = Matcher(state)
    offset = 0
    with open(path, "wb") as file:
        for tensor in graph.graph.initializer:
            if tensor.data_type != TensorProto.FLOAT or not tensor.dims:
                continue
            array = numpy_helper.to_array(tensor)
            entry = matcher.match(tensor.name, array)
            if entry is None:
                continue
            entry["external"] = array.size > INLINE
            recipe["initializers"].append(entry)
            if not entry["external"]:
                continue
            made = np.ascontiguousarray(matcher.build(entry), np.float32)
            assert made.shape == array.shape and np.allclose(made, array, rtol=1e-4, atol=1e-6), tensor.name
            assert entry["transform"] == "fold" or np.array_equal(made, array), tensor.name
            entry["offset"], entry["length"] = offset, made.nbytes
            file.write(made.tobytes())
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", f"{stem}.weights"), ("offset", offset), ("length", made.nbytes)):
                tensor.external_data.add(key=key, value=str(value))
            offset += made.nbytes


def lines(recipe):
    """JSON with one line for each row."""
    parts = []
    for key, value in recipe.items():
        if isinstance(value, list):
            rows = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in value)
            parts.append(f'"{key}": [\n  {rows}\n]')
        else:
            parts.append(f'"{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def run(path, x, values):
    """How far onnxruntime is from the outputs in training mode and in evaluation mode."""
    import onnxruntime
    from safetensors import safe_open

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        output = session.run(None, {"x0": x.numpy()})[0]
    except Exception as error:  # onnxruntime does not know everything
        return f"not run ({str(error).strip().splitlines()[0][:80]})"
    found = []
    with safe_open(values, "np") as file:
        for name in ("output", "eval_output"):
            key = name if name in file.keys() else f"{name}_head"
            wanted = file.get_tensor(key).ravel()
            found.append(f"{name} {np.abs(output.ravel()[:wanted.size] - wanted).max():.1e}")
    return "onnxruntime is off by " + ", ".join(found)
