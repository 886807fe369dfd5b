"""Softmax, pooling, normalisation, dropout, reductions."""

import torch
import torch.nn.functional as F
from torch import nn

from case import case, f, onnx_case

for name, shape, axis in (("last", (3, 7), -1), ("channels", (2, 3, 4, 5), 1), ("first", (3, 7), 0), ("rows", (2, 3, 4, 5), 2)):
    case(f"softmax_{name}", f(*shape, low=-3, high=3), fn=lambda self, x, a=axis: F.softmax(x, dim=a))
    case(f"log_softmax_{name}", f(*shape, low=-3, high=3), fn=lambda self, x, a=axis: F.log_softmax(x, dim=a))
case("softmax_large", f(3, 7, low=-200, high=200), fn=lambda self, x: F.softmax(x, dim=-1))
for op, function in (("Softmax", F.softmax), ("LogSoftmax", F.log_softmax)):
    onnx_case(f"{op.lower()}_opset11", f"g (float[N,3,4] x0) => (float[N,3,4] y0) {{ y0 = {op} (x0) }}", f(2, 3, 4), opset=11,
        fn=lambda self, x, g=function: g(x.flatten(1), dim=-1).reshape(x.shape))
    onnx_case(f"{op.lower()}_default_axis", f"g (float[N,3,4] x0) => (float[N,3,4] y0) {{ y0 = {op} (x0) }}", f(2, 3, 4), opset=13,
        fn=lambda self, x, g=function: g(x, dim=-1))


def pool(name, make, shape=(2, 3, 9, 8), steps=0, **options):
    case(name, f(*shape, steps=steps), parts=lambda: {"pool": make()}, **options)


pool("maxpool_2x2", lambda: nn.MaxPool2d(2))
pool("maxpool_3x3_s2_p1", lambda: nn.MaxPool2d(3, 2, 1))
pool("maxpool_ceil", lambda: nn.MaxPool2d(2, ceil_mode=True))
pool("maxpool_ceil_pad", lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True))
pool("maxpool_dilation", lambda: nn.MaxPool2d(3, 1, dilation=2))
pool("maxpool_overlap", lambda: nn.MaxPool2d(3, 1, 1))
pool("maxpool_oblong", lambda: nn.MaxPool2d((2, 3), (1, 2), (1, 0)))
pool("maxpool_ties", lambda: nn.MaxPool2d(3, 2, 1), steps=1)
pool("maxpool1d", lambda: nn.MaxPool1d(3, 2, 1), shape=(2, 3, 11))
pool("maxpool1d_ceil", lambda: nn.MaxPool1d(2, ceil_mode=True), shape=(2, 3, 11))
case("maxpool_after_relu", f(2, 3, 8, 8), fn=lambda self, x: F.max_pool2d(F.relu(x), 2))
pool("avgpool_2x2", lambda: nn.AvgPool2d(2))
pool("avgpool_pad_included", lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=True))
pool("avgpool_pad_excluded", lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False))
pool("avgpool_ceil", lambda: nn.AvgPool2d(2, ceil_mode=True))
pool("avgpool_ceil_pad_excluded", lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False))
pool("avgpool_oblong", lambda: nn.AvgPool2d((2, 3), (1, 2), (1, 0)))
pool("avgpool1d", lambda: nn.AvgPool1d(3, 2, 1), shape=(2, 3, 11))
pool("adaptive_avgpool_1x1", lambda: nn.AdaptiveAvgPool2d(1))
pool("adaptive_avgpool_2x4", lambda: nn.AdaptiveAvgPool2d((2, 4)), shape=(2, 3, 6, 8))
pool("adaptive_avgpool1d", lambda: nn.AdaptiveAvgPool1d(1), shape=(2, 3, 11))
pool("adaptive_maxpool_1x1", lambda: nn.AdaptiveMaxPool2d(1))
case("global_average_by_mean", f(2, 3, 4, 5), fn=lambda self, x: x.mean((2, 3)))
case("global_average_by_mean_kept", f(2, 3, 4, 5), fn=lambda self, x: x.mean([2, 3], keepdim=True))
onnx_case("global_average_pool", "g (float[N,3,4,5] x0) => (float[N,3,1,1] y0) { y0 = GlobalAveragePool (x0) }",
    f(2, 3, 4, 5), fn=lambda self, x: x.mean((2, 3), keepdim=True))
onnx_case("global_max_pool", "g (float[N,3,4,5] x0) => (float[N,3,1,1] y0) { y0 = GlobalMaxPool (x0) }",
    f(2, 3, 4, 5), fn=lambda self, x: x.amax((2, 3), keepdim=True))
