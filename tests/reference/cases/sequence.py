"""Recurrent layers and attention, and small blocks as they occur in models."""

import torch
import torch.nn.functional as F
from torch import nn

from case import case, f, ints, onnx_case

RECURRENT = {
    "one_layer": {}, "batch_first": {"batch_first": True}, "nobias": {"bias": False},
    "two_layers": {"num_layers": 2, "batch_first": True}, "bidirectional": {"bidirectional": True, "batch_first": True},
    "two_layers_bidirectional": {"num_layers": 2, "bidirectional": True},
}
for kind, make in (("lstm", nn.LSTM), ("gru", nn.GRU)):
    for name, options in RECURRENT.items():
        # without batch_first the first dimension is time, and torch can only export that as it is
        case(f"{kind}_{name}", f(3, 5, 4), batch=options.get("batch_first", False),
            parts=lambda m=make, o=options: {"rnn": m(4, 6, **o)}, fn=lambda self, x: self.rnn(x))
    case(f"{kind}_last_output", f(3, 5, 4), parts=lambda m=make: {"rnn": m(4, 6, batch_first=True), "fc": nn.Linear(6, 2)},
        fn=lambda self, x: self.fc(self.rnn(x)[0][:, -1]))
case("lstm_initial_state", f(3, 5, 4), f(1, 3, 6), f(1, 3, 6), batch=False, parts=lambda: {"rnn": nn.LSTM(4, 6, batch_first=True)},
    fn=lambda self, x, h, c: self.rnn(x, (h, c)))
case("gru_initial_state", f(3, 5, 4), f(1, 3, 6), batch=False, parts=lambda: {"rnn": nn.GRU(4, 6, batch_first=True)},
    fn=lambda self, x, h: self.rnn(x, h))
case("rnn_tanh", f(3, 5, 4), parts=lambda: {"rnn": nn.RNN(4, 6, batch_first=True)}, fn=lambda self, x: self.rnn(x))
case("lstm_cell_by_hand", f(3, 4), f(3, 6), f(3, 6), parts=lambda: {"ih": nn.Linear(4, 24), "hh": nn.Linear(6, 24)},
    fn=lambda self, x, h, c: lstm_cell(self.ih(x) + self.hh(h), c))


def lstm_cell(gates, c):
    i, f_, g, o = gates.chunk(4, 1)
    c = torch.sigmoid(f_) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def onnx_lstm(self, x):
    """The gates of ONNX stand in the order i o f c, those of torch in i f g o."""
    order = torch.cat([torch.arange(n * 4, n * 4 + 4) for n in (0, 2, 3, 1)])
    weights = [w[0][order] for w in (self.w, self.r)]
    wb, rb = self.bias[0].split(16)
    zero = x.new_zeros(1, x.shape[1], 4)
    y, h, c = torch._VF.lstm(x, (zero, zero), [*weights, wb[order], rb[order]], True, 1, 0.0, False, False, False)
    return y.unsqueeze(1), h, c


onnx_case("lstm", """g (float[5,N,3] x0) => (float[5,1,N,4] y0, float[1,N,4] y1, float[1,N,4] y2) {
        y0, y1, y2 = LSTM <hidden_size=4> (x0, w, r, bias) }""",
    f(5, 2, 3), params={"w": (1, 16, 3), "r": (1, 16, 4), "bias": (1, 32)}, fn=onnx_lstm)
onnx_case("lstm_only_last", """g (float[5,N,3] x0) => (float[1,N,4] y0) { _, y0 = LSTM <hidden_size=4> (x0, w, r, bias) }""".replace("_,", "unused,"),
    f(5, 2, 3), params={"w": (1, 16, 3), "r": (1, 16, 4), "bias": (1, 32)}, fn=lambda self, x: onnx_lstm(self, x)[1])


def onnx_gru(self, x, after):
    """The gates of ONNX stand in the order z r h; `after` is linear_before_reset."""
    wz, wr, wh = self.w[0].split(4)
    rz, rr, rh = self.r[0].split(4)
    bz, br, bh, cz, cr, ch = self.bias[0].split(4)
    h, steps = x.new_zeros(x.shape[1], 4), []
    for t in x:
        z = torch.sigmoid(t @ wz.T + h @ rz.T + bz + cz)
        r = torch.sigmoid(t @ wr.T + h @ rr.T + br + cr)
        n = torch.tanh(t @ wh.T + bh + (r * (h @ rh.T + ch) if after else (r * h) @ rh.T + ch))
        h = (1 - z) * n + z * h
        steps.append(h)
    return torch.stack(steps).unsqueeze(1), h.unsqueeze(0)


for after in (0, 1):
    onnx_case(f"gru_linear_before_reset_{after}", f"""g (float[5,N,3] x0) => (float[5,1,N,4] y0, float[1,N,4] y1) {{
            y0, y1 = GRU <hidden_size=4, linear_before_reset={after}> (x0, w, r, bias) }}""",
        f(5, 2, 3), params={"w": (1, 12, 3), "r": (1, 12, 4), "bias": (1, 24)}, fn=lambda self, x, a=after: onnx_gru(self, x, a))

