"""Gemm, MatMul and everything that works element by element."""

import torch
import torch.nn.functional as F
from torch import nn

from case import bools, case, f, ints, onnx_case

# Gemm, in all its forms
for name, a, b, c, attributes in (
    ("plain", (3, 4), (4, 5), (5,), ""),
    ("trans_b", (3, 4), (5, 4), (5,), "transB=1"),
    ("trans_a", (4, 3), (4, 5), (3, 1), "transA=1"),
    ("trans_both", (4, 3), (5, 4), (3, 5), "transA=1, transB=1"),
    ("alpha_beta", (3, 4), (4, 5), (1, 5), "alpha=0.5, beta=-2.0"),
    ("alpha_trans_b", (3, 4), (5, 4), (), "alpha=1.5, beta=0.25, transB=1"),
    ("no_c", (3, 4), (4, 5), None, "alpha=2.0"),
):
    def gemm(self, x, attributes=attributes):
        values = dict(part.split("=") for part in attributes.replace(" ", "").split(",") if part)
        left = x.T if "transA" in values else x
        right = self.w.T if "transB" in values else self.w
        y = float(values.get("alpha", 1)) * (left @ right)
        return y + float(values.get("beta", 1)) * self.bias if hasattr(self, "bias") else y

    onnx_case(f"gemm_{name}", f"""g (float[{a[0]},{a[1]}] x0) => (float[3,5] y0) {{
            y0 = Gemm <{attributes}> (x0, w{", bias" if c is not None else ""}) }}""".replace(" <>", ""),
        f(*a), params={"w": b, **({"bias": c} if c is not None else {})}, fn=gemm)

case("linear", f(3, 7), parts=lambda: {"fc": nn.Linear(7, 5)})
case("linear_nobias", f(3, 7), parts=lambda: {"fc": nn.Linear(7, 5, bias=False)})
case("linear_3d", f(3, 4, 7), parts=lambda: {"fc": nn.Linear(7, 5)})
case("linear_3d_nobias", f(3, 4, 7), parts=lambda: {"fc": nn.Linear(7, 5, bias=False)})
case("linear_4d", f(3, 2, 4, 7), parts=lambda: {"fc": nn.Linear(7, 5)})
case("linear_twice", f(3, 6), fn=lambda self, x: self.fc(torch.tanh(self.fc(x))), parts=lambda: {"fc": nn.Linear(6, 6)})
case("linear_wide", f(9, 65), parts=lambda: {"fc": nn.Linear(65, 67)})
case("bilinear_by_hand", f(3, 4), f(3, 5), fn=lambda self, a, b: self.left(a) * self.right(b),
    parts=lambda: {"left": nn.Linear(4, 6), "right": nn.Linear(5, 6)})

for name, a, b in (
    ("2d", (3, 4), (4, 5)), ("batched", (2, 3, 4), (2, 4, 5)), ("broadcast_right", (2, 3, 4), (4, 5)),
    ("broadcast_left", (3, 4), (2, 4, 5)), ("broadcast_both", (2, 1, 3, 4), (3, 4, 5)), ("4d", (2, 3, 4, 5), (2, 3, 5, 6)),
    ("ones", (3, 1, 4, 5), (1, 2, 5, 6)),
    ("vector_right", (3, 4), (4,)), ("vector_left", (4,), (4, 5)), ("vector_both", (6,), (6,)),
    ("batched_vector", (2, 3, 4), (4,)), ("vector_batched", (4,), (2, 4, 5)),
):
    case(f"matmul_{name}", f(*a), f(*b), batch=False, fn=lambda self, x, y: torch.matmul(x, y))
case("matmul_transposed", f(2, 3, 5), f(2, 4, 5), fn=lambda self, x, y: x @ y.transpose(-1, -2))
case("matmul_self", f(2, 3, 5), fn=lambda self, x: x @ x.transpose(1, 2))
case("bmm", f(2, 3, 4), f(2, 4, 5), fn=lambda self, x, y: torch.bmm(x, y))
case("addmm", f(3, 5), f(3, 4), f(4, 5), batch=False, fn=lambda self, c, x, y: torch.addmm(c, x, y, beta=0.5, alpha=2.0))
case("baddbmm", f(2, 3, 5), f(2, 3, 4), f(2, 4, 5), fn=lambda self, c, x, y: torch.baddbmm(c, x, y, beta=0.5, alpha=2.0))

BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow,
    "min": torch.minimum, "max": torch.maximum,
}
BROADCASTS = {
    "same": ((3, 4, 5), (3, 4, 5)), "row": ((3, 4), (4,)), "row_left": ((4,), (3, 4)), "column": ((3, 4), (3, 1)),
    "scalar": ((3, 4), ()), "nc11": ((2, 3, 4, 5), (2, 3, 1, 1)), "c11": ((2, 3, 4, 5), (3, 1, 1)),
    "both": ((3, 1, 5), (1, 4, 1)), "both_ranks": ((2, 1, 4), (3, 1)),
}
for op, function in BINARY.items():
    for kind, (a, b) in BROADCASTS.items():
        left = f(*a, low=0.5, high=2.0) if op == "pow" else f(*a)
        right = f(*b, low=0.5, high=2.0) if op == "div" else f(*b, low=-2.0, high=2.0) if op == "pow" else f(*b)
        # the new exporter says the same of each of these; two kinds of each are enough
        case(f"{op}_{kind}", left, right, batch=False, dynamo=kind in ("nc11", "both"), fn=lambda self, x, y, g=function: g(x, y))
case("min_ties", f(4, 6, steps=2), f(4, 6, steps=2), fn=lambda self, x, y: torch.minimum(x, y))
case("max_ties", f(4, 6, steps=2), f(4, 6, steps=2), fn=lambda self, x, y: torch.maximum(x, y))
onnx_case("min_three", "g (float[3,4] x0, float[4] x1, float[3,1] x2) => (float[3,4] y0) { y0 = Min (x0, x1, x2) }",
    f(3, 4), f(4), f(3, 1), fn=lambda self, x, y, z: torch.minimum(torch.minimum(x, y), z))
onnx_case("max_one", "g (float[3,4] x0) => (float[3,4] y0) { y0 = Max (x0) }", f(3, 4), fn=lambda self, x: x * 1)
onnx_case("sum_three", "g (float[3,4] x0, float[4] x1, float[3,1] x2) => (float[3,4] y0) { y0 = Sum (x0, x1, x2) }",
    f(3, 4), f(4), f(3, 1), fn=lambda self, x, y, z: x + y + z)
onnx_case("mean_three", "g (float[3,4] x0, float[4] x1, float[3,1] x2) => (float[3,4] y0) { y0 = Mean (x0, x1, x2) }",
    f(3, 4), f(4), f(3, 1), fn=lambda self, x, y, z: (x + y + z) / 3)
case("add_constants", f(3, 4), fn=lambda self, x: (x + 2) * 3 - 0.5)
case("sub_from_constant", f(3, 4), fn=lambda self, x: 1 - x)
case("div_constant", f(3, 4), fn=lambda self, x: x / 8)
case("div_of_constant", f(3, 4, low=0.5, high=2), fn=lambda self, x: 1 / x)
case("add_alpha", f(3, 4), f(3, 4), fn=lambda self, x, y: torch.add(x, y, alpha=0.3))
case("add_itself", f(3, 4), fn=lambda self, x: x + x * x)
case("mul_parameter", f(3, 4), fn=lambda self, x: x * self.gain + self.bias,
    parts=lambda: {"gain": nn.Parameter(torch.zeros(4)), "bias": nn.Parameter(torch.zeros(4))})
for power in (2, 3, 0.5, -1):
    word = str(power).replace(".", "_").replace("-", "minus_")
    case(f"pow_{word}", f(3, 4, low=0.2, high=2) if power in (0.5, -1) else f(3, 4), fn=lambda self, x, p=power: x**p)
case("pow_of_constant", f(3, 4), fn=lambda self, x: 2.0**x)

UNARY = {
    "neg": torch.neg, "exp": torch.exp, "abs": torch.abs, "erf": torch.erf, "relu": torch.relu, "sigmoid": torch.sigmoid,
    "tanh": torch.tanh, "sin": torch.sin, "cos": torch.cos, "square": torch.square, "sign": torch.sign, "floor": torch.floor,
    "clip": lambda x: x.clamp(-0.5, 0.7), "clip_low": lambda x: x.clamp(min=-0.2), "clip_high": lambda x: x.clamp(max=0.2),
    "relu6": lambda x: F.relu6(6 * x), "leaky_relu": F.leaky_relu, "leaky_relu_slope": lambda x: F.leaky_relu(x, 0.2),
    "elu": F.elu, "elu_alpha": lambda x: F.elu(x, 0.7), "selu": F.selu, "celu": lambda x: F.celu(x, 0.7),
    "hard_sigmoid": F.hardsigmoid, "hard_swish": F.hardswish, "hard_tanh": F.hardtanh, "silu": F.silu, "mish": F.mish,
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "softplus": F.softplus,
    "gelu_by_erf": lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5)),
    "gelu_by_tanh": lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "silu_by_hand": lambda x: x * torch.sigmoid(x), "log_sigmoid": F.logsigmoid, "softsign": F.softsign,
}
for op, function in UNARY.items():
    wide = op.startswith(("hard", "gelu", "mish", "silu", "soft", "tanh", "sigmoid", "elu", "selu", "celu", "exp", "erf"))
    scale = 4.0 if wide else 2.0
    case(op, f(3, 14, low=-scale, high=scale), fn=lambda self, x, g=function: g(x))
