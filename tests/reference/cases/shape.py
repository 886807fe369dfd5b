"""Everything that moves elements: indices, shapes, slices, pads, resizes."""

import torch
import torch.nn.functional as F
from torch import nn

from case import case, f, ints, onnx_case

case("embedding", ints(3, 5, n=11), parts=lambda: {"embedding": nn.Embedding(11, 6)})
case("embedding_repeated", ints(4, 9, n=3), parts=lambda: {"embedding": nn.Embedding(11, 6)})
case("embedding_padding_index", ints(3, 5, n=4), parts=lambda: {"embedding": nn.Embedding(11, 6, padding_idx=0)})
case("embedding_with_positions", ints(3, 5, n=11), parts=lambda: {"wte": nn.Embedding(11, 6), "wpe": nn.Embedding(8, 6)},
    fn=lambda self, i: self.wte(i) + self.wpe(torch.arange(i.shape[1])))
case("embedding_position_parameter", ints(3, 5, n=11),
    parts=lambda: {"wte": nn.Embedding(11, 6), "position": nn.Parameter(torch.zeros(1, 8, 6))},
    fn=lambda self, i: self.wte(i) + self.position[:, : i.shape[1]])
case("gather_axis_1", f(2, 5, 3), ints(4, n=5), batch=False, fn=lambda self, x, i: torch.index_select(x, 1, i))
case("gather_axis_1_matrix", f(2, 5, 3), ints(2, 3, n=5), batch=False, fn=lambda self, x, i: x[:, i])
case("gather_elements", f(3, 5), ints(3, 4, n=5), fn=lambda self, x, i: torch.gather(x, 1, i))
case("select_column", f(3, 5, 2), fn=lambda self, x: x[:, 2])
case("select_last", f(3, 5, 2), fn=lambda self, x: x[:, -1])
case("index_pairs", f(3, 5), ints(3, n=5), batch=False, fn=lambda self, x, i: x[torch.arange(3), i])
onnx_case("gather_negative", """g (float[N,5] x0) => (float[N,3] y0) {
        i = Constant <value = int64[3] {-1, 0, -1}> ()
        y0 = Gather <axis=1> (x0, i) }""", f(2, 5), fn=lambda self, x: x[:, [-1, 0, -1]])

case("reshape", f(3, 4, 6), fn=lambda self, x: x.reshape(x.shape[0], 8, 3) * 2)
case("reshape_minus_one", f(3, 4, 6), fn=lambda self, x: x.reshape(-1, 8) * 2)
case("view_by_size", f(3, 4, 6), fn=lambda self, x: x.view(x.size(0), x.size(1) * 2, -1) * 2)
case("view_split_heads", f(2, 5, 6), fn=lambda self, x: x.view(x.size(0), x.size(1), 2, 3).transpose(1, 2).contiguous())
case("view_merge_heads", f(2, 2, 5, 3), fn=lambda self, x: x.transpose(1, 2).contiguous().view(x.size(0), 5, 6))
case("flatten", f(3, 4, 5, 2), fn=lambda self, x: torch.flatten(x, 1) * 2)
case("flatten_from_2", f(3, 4, 5, 2), fn=lambda self, x: x.flatten(2) * 2)
case("flatten_middle", f(3, 4, 5, 2), fn=lambda self, x: x.flatten(1, 2) * 2)
case("flatten_all", f(3, 4, 5), batch=False, fn=lambda self, x: x.flatten() * 2)
case("flatten_transpose", f(2, 3, 4, 5), fn=lambda self, x: x.flatten(2).transpose(1, 2) * 2)
case("unflatten", f(3, 12), fn=lambda self, x: x.unflatten(1, (3, 4)) * 2)
onnx_case("reshape_zero", """g (float[N,4,6] x0) => (float[N,3,8] y0) {
        shape = Constant <value = int64[3] {0, 3, -1}> ()
        y0 = Reshape (x0, shape) }""", f(2, 4, 6), fn=lambda self, x: x.reshape(2, 3, 8) * 1)
