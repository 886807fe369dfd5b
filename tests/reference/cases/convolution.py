"""Conv and ConvTranspose."""

import torch.nn.functional as F
from torch import nn

from case import case, f, onnx_case


def conv2d(name, *arguments, shape=(2, 3, 8, 7), **options):
    case(f"conv2d_{name}", f(*shape), parts=lambda: {"conv": nn.Conv2d(*arguments, **options)})


conv2d("1x1", 3, 5, 1)
conv2d("1x1_s2", 3, 5, 1, stride=2)
conv2d("3x3_same", 3, 4, 3, padding=1)
conv2d("3x3_valid", 3, 4, 3)
conv2d("3x3_s2", 3, 4, 3, stride=2, padding=1)
conv2d("5x5", 3, 4, 5, padding=2)
conv2d("7x7_s2", 3, 4, 7, stride=2, padding=3, shape=(2, 3, 15, 14))
conv2d("oblong", 3, 4, (3, 2), stride=(2, 1), padding=(1, 0))
conv2d("dilation", 3, 4, 3, dilation=2, padding=2)
conv2d("dilation_oblong", 3, 4, 3, dilation=(2, 1), stride=(1, 2), padding=(2, 1))
conv2d("groups", 6, 4, 3, groups=2, padding=1, shape=(2, 6, 6, 5))
conv2d("groups_stride_dilation", 6, 9, 3, groups=3, padding=2, stride=2, dilation=2, shape=(2, 6, 9, 8))
conv2d("depthwise", 6, 6, 3, groups=6, padding=1, shape=(2, 6, 7, 6))
conv2d("depthwise_s2", 6, 6, 3, groups=6, padding=1, stride=2, shape=(2, 6, 7, 8))
conv2d("depthwise_5x5", 6, 6, 5, groups=6, padding=2, bias=False, shape=(2, 6, 7, 8))
conv2d("depthwise_multiplier", 4, 8, 3, groups=4, padding=1, shape=(2, 4, 6, 5))
conv2d("nobias", 3, 4, 3, bias=False)
conv2d("padding_name_same", 3, 4, 3, padding="same")
conv2d("padding_name_same_even", 3, 4, (4, 2), padding="same")
conv2d("padding_reflect", 3, 4, 3, padding=1, padding_mode="reflect")
conv2d("wide", 16, 24, 3, padding=1, shape=(3, 16, 9, 10))
conv2d("window_of_input", 3, 4, (8, 7))
case("conv2d_after_pad", f(2, 3, 8, 7), parts=lambda: {"pad": nn.ZeroPad2d((1, 2, 0, 1)), "conv": nn.Conv2d(3, 4, 3, stride=2)})
case("conv2d_weight_input", f(2, 3, 6, 5), f(4, 3, 3, 3), f(4), batch=False, fn=lambda self, x, w, b: F.conv2d(x, w, b, padding=1))


def same(x, kernel, stride, upper, dilation=1):
    """Pads like auto_pad does."""
    pads = []
    for size in reversed(x.shape[2:]):
        total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
        small = total // 2
        pads += [small, total - small] if upper else [total - small, small]
    return F.pad(x, pads)


for word, upper in (("upper", True), ("lower", False)):
    for kernel, stride in ((3, 1), (3, 2), (4, 1), (2, 2)):
        onnx_case(
            f"conv2d_same_{word}_k{kernel}_s{stride}",
            f"""g (float[N,3,7,6] x0) => (float[N,4,A,B] y0) {{
                y0 = Conv <auto_pad="SAME_{word.upper()}", strides=[{stride},{stride}]> (x0, w, bias) }}""",
            f(2, 3, 7, 6), params={"w": (4, 3, kernel, kernel), "bias": (4,)},
            fn=lambda self, x, k=kernel, s=stride, u=upper: F.conv2d(same(x, k, s, u), self.w, self.bias, stride=s))

onnx_case("conv2d_auto_pad_valid", """g (float[N,3,7,6] x0) => (float[N,4,A,B] y0) {
        y0 = Conv <auto_pad="VALID", kernel_shape=[3,3]> (x0, w) }""",
    f(2, 3, 7, 6), params={"w": (4, 3, 3, 3)}, fn=lambda self, x: F.conv2d(x, self.w))