QKV = (f(2, 3, 5, 4), f(2, 3, 5, 4), f(2, 3, 5, 4))
case("attention", *QKV, fn=lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v))
case("attention_causal", *QKV, fn=lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
case("attention_scale", *QKV, fn=lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3))
case("attention_float_mask", *QKV, f(5, 5), batch=False, fn=lambda self, q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m))
case("attention_bool_mask", *QKV, batch=False,
    fn=lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(5, 5, dtype=torch.bool).tril(1)))
case("attention_cross", f(2, 3, 5, 4), f(2, 3, 7, 4), f(2, 3, 7, 6), fn=lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v))
case("attention_causal_opset14", *QKV, opset=14, dynamo=False, fn=lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))


def mha(name, fn, **options):
    case(f"multihead_{name}", f(2, 5, 8), parts=lambda: {"mha": nn.MultiheadAttention(8, 2, batch_first=True, **options)}, fn=fn)


mha("self", lambda self, x: self.mha(x, x, x, need_weights=False)[0])
mha("self_weights", lambda self, x: self.mha(x, x, x))
mha("self_nobias", lambda self, x: self.mha(x, x, x, need_weights=False)[0], bias=False)
mha("causal", lambda self, x: self.mha(x, x, x, need_weights=False, is_causal=True,
    attn_mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=x.dtype))[0])
case("multihead_cross", f(2, 5, 8), f(2, 7, 6), parts=lambda: {"mha": nn.MultiheadAttention(8, 2, batch_first=True, kdim=6, vdim=6)},
    fn=lambda self, x, y: self.mha(x, y, y, need_weights=False)[0])


class CausalAttention(nn.Module):
    """As in minGPT: one matrix for q, k and v, and a mask of ones kept as a buffer."""

    def __init__(self, width=8, heads=2, context=6):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(context, context)).view(1, 1, context, context))

    def forward(self, x):
        n, t, d = x.size()
        q, k, v = self.qkv(x).split(d, dim=2)
        q, k, v = (y.view(n, t, self.heads, d // self.heads).transpose(1, 2) for y in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / (k.size(-1) ** 0.5))
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(n, t, d))


class Rotary(nn.Module):
    """Attention with rotary positions, as in Llama."""

    def __init__(self, heads=2, size=4, context=6):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(heads * size, 3 * heads * size, bias=False)
        angles = torch.outer(torch.arange(context).float(), 1.0 / 100 ** (torch.arange(0, size, 2).float() / size))
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def turn(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos[: x.shape[-2]] + torch.cat([-b, a], -1) * self.sin[: x.shape[-2]]

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True)
        return y.transpose(1, 2).reshape(n, t, d)


class SqueezeExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(6, 2, 1)
        self.up = nn.Conv2d(2, 6, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


def channel_shuffle(self, x):
    n, c, h, w = x.size()
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w) * 2


case("attention_by_hand", f(2, 6, 8), parts=lambda: {"attn": CausalAttention()})
case("attention_by_hand_shorter", f(2, 4, 8), parts=lambda: {"attn": CausalAttention()})
case("attention_rotary", f(2, 5, 8), parts=lambda: {"attn": Rotary()})
case("squeeze_excite", f(2, 6, 4, 5), parts=lambda: {"se": SqueezeExcite()})
case("channel_shuffle", f(2, 6, 4, 5), fn=channel_shuffle)
case("residual", f(2, 3, 5, 6), parts=lambda: {"a": nn.Conv2d(3, 3, 3, padding=1), "b": nn.Conv2d(3, 3, 3, padding=1)},
    fn=lambda self, x: F.relu(x + self.b(F.relu(self.a(x)))))
case("swiglu", f(2, 3, 6), parts=lambda: {"gate": nn.Linear(6, 9, bias=False), "up": nn.Linear(6, 9, bias=False), "down": nn.Linear(9, 6, bias=False)},
    fn=lambda self, x: self.down(F.silu(self.gate(x)) * self.up(x)))
case("tied_embedding", ints(2, 5, n=11), parts=lambda: {"wte": nn.Embedding(11, 6)},
    fn=lambda self, i: F.linear(torch.tanh(self.wte(i)), self.wte.weight))
case("encoder_layer", f(2, 5, 8), parts=lambda: {"layer": nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)})
case("encoder_layer_norm_first", f(2, 5, 8),
    parts=lambda: {"layer": nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")})
case("einsum_attention", f(2, 5, 3, 4), f(2, 5, 3, 4), fn=lambda self, q, k: torch.einsum("bthd,bshd->bhts", q, k))
case("patch_embedding", f(2, 3, 8, 8), parts=lambda: {"proj": nn.Conv2d(3, 6, 4, stride=4), "norm": nn.LayerNorm(6)},
    fn=lambda self, x: self.norm(self.proj(x).flatten(2).transpose(1, 2)))