for axis in (0, 1, 2, -1):
    word = str(axis).replace("-", "minus_")
    onnx_case(f"flatten_axis_{word}", f"g (float[2,3,4] x0) => (float[A,B] y0) {{ y0 = Flatten <axis={axis}> (x0) }}", f(2, 3, 4),
        fn=lambda self, x, a=axis % 3: x.reshape((1, -1) if a == 0 else (int(torch.tensor(x.shape[:a]).prod()), -1)) * 1)

case("transpose_2d", f(3, 4), fn=lambda self, x: x.t() * 2)
case("transpose_last", f(2, 3, 4, 5), fn=lambda self, x: x.transpose(-1, -2) * 2)
case("permute_nhwc", f(2, 3, 4, 5), fn=lambda self, x: x.permute(0, 2, 3, 1) * 2)
case("permute_cycle", f(2, 3, 4, 5), fn=lambda self, x: x.permute(3, 0, 1, 2) * 2)
case("permute_six", f(2, 3, 4, 2, 3, 2), fn=lambda self, x: x.permute(0, 1, 3, 5, 2, 4) * 2)
onnx_case("transpose_default", "g (float[2,3,4] x0) => (float[4,3,2] y0) { y0 = Transpose (x0) }", f(2, 3, 4), fn=lambda self, x: x.permute(2, 1, 0) * 1)
case("squeeze", f(3, 1, 4, 1), fn=lambda self, x: x.squeeze(1) * 2)
case("squeeze_last", f(3, 1, 4, 1), fn=lambda self, x: x.squeeze(-1) * 2)
case("squeeze_all", f(3, 1, 4, 1), batch=False, fn=lambda self, x: x.squeeze() * 2)
case("unsqueeze", f(3, 4), fn=lambda self, x: x.unsqueeze(1) * x.unsqueeze(-1))
case("none_index", f(3, 4), fn=lambda self, x: x[:, None, :, None] * 2)
onnx_case("squeeze_axes_attribute", "g (float[N,1,4,1] x0) => (float[N,4] y0) { y0 = Squeeze <axes=[1,-1]> (x0) }", f(3, 1, 4, 1), opset=11,
    fn=lambda self, x: x.reshape(3, 4) * 1)
onnx_case("unsqueeze_axes_attribute", "g (float[N,4] x0) => (float[1,N,4,1] y0) { y0 = Unsqueeze <axes=[0,3]> (x0) }", f(3, 4), opset=11,
    fn=lambda self, x: x.reshape(1, 3, 4, 1) * 1)

case("concat", f(3, 2, 4), f(3, 5, 4), fn=lambda self, x, y: torch.cat([x, y], 1))
case("concat_last", f(3, 2), f(3, 5), f(3, 1), fn=lambda self, x, y, z: torch.cat([x, y, z], -1))
case("concat_first", f(3, 2), f(4, 2), batch=False, fn=lambda self, x, y: torch.cat([x, y]))
case("concat_itself", f(3, 2), fn=lambda self, x: torch.cat([x, x * x, x], 1))
case("concat_class_token", f(3, 2, 4), parts=lambda: {"cls": nn.Parameter(torch.zeros(1, 1, 4))},
    fn=lambda self, x: torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1))
case("stack", f(3, 4), f(3, 4), fn=lambda self, x, y: torch.stack([x, y], 1))
case("split_equal", f(3, 6, 2), fn=lambda self, x: torch.split(x, 2, 1))
case("split_uneven", f(3, 7), fn=lambda self, x: torch.split(x, 3, 1))
case("split_sizes", f(3, 7), fn=lambda self, x: torch.split(x, [1, 4, 2], 1))
case("split_one_unused", f(3, 7), fn=lambda self, x: (lambda p: p[0].sum(1, keepdim=True) * p[2])(torch.split(x, [1, 4, 2], 1)))
case("chunk", f(3, 6), fn=lambda self, x: (lambda a, b: a * b)(*x.chunk(2, 1)))
case("chunk_uneven", f(3, 7), fn=lambda self, x: x.chunk(3, 1))
case("unbind", f(3, 2, 4), fn=lambda self, x: (lambda a, b: a * b)(*x.unbind(1)))
case("qkv_chunk", f(2, 3, 12), fn=lambda self, x: (lambda q, k, v: torch.softmax(q @ k.transpose(1, 2), -1) @ v)(*x.chunk(3, -1)))
case("qkv_permute", f(2, 5, 12), fn=lambda self, x: (lambda p: p[0] @ p[1].transpose(-1, -2) @ p[2])(
    x.reshape(x.shape[0], 5, 3, 2, 2).permute(2, 0, 3, 1, 4)))