for op, upper in (("upper", True), ("lower", False)):
    onnx_case(f"maxpool_same_{op}", f"""g (float[N,3,7,6] x0) => (float[N,3,4,3] y0) {{
            y0 = MaxPool <auto_pad="SAME_{op.upper()}", kernel_shape=[2,2], strides=[2,2]> (x0) }}""", f(2, 3, 7, 6),
        fn=lambda self, x, u=upper: F.max_pool2d(F.pad(x, (0, 0, 0, 1) if u else (0, 0, 1, 0), value=float("-inf")), 2))
    onnx_case(f"avgpool_same_{op}", f"""g (float[N,3,7,6] x0) => (float[N,3,4,3] y0) {{
            y0 = AveragePool <auto_pad="SAME_{op.upper()}", kernel_shape=[3,3], strides=[2,2]> (x0) }}""", f(2, 3, 7, 6),
        fn=lambda self, x, u=upper: average_without_padding(x, (0, 1, 1, 1) if u else (1, 0, 1, 1)))


def average_without_padding(x, pads):
    total, count = (F.avg_pool2d(F.pad(y, pads), 3, 2) for y in (x, torch.ones_like(x)))
    return total / count


def norm(name, make, shape=(4, 3, 5, 6), **options):
    # not around zero, so that means and variances matter
    case(name, f(*shape, low=-1, high=2.5), parts=lambda: {"norm": make()}, **options)


for mode, train in (("train", True), ("eval", False)):
    norm(f"batchnorm2d_{mode}", lambda: nn.BatchNorm2d(3), train=train)
    norm(f"batchnorm1d_{mode}", lambda: nn.BatchNorm1d(6), shape=(5, 6), train=train)
    norm(f"batchnorm1d_length_{mode}", lambda: nn.BatchNorm1d(3), shape=(4, 3, 5), train=train)
    norm(f"batchnorm2d_not_affine_{mode}", lambda: nn.BatchNorm2d(3, affine=False), train=train)
    norm(f"batchnorm2d_momentum_{mode}", lambda: nn.BatchNorm2d(3, eps=1e-3, momentum=0.01), train=train)
    case(f"conv_bn_relu_{mode}", f(2, 3, 6, 5), train=train, optimize=False,
        parts=lambda: {"conv": nn.Conv2d(3, 4, 3, padding=1, bias=False), "bn": nn.BatchNorm2d(4), "act": nn.ReLU()})
    norm(f"instancenorm_affine_{mode}", lambda: nn.InstanceNorm2d(3, affine=True), train=train)
norm("instancenorm_plain", lambda: nn.InstanceNorm2d(3))
norm("instancenorm1d_affine", lambda: nn.InstanceNorm1d(3, affine=True), shape=(2, 3, 7))
norm("layernorm", lambda: nn.LayerNorm(7), shape=(3, 4, 7))
norm("layernorm_2d_input", lambda: nn.LayerNorm(7), shape=(3, 7))
norm("layernorm_two_dims", lambda: nn.LayerNorm((4, 7)), shape=(3, 4, 7))
norm("layernorm_not_affine", lambda: nn.LayerNorm(7, elementwise_affine=False), shape=(3, 4, 7))
norm("layernorm_nobias_eps", lambda: nn.LayerNorm(7, eps=1e-3, bias=False), shape=(3, 4, 7))
norm("layernorm_opset11", lambda: nn.LayerNorm(7), shape=(3, 4, 7), opset=11, dynamo=False)
norm("groupnorm", lambda: nn.GroupNorm(2, 6), shape=(3, 6, 4, 5))
norm("groupnorm_one_group", lambda: nn.GroupNorm(1, 6), shape=(3, 6, 4))
norm("groupnorm_not_affine", lambda: nn.GroupNorm(3, 6, affine=False), shape=(2, 6, 4, 5))
norm("rmsnorm", lambda: nn.RMSNorm(7), shape=(3, 4, 7), torchscript=False)
case("rmsnorm_by_hand", f(3, 4, 7), parts=lambda: {"scale": nn.Parameter(torch.zeros(7))},
    fn=lambda self, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale)
case("layernorm_by_hand", f(3, 4, 7), parts=lambda: {"scale": nn.Parameter(torch.zeros(7)), "bias": nn.Parameter(torch.zeros(7))},
    fn=lambda self, x: (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5) * self.scale + self.bias)
case("normalize", f(3, 7), fn=lambda self, x: F.normalize(x, dim=-1))
onnx_case("layernorm_axis", """g (float[N,4,5,6] x0) => (float[N,4,5,6] y0) { y0 = LayerNormalization <axis=2, epsilon=0.01> (x0, w, bias) }""",
    f(2, 4, 5, 6), params={"w": (5, 6), "bias": (5, 6)}, fn=lambda self, x: F.layer_norm(x, (5, 6), self.w, self.bias, 0.01))
onnx_case("groupnorm_opset21", "g (float[N,6,4,5] x0) => (float[N,6,4,5] y0) { y0 = GroupNormalization <num_groups=3> (x0, w, bias) }",
    f(2, 6, 4, 5), opset=21, params={"w": (6,), "bias": (6,)}, fn=lambda self, x: F.group_norm(x, 3, self.w, self.bias))