onnx_case("conv2d_pads_asymmetric", """g (float[N,3,7,6] x0) => (float[N,4,A,B] y0) {
        y0 = Conv <pads=[0,1,2,1], strides=[2,1]> (x0, w, bias) }""",
    f(2, 3, 7, 6), params={"w": (4, 3, 3, 3), "bias": (4,)},
    fn=lambda self, x: F.conv2d(F.pad(x, (1, 1, 0, 2)), self.w, self.bias, stride=(2, 1)))


def conv1d(name, *arguments, shape=(2, 3, 11), **options):
    case(f"conv1d_{name}", f(*shape), parts=lambda: {"conv": nn.Conv1d(*arguments, **options)})


conv1d("k3", 3, 4, 3, padding=1)
conv1d("k1", 3, 4, 1)
conv1d("stride_dilation", 3, 4, 3, stride=2, dilation=2, padding=1)
conv1d("groups_nobias", 4, 6, 3, groups=2, bias=False, shape=(2, 4, 11))
conv1d("depthwise", 4, 4, 5, groups=4, padding=2, shape=(2, 4, 11))
case("conv1d_causal", f(2, 3, 9), fn=lambda self, x: self.conv(F.pad(x, (2, 0))), parts=lambda: {"conv": nn.Conv1d(3, 4, 3)})


def transposed(dimensions, name, *arguments, shape, **options):
    kind = nn.ConvTranspose1d if dimensions == 1 else nn.ConvTranspose2d
    case(f"convtranspose{dimensions}d_{name}", f(*shape), parts=lambda: {"conv": kind(*arguments, **options)})


transposed(1, "k3", 3, 4, 3, shape=(2, 3, 7))
transposed(1, "s2", 3, 4, 4, stride=2, padding=1, shape=(2, 3, 7))
transposed(1, "output_padding_groups", 4, 6, 3, stride=3, output_padding=2, groups=2, shape=(2, 4, 5))
transposed(2, "k2_s2", 3, 4, 2, stride=2, shape=(2, 3, 5, 4))
transposed(2, "k3_s1_p1", 3, 4, 3, padding=1, shape=(2, 3, 5, 4))
transposed(2, "k3_s2_output_padding", 3, 4, 3, stride=2, padding=1, output_padding=1, shape=(2, 3, 5, 4))
transposed(2, "groups", 4, 6, 3, stride=2, groups=2, shape=(2, 4, 4, 3))
transposed(2, "depthwise_nobias", 4, 4, 4, stride=2, padding=1, groups=4, bias=False, shape=(2, 4, 4, 3))
transposed(2, "dilation", 3, 4, 3, dilation=2, padding=1, shape=(2, 3, 5, 4))
transposed(2, "oblong", 3, 4, (3, 2), stride=(1, 2), padding=(1, 0), output_padding=(0, 1), shape=(2, 3, 5, 4))

onnx_case("convtranspose2d_output_shape", """g (float[N,3,5,4] x0) => (float[N,4,10,8] y0) {
        y0 = ConvTranspose <output_shape=[10,8], strides=[2,2]> (x0, w, bias) }""",
    f(2, 3, 5, 4), params={"w": (3, 4, 3, 3), "bias": (4,)},
    # one of the eleven rows and of the nine columns is too many: without auto_pad the odd one is taken from the start
    fn=lambda self, x: F.conv_transpose2d(x, self.w, self.bias, stride=2)[:, :, 1:, 1:])
onnx_case("convtranspose2d_same_upper", """g (float[N,3,5,4] x0) => (float[N,4,10,8] y0) {
        y0 = ConvTranspose <auto_pad="SAME_UPPER", strides=[2,2]> (x0, w, bias) }""",
    f(2, 3, 5, 4), params={"w": (3, 4, 4, 4), "bias": (4,)},
    fn=lambda self, x: F.conv_transpose2d(x, self.w, self.bias, stride=2, padding=1))
onnx_case("convtranspose2d_pads_asymmetric", """g (float[N,3,5,4] x0) => (float[N,4,A,B] y0) {
        y0 = ConvTranspose <pads=[0,1,1,0], strides=[2,2]> (x0, w) }""",
    f(2, 3, 5, 4), params={"w": (3, 4, 3, 3)},
    fn=lambda self, x: F.conv_transpose2d(x, self.w, stride=2)[:, :, :-1, 1:])