for op, function in {"sqrt": torch.sqrt, "log": torch.log, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "log1p": torch.log1p}.items():
    case(op, f(3, 7, low=0.1, high=3), fn=lambda self, x, g=function: g(x))
# At the corners the gradient is a matter of convention; these say what torch does.
for op in ("relu", "abs", "clip", "leaky_relu", "hard_swish", "hard_sigmoid", "relu6"):
    case(f"{op}_ties", f(4, 12, low=-4, high=4, steps=1 if op.startswith("hard") else 2), dynamo=False,
        fn=lambda self, x, g=UNARY[op]: g(x))
case("softplus_beta", f(3, 7, low=-20, high=20), fn=lambda self, x: F.softplus(x, beta=2, threshold=10))
case("prelu", f(2, 3, 4, 5), parts=lambda: {"act": nn.PReLU(3)})
case("prelu_one", f(2, 5), parts=lambda: {"act": nn.PReLU()})
case("glu", f(2, 6), fn=lambda self, x: F.glu(x, dim=-1))

for op, attributes, function in (
    ("LeakyRelu", "", lambda x: F.leaky_relu(x, 0.01)),
    ("Elu", "alpha=0.4", lambda x: F.elu(x, 0.4)),
    ("HardSigmoid", "", lambda x: (0.2 * x + 0.5).clamp(0, 1)),
    ("HardSigmoid", "alpha=0.3, beta=0.4", lambda x: (0.3 * x + 0.4).clamp(0, 1)),
    ("HardSwish", "", F.hardswish), ("Softplus", "", F.softplus), ("Softsign", "", F.softsign), ("Selu", "", F.selu),
    ("ThresholdedRelu", "alpha=0.5", lambda x: F.threshold(x, 0.5, 0.0)), ("Identity", "", lambda x: x * 1),
):
    name = op.lower() + ("_" + attributes.split("=")[0] if attributes else "")
    onnx_case(name, f"g (float[N,9] x0) => (float[N,9] y0) {{ y0 = {op} {'<' + attributes + '>' if attributes else ''} (x0) }}",
        f(3, 9, low=-4, high=4), fn=lambda self, x, g=function: g(x))
for approximate in ("none", "tanh"):
    onnx_case(f"gelu_{approximate}", f'g (float[N,9] x0) => (float[N,9] y0) {{ y0 = Gelu <approximate="{approximate}"> (x0) }}',
        f(3, 9, low=-4, high=4), opset=20, fn=lambda self, x, a=approximate: F.gelu(x, approximate=a))
onnx_case("mish", "g (float[N,9] x0) => (float[N,9] y0) { y0 = Mish (x0) }", f(3, 9, low=-4, high=4), opset=18, fn=lambda self, x: F.mish(x))
onnx_case("clip_opset6", "g (float[N,9] x0) => (float[N,9] y0) { y0 = Clip <min=-0.5, max=0.25> (x0) }",
    f(3, 9), opset=10, fn=lambda self, x: x.clamp(-0.5, 0.25))
onnx_case("clip_no_low", """g (float[N,9] x0) => (float[N,9] y0) {
        high = Constant <value = float {0.25}> ()
        y0 = Clip (x0, , high) }""", f(3, 9), fn=lambda self, x: x.clamp(max=0.25))

case("where", bools(3, 4), f(3, 4), f(3, 4), fn=lambda self, c, x, y: torch.where(c, x, y))
case("where_broadcast", bools(3, 1), f(3, 4), f(3, 4), fn=lambda self, c, x, y: torch.where(c, x, y))
case("where_compare", f(3, 4), f(3, 4), fn=lambda self, x, y: torch.where(x > y, x * 2, y * y))
case("where_scalar", f(3, 4), fn=lambda self, x: torch.where(x > 0, x, torch.zeros_like(x)))
case("where_logic", f(3, 4), fn=lambda self, x: torch.where((x > -0.5) & (x <= 0.5) | (x > 0.9), x, 3.0))
case("masked_fill", bools(3, 4), f(3, 4), fn=lambda self, c, x: x.masked_fill(c, -2.0))
case("compare_to_float", f(3, 4), f(3, 4), fn=lambda self, x, y: (x > y).float() * x)
case("cast_to_float", ints(3, 4, n=9), f(3, 4), fn=lambda self, i, x: i.to(x.dtype) * x)
case("cast_to_int", f(3, 4, low=0, high=9), fn=lambda self, x: (x.to(torch.int64), x * 2))
case("identity", f(3, 4), fn=lambda self, x: self.id(x) * 1, parts=lambda: {"id": nn.Identity()})
case("two_outputs", f(3, 4), fn=lambda self, x: (self.a(x), torch.tanh(x)), parts=lambda: {"a": nn.Linear(4, 2)})
case("used_thrice", f(3, 4), fn=lambda self, x: (lambda h: h * h + h)(self.a(x)), parts=lambda: {"a": nn.Linear(4, 4)})