onnx_case("split_attribute", "g (float[N,7] x0) => (float[N,3] y0, float[N,4] y1) { y0, y1 = Split <axis=1, split=[3,4]> (x0) }",
    f(2, 7), opset=11, fn=lambda self, x: torch.split(x * 1, [3, 4], 1))
onnx_case("split_num_outputs", "g (float[N,7] x0) => (float[N,3] y0, float[N,3] y1, float[N,1] y2) { y0, y1, y2 = Split <axis=1, num_outputs=3> (x0) }",
    f(2, 7), opset=18, fn=lambda self, x: torch.split(x * 1, 3, 1))

case("slice", f(3, 8, 5), fn=lambda self, x: x[:, 2:6] * 2)
case("slice_steps", f(3, 9, 8), fn=lambda self, x: x[:, 1::2, :7:3] * 2)
case("slice_negative", f(3, 8, 5), fn=lambda self, x: x[:, -4:-1, -2:] * 2)
case("slice_patches", f(2, 3, 6, 6), fn=lambda self, x: torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1))
case("slice_shift", f(3, 8), fn=lambda self, x: x[:, 1:] - x[:, :-1])
case("narrow", f(3, 8), fn=lambda self, x: x.narrow(1, 2, 4) * 2)
case("flip", f(3, 4, 5), fn=lambda self, x: x.flip(1, 2) * 2)
case("roll", f(3, 4, 5), fn=lambda self, x: x.roll((1, -2), (1, 2)) * 2)
onnx_case("slice_backwards", """g (float[N,9] x0) => (float[N,4] y0) {
        starts = Constant <value = int64[1] {-2}> ()
        ends = Constant <value = int64[1] {-9223372036854775807}> ()
        axes = Constant <value = int64[1] {1}> ()
        steps = Constant <value = int64[1] {-2}> ()
        y0 = Slice (x0, starts, ends, axes, steps) }""", f(2, 9), fn=lambda self, x: x[:, [7, 5, 3, 1]])
onnx_case("slice_attributes", "g (float[N,9,4] x0) => (float[N,5,2] y0) { y0 = Slice <axes=[1,2], starts=[2,-2], ends=[7,1000]> (x0) }",
    f(2, 9, 4), opset=9, fn=lambda self, x: x[:, 2:7, -2:] * 1)

case("pad_constant", f(2, 3, 4, 5), fn=lambda self, x: F.pad(x, (1, 2, 0, 3), value=0.5))
case("pad_zero_channels", f(2, 3, 4, 5), fn=lambda self, x: F.pad(x, (0, 0, 0, 0, 1, 2)))
case("pad_reflect", f(2, 3, 4, 5), fn=lambda self, x: F.pad(x, (1, 2, 3, 0), mode="reflect"))
case("pad_edge", f(2, 3, 4, 5), fn=lambda self, x: F.pad(x, (1, 2, 3, 0), mode="replicate"))
case("pad_circular", f(2, 3, 4, 5), fn=lambda self, x: F.pad(x, (1, 2, 3, 0), mode="circular"))
case("pad_negative", f(2, 3, 4, 5), fn=lambda self, x: F.pad(x, (-1, 2, 1, -2)))
onnx_case("pad_axes", """g (float[N,3,4] x0) => (float[N,3,7] y0) {
        pads = Constant <value = int64[2] {1, 2}> ()
        value = Constant <value = float {0.25}> ()
        axes = Constant <value = int64[1] {-1}> ()
        y0 = Pad (x0, pads, value, axes) }""", f(2, 3, 4), opset=18, fn=lambda self, x: F.pad(x, (1, 2), value=0.25))
onnx_case("pad_attributes", 'g (float[N,3,4] x0) => (float[N,4,7] y0) { y0 = Pad <mode="constant", pads=[0,1,1,0,0,2], value=0.5> (x0) }',
    f(2, 3, 4), opset=10, fn=lambda self, x: F.pad(x, (1, 2, 1, 0), value=0.5))