onnx_case("batchnorm_opset9", "g (float[N,6,4] x0) => (float[N,6,4] y0) { y0 = BatchNormalization <epsilon=0.001> (x0, w, bias, mean_bias, scale) }",
    f(3, 6, 4), opset=9, train=False, params={"w": (6,), "bias": (6,), "mean_bias": (6,), "scale": (6,)},
    fn=lambda self, x: F.batch_norm(x, self.mean_bias.detach(), self.scale.detach(), self.w, self.bias, False, 0, 1e-3))

case("dropout_zero_train", f(3, 7), parts=lambda: {"drop": nn.Dropout(0.0), "fc": nn.Linear(7, 4)})
case("dropout_half_eval", f(3, 7), train=False, parts=lambda: {"drop": nn.Dropout(0.5), "fc": nn.Linear(7, 4)})
case("dropout2d_zero_train", f(2, 3, 4, 5), torchscript=False, parts=lambda: {"drop": nn.Dropout2d(0.0), "conv": nn.Conv2d(3, 2, 1)})
onnx_case("dropout_opset10", "g (float[N,7] x0) => (float[N,7] y0) { y0 = Dropout <ratio=0.0> (x0) }",
    f(3, 7), opset=10, train=False, fn=lambda self, x: x * 1)
onnx_case("dropout_no_ratio", "g (float[N,7] x0) => (float[N,7] y0) { y0 = Dropout (x0) }",
    f(3, 7), train=False, fn=lambda self, x: x * 1)

REDUCTIONS = {"mean": torch.mean, "sum": torch.sum, "max": torch.amax, "min": torch.amin}
for op, function in REDUCTIONS.items():
    for name, options in {"last": {"dim": -1}, "kept": {"dim": (1, 3), "keepdim": True}, "middle": {"dim": (1, 2)}, "first": {"dim": 0}}.items():
        case(f"reduce_{op}_{name}", f(2, 3, 4, 5), dynamo=name in ("last", "kept"),
            fn=lambda self, x, g=function, o=options: g(x, **o))
case("reduce_mean_all", f(2, 3, 4), fn=lambda self, x: x.mean())
case("reduce_sum_all", f(2, 3, 4), fn=lambda self, x: (x * x).sum())
case("reduce_max_all", f(2, 3, 4), fn=lambda self, x: x.max())
case("reduce_max_ties", f(4, 9, steps=1), fn=lambda self, x: x.amax(-1))
case("max_values_and_indices", f(3, 7), fn=lambda self, x: x.max(dim=1))
case("argmax", f(3, 7), fn=lambda self, x: (x.argmax(-1), x * 2))
case("reduce_prod", f(3, 4, low=0.5, high=2), fn=lambda self, x: x.prod(-1))
case("reduce_l2", f(3, 4), fn=lambda self, x: x.norm(dim=-1, keepdim=True))
case("reduce_l1", f(3, 4), fn=lambda self, x: x.norm(p=1, dim=-1))
case("logsumexp", f(3, 4), fn=lambda self, x: x.logsumexp(-1))
case("variance", f(3, 4, 5), fn=lambda self, x: x.var(-1))
case("standard_deviation", f(3, 4, 5), fn=lambda self, x: x.std(dim=(1, 2), unbiased=False))
case("cumsum", f(3, 4), fn=lambda self, x: x.cumsum(1))
for op, function in (("ReduceMean", torch.mean), ("ReduceSum", torch.sum), ("ReduceMax", torch.amax)):
    onnx_case(f"{op.lower()}_axes_attribute", f"g (float[N,3,4] x0) => (float[N,3] y0) {{ y0 = {op} <axes=[-1], keepdims=0> (x0) }}",
        f(2, 3, 4), opset=11, fn=lambda self, x, g=function: g(x, -1))
    onnx_case(f"{op.lower()}_axes_input", f"""g (float[N,3,4] x0) => (float[N,1,1] y0) {{
            axes = Constant <value = int64[2] {{1, -1}}> ()
            y0 = {op} (x0, axes) }}""", f(2, 3, 4), opset=18, fn=lambda self, x, g=function: g(x, (1, 2), keepdim=True))
    onnx_case(f"{op.lower()}_no_axes", f"g (float[2,3,4] x0) => (float[1,1,1] y0) {{ y0 = {op} (x0) }}",
        f(2, 3, 4), fn=lambda self, x, g=function: g(x, (0, 1, 2), keepdim=True))
    onnx_case(f"{op.lower()}_noop", f"g (float[2,3,4] x0) => (float[2,3,4] y0) {{ y0 = {op} <noop_with_empty_axes=1> (x0) }}",
        f(2, 3, 4), opset=18, fn=lambda self, x: x * 1)
onnx_case("reduce_sum_square", "g (float[N,3,4] x0) => (float[N,3,1] y0) { y0 = ReduceSumSquare <axes=[2]> (x0) }",
    f(2, 3, 4), opset=13, fn=lambda self, x: (x * x).sum(-1, keepdim=True))
