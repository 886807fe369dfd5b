"""Says how each initializer of an exported graph comes from the weights of the module, so that weights need no file.

An entry of a recipe is one of

    {"name", "shape", "parts": [{"source", "start", "end"}, ...], "transpose": [rows, columns] or null}
        The elements start..end of the flattened sources one after the other; if `transpose` is there, they are
        a matrix of that many rows and columns, which is transposed; then reshaped to `shape`.
    {"name", "shape", "fold": "weight" or "bias", "conv": "...", "norm": "...", "epsilon": e}
        A BatchNorm folded into the Conv before it, in f64, with scale = norm.weight / sqrt(norm.running_var + e):
        weight = conv.weight * scale, bias = (conv.bias or 0 - norm.running_mean) * scale + norm.bias.
        What the exporter wrote was computed in f32, so it differs in the last bits.

and `transform` names the kind for the reader: none, reshape, transpose, slice, concat, fold.
"""

import numpy as np
from onnx import TensorProto, numpy_helper

LONGEST = 64  # parts of one initializer


class Matcher:
    def __init__(self, state):
        """`state` maps the names of the state_dict to f32 arrays; of tied tensors only the first name."""
        self.state = {name: np.ascontiguousarray(value, np.float32) for name, value in state.items() if value.dtype == np.float32}
        self.names = list(self.state)
        self.starts = np.cumsum([0] + [value.size for value in self.state.values()])
        self.values = np.concatenate([value.ravel() for value in self.state.values()] + [np.zeros(0, np.float32)])
        self.order = np.argsort(self.values, kind="stable")
        self.sorted = self.values[self.order]

    def match(self, name, array):
        """An entry of the recipe, or None if this comes from nowhere."""
        if array.dtype != np.float32 or array.size == 0 or not self.names:
            return None
        base = {"name": name, "shape": list(array.shape)}
        parts = self.parts(array.ravel(), name)
        if parts:
            return {**base, "transform": self.kind(parts, array.shape), "parts": parts, "transpose": None}
        if array.ndim == 2:
            parts = self.parts(array.T.ravel(), name)
            if parts:
                return {**base, "transform": "transpose", "parts": parts, "transpose": [array.shape[1], array.shape[0]]}
        return self.folded(base, array)

    def kind(self, parts, shape):
        if len(parts) > 1:
            return "concat"
        source = self.state[parts[0]["source"]]
        if parts[0]["end"] - parts[0]["start"] < source.size:
            return "slice"
        return "none" if source.shape == tuple(shape) else "reshape"

    def parts(self, flat, hint):
        """Covers `flat` with the longest runs that occur in the sources, or gives up."""
        if hint in self.state and self.state[hint].size == flat.size and np.array_equal(self.state[hint].ravel(), flat):
            return [{"source": hint, "start": 0, "end": int(flat.size)}]
        found, at = [], 0
        while at < flat.size:
            length, source, start = self.longest(flat[at:])
            # a short run may be chance: only whole small tensors count
            if len(found) == LONGEST or length == 0 or (length < 4 and length < self.state[source].size):
                return None
            found.append({"source": source, "start": start, "end": start + length})
            at += length
        return found

    def longest(self, flat):
        low, high = np.searchsorted(self.sorted, flat[0], "left"), np.searchsorted(self.sorted, flat[0], "right")
        best = (0, None, 0)
        for position in self.order[low:high]:
            which = int(np.searchsorted(self.starts, position, "right")) - 1
            end = min(int(self.starts[which + 1]), int(position) + flat.size)
            same = self.values[position:end] == flat[: end - position]
            length = same.size if same.all() else int(np.argmin(same))
            if length > best[0]:
                best = (length, self.names[which], int(position - self.starts[which]))
        return best

    def folded(self, base, array):
        for conv, norm in self.pairs():
            weight = self.state[conv + ".weight"]
            for kind, shape in (("weight", weight.shape), ("bias", weight.shape[:1])):
                if shape == array.shape:
                    for epsilon in (1e-5, 1e-3):
                        entry = {**base, "transform": "fold", "fold": kind, "conv": conv, "norm": norm, "epsilon": epsilon}
                        if np.allclose(self.build(entry), array, rtol=1e-4, atol=1e-6):
                            return entry
        return None

    def pairs(self):
        """Each convolution with the normalisation that follows it in the state_dict."""
        owners = list(dict.fromkeys(name.rpartition(".")[0] for name in self.names))
        for conv, norm in zip(owners, owners[1:]):
            if norm + ".running_mean" in self.state and self.state[conv + ".weight"].ndim > 2:
                yield conv, norm

    def build(self, entry, values=None):
        """Makes the initializer of an entry again, or of something else (gradients) that has the names of the sources."""
        values = values or self.state
        if "fold" in entry:
            norm = {key: values[f"{entry['norm']}.{key}"].astype(np.float64) for key in ("weight", "bias", "running_mean", "running_var")}
            scale = norm["weight"] / np.sqrt(norm["running_var"] + entry["epsilon"])
            if entry["fold"] == "weight":
                weight = values[entry["conv"] + ".weight"]
                return (weight * scale.reshape(-1, *[1] * (weight.ndim - 1))).astype(np.float32)
            bias = values.get(entry["conv"] + ".bias", np.zeros(1))
            return ((bias - norm["running_mean"]) * scale + norm["bias"]).astype(np.float32)
        flat = np.concatenate([values[part["source"]].ravel()[part["start"] : part["end"]] for part in entry["parts"]])
        if entry["transpose"]:
            flat = flat.reshape(entry["transpose"]).T
        return flat.reshape(entry["shape"])


def renamed(model, matcher):
    """The entries of initializers that are not simply a weight under its own name."""
    entries = []
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.dims:
            entry = matcher.match(tensor.name, numpy_helper.to_array(tensor))
            if entry and not (entry["transform"] == "none" and entry["parts"][0]["source"] == tensor.name):
                entries.append(entry)
    return entries