onnx_case("pad_wrap", """g (float[N,3,4] x0) => (float[N,3,7] y0) {
        pads = Constant <value = int64[6] {0, 0, 1, 0, 0, 2}> ()
        y0 = Pad <mode="wrap"> (x0, pads) }""", f(2, 3, 4), opset=19, fn=lambda self, x: F.pad(x, (1, 2), mode="circular"))

case("expand", f(3, 1, 4), fn=lambda self, x: x.expand(-1, 5, -1) * 2)
case("expand_as", f(3, 1), f(3, 4), fn=lambda self, x, y: x.expand_as(y) * y)
case("expand_new_dimension", f(4), f(3, 4), batch=False, fn=lambda self, x, y: x.expand(3, 4) * y)
case("repeat", f(3, 2), fn=lambda self, x: x.repeat(1, 3) * 2)
case("repeat_interleave", f(3, 2, 4), fn=lambda self, x: x.repeat_interleave(2, dim=1) * 2)
case("tril", f(3, 4, 4), fn=lambda self, x: x.tril() * 2)
case("triu_diagonal", f(3, 4, 4), fn=lambda self, x: x.triu(1) * 2)
case("pixel_shuffle", f(2, 8, 3, 4), parts=lambda: {"up": nn.PixelShuffle(2)})
case("pixel_unshuffle", f(2, 3, 4, 6), parts=lambda: {"down": nn.PixelUnshuffle(2)})

RESIZES = {
    "nearest_x2": {"scale_factor": 2}, "nearest_size": {"size": (7, 9)}, "nearest_down": {"size": (2, 3)},
    "bilinear_x2": {"scale_factor": 2, "mode": "bilinear", "align_corners": False},
    "bilinear_x2_corners": {"scale_factor": 2, "mode": "bilinear", "align_corners": True},
    "bilinear_size": {"size": (7, 9), "mode": "bilinear", "align_corners": False},
    "bilinear_size_corners": {"size": (7, 9), "mode": "bilinear", "align_corners": True},
    "bilinear_down": {"size": (2, 3), "mode": "bilinear", "align_corners": False},
    "bilinear_down_corners": {"size": (2, 3), "mode": "bilinear", "align_corners": True},
    "bilinear_half": {"scale_factor": 0.5, "mode": "bilinear", "align_corners": False},
}
for name, options in RESIZES.items():
    case(f"resize_{name}", f(2, 3, 4, 5), fn=lambda self, x, o=options: F.interpolate(x, **o))
case("resize_linear_1d", f(2, 3, 5), fn=lambda self, x: F.interpolate(x, size=8, mode="linear"))
case("resize_nearest_1d", f(2, 3, 5), fn=lambda self, x: F.interpolate(x, scale_factor=3))
onnx_case("resize_nearest_asymmetric", """g (float[N,3,4,5] x0) => (float[N,3,8,10] y0) {
        scales = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> ()
        y0 = Resize <coordinate_transformation_mode="asymmetric", mode="nearest", nearest_mode="floor"> (x0, , scales) }""",
    f(2, 3, 4, 5), fn=lambda self, x: F.interpolate(x, scale_factor=2))
onnx_case("resize_linear_half_pixel", """g (float[N,3,4,5] x0) => (float[N,3,8,10] y0) {
        scales = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> ()
        y0 = Resize <mode="linear"> (x0, , scales) }""",
    f(2, 3, 4, 5), fn=lambda self, x: F.interpolate(x, scale_factor=2, mode="bilinear"))
onnx_case("resize_nearest_default", """g (float[N,3,4,5] x0) => (float[N,3,8,10] y0) {
        scales = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> ()
        y0 = Resize (x0, , scales) }""",
    f(2, 3, 4, 5), fn=lambda self, x: F.interpolate(x, scale_factor=2))
onnx_case("upsample_opset9", """g (float[N,3,4,5] x0) => (float[N,3,8,10] y0) {
        scales = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> ()
        y0 = Upsample <mode="nearest"> (x0, scales) }""",
    f(2, 3, 4, 5), opset=9, fn=lambda self, x: F.interpolate(x, scale_factor=2))
