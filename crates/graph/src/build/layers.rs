//! Layers with parameters, initialised as in PyTorch.

use super::Builder;
use crate::{Conv, Init, Op, Recurrent, Shape, ValueId, ValueKind};
use phalanx_types::DType;

/// A convolution; settings with one entry apply to every spatial dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvLayer {
    pub out: usize,
    pub kernel: Vec<usize>,
    pub stride: Vec<usize>,
    pub dilation: Vec<usize>,
    /// Padding before and after.
    pub pad: Vec<(usize, usize)>,
    pub groups: usize,
    pub bias: bool,
    /// Initialisation of the weight; PyTorch's default if `None`.
    pub init: Option<Init>,
}

impl ConvLayer {
    pub fn new(out: usize, kernel: usize) -> Self {
        Self {
            out,
            kernel: vec![kernel],
            stride: vec![1],
            dilation: vec![1],
            pad: vec![(0, 0)],
            groups: 1,
            bias: true,
            init: None,
        }
    }

    #[must_use]
    pub fn pad(self, pad: usize) -> Self {
        Self { pad: vec![(pad, pad)], ..self }
    }

    #[must_use]
    pub fn stride(self, stride: usize) -> Self {
        Self { stride: vec![stride], ..self }
    }

    #[must_use]
    pub fn dilation(self, dilation: usize) -> Self {
        Self { dilation: vec![dilation], ..self }
    }

    #[must_use]
    pub fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    #[must_use]
    pub fn no_bias(self) -> Self {
        Self { bias: false, ..self }
    }

    #[must_use]
    pub fn init(self, init: Init) -> Self {
        Self { init: Some(init), ..self }
    }
}

/// A linear layer: a matrix and an optional bias.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearLayer {
    pub out: usize,
    pub bias: bool,
    /// Initialisation of weight and bias; PyTorch's default if `None`.
    pub init: Option<(Init, Init)>,
}

/// A stack of LSTM or GRU layers over `[N, T, …]` (or `[T, N, …]`).
#[derive(Debug, Clone, PartialEq)]
pub struct RecurrentLayer {
    pub hidden: usize,
    pub layers: usize,
    pub bidirectional: bool,
    pub batch_first: bool,
    pub bias: bool,
    /// Between the layers.
    pub dropout: f32,
}

impl RecurrentLayer {
    pub fn new(hidden: usize) -> Self {
        Self { hidden, layers: 1, bidirectional: false, batch_first: true, bias: true, dropout: 0.0 }
    }
}

fn spread<T: Clone>(setting: &[T], n: usize) -> Vec<T> {
    match setting {
        [one] => vec![one.clone(); n],
        many => many.to_vec(),
    }
}

/// The bound of PyTorch's kaiming_uniform with a = √5.
fn uniform(fan_in: usize) -> Init {
    Init::Uniform(1.0 / (fan_in.max(1) as f32).sqrt())
}

impl Builder {
    /// x `[N, C, L]`.
    pub fn conv1d(&mut self, name: &str, x: ValueId, layer: ConvLayer) -> ValueId {
        self.conv(name, x, &layer, 1)
    }

    /// x `[N, C, H, W]`.
    pub fn conv2d(&mut self, name: &str, x: ValueId, layer: ConvLayer) -> ValueId {
        self.conv(name, x, &layer, 2)
    }

    fn conv(&mut self, name: &str, x: ValueId, layer: &ConvLayer, dims: usize) -> ValueId {
        let Some(channels) = self.fixed(name, x, 1) else { return x };
        let Some(per_group) = self.divide(name, channels, layer.groups) else { return x };
        let kernel = spread(&layer.kernel, dims);
        let shape = [&[layer.out, per_group], &kernel[..]].concat();
        let Some(fan_in) = self.product(name, &shape[1..]) else { return x };
        if self.product(name, &shape).is_none() {
            return x;
        }
        let init = layer.init.unwrap_or(uniform(fan_in));
        let mut inputs = vec![x, self.parameter(format!("{name}.weight"), &shape, init)];
        if layer.bias {
            inputs.push(self.parameter(format!("{name}.bias"), &[layer.out], uniform(fan_in)));
        }
        let conv = Conv {
            stride: spread(&layer.stride, dims),
            dilation: spread(&layer.dilation, dims),
            pad: spread(&layer.pad, dims),
            groups: layer.groups,
        };
        self.op(name, Op::Conv(conv), &inputs)
    }

    /// With a bias.
    pub fn linear(&mut self, name: &str, x: ValueId, out: usize) -> ValueId {
        self.linear_with(name, x, LinearLayer { out, bias: true, init: None })
    }

    pub fn linear_with(&mut self, name: &str, x: ValueId, layer: LinearLayer) -> ValueId {
        let Some(k) = self.last(name, x) else { return x };
        if self.product(name, &[layer.out, k]).is_none() {
            return x;
        }
        let (weight, bias) = layer.init.unwrap_or((uniform(k), uniform(k)));
        let mut inputs = vec![x, self.parameter(format!("{name}.weight"), &[layer.out, k], weight)];
        if layer.bias {
            inputs.push(self.parameter(format!("{name}.bias"), &[layer.out], bias));
        }
        self.op(name, Op::Linear, &inputs)
    }

    /// With PyTorch's ε of 1e-5 and momentum of 0.1.
    pub fn batch_norm(&mut self, name: &str, x: ValueId) -> ValueId {
        self.batch_norm_with(name, x, 1e-5, 0.1)
    }

    pub fn batch_norm_with(&mut self, name: &str, x: ValueId, eps: f32, momentum: f32) -> ValueId {
        let Some(c) = self.fixed(name, x, 1) else { return x };
        let inputs = [
            x,
            self.parameter(format!("{name}.weight"), &[c], Init::Ones),
            self.parameter(format!("{name}.bias"), &[c], Init::Zeros),
            self.buffer(format!("{name}.running_mean"), &[c], Init::Zeros),
            self.buffer(format!("{name}.running_var"), &[c], Init::Ones),
        ];
        // No node reads it, but PyTorch's `load_state_dict` requires it.
        let tracked = format!("{name}.num_batches_tracked");
        self.value(tracked, DType::I64, Shape::default(), ValueKind::Buffer(Init::Zeros));
        self.op(name, Op::BatchNorm { eps, momentum }, &inputs)
    }

    /// Normalises over the last dimension.
    pub fn layer_norm(&mut self, name: &str, x: ValueId) -> ValueId {
        self.layer_norm_with(name, x, 1e-5)
    }

    pub fn layer_norm_with(&mut self, name: &str, x: ValueId, eps: f32) -> ValueId {
        let Some(n) = self.last(name, x) else { return x };
        let weight = self.parameter(format!("{name}.weight"), &[n], Init::Ones);
        let bias = self.parameter(format!("{name}.bias"), &[n], Init::Zeros);
        let axis = self.shape(x).rank().saturating_sub(1);
        self.op(name, Op::LayerNorm { axis, eps }, &[x, weight, bias])
    }

    pub fn group_norm(&mut self, name: &str, x: ValueId, groups: usize, eps: f32) -> ValueId {
        let Some(c) = self.fixed(name, x, 1) else { return x };
        let weight = self.parameter(format!("{name}.weight"), &[c], Init::Ones);
        let bias = self.parameter(format!("{name}.bias"), &[c], Init::Zeros);
        self.op(name, Op::GroupNorm { groups, eps }, &[x, weight, bias])
    }

    /// Looks up rows of a table by index.
    pub fn embedding(&mut self, name: &str, tokens: ValueId, rows: usize, width: usize) -> ValueId {
        self.embedding_with(name, tokens, [rows, width], Init::Normal { std: 1.0 })
    }

    pub fn embedding_with(&mut self, name: &str, tokens: ValueId, table: [usize; 2], init: Init) -> ValueId {
        if self.product(name, &table).is_none() {
            return tokens;
        }
        let table = self.parameter(format!("{name}.weight"), &table, init);
        self.op(name, Op::Gather { axis: 0 }, &[table, tokens])
    }

    pub fn dropout(&mut self, name: &str, x: ValueId, ratio: f32) -> ValueId {
        self.op(name, Op::Dropout { ratio }, &[x])
    }

    /// Multi-head self-attention over `[N, T, D]` with one matrix for query, key and value: `<name>.qkv`,
    /// `<name>.proj`.
    pub fn self_attention(&mut self, name: &str, x: ValueId, heads: usize, causal: bool) -> ValueId {
        self.self_attention_with(name, x, heads, causal, None)
    }

    pub(crate) fn self_attention_with(
        &mut self,
        name: &str,
        x: ValueId,
        heads: usize,
        causal: bool,
        init: Option<(Init, Init)>,
    ) -> ValueId {
        let Some(t) = self.fixed(name, x, 1) else { return x };
        let Some(d) = self.fixed(name, x, 2) else { return x };
        let Some(width) = self.divide(name, d, heads) else { return x };
        let Some(out) = self.product(name, &[3, d]) else { return x };
        let qkv = self.linear_with(&format!("{name}.qkv"), x, LinearLayer { out, bias: true, init });
        let [q, k, v] = [0, 1, 2].map(|i| {
            let part = self.slice(qkv, 2, i * d, d);
            let part = self.reshape(part, &[t, heads, width]);
            self.transpose(part, &[0, 2, 1, 3])
        });
        let mixed = self.attention(q, k, v, causal);
        let mixed = self.transpose(mixed, &[0, 2, 1, 3]);
        let mixed = self.reshape(mixed, &[t, d]);
        self.linear_with(&format!("{name}.proj"), mixed, LinearLayer { out: d, bias: true, init })
    }

    pub fn lstm(&mut self, name: &str, x: ValueId, layer: &RecurrentLayer) -> ValueId {
        self.recurrent(name, x, layer, 4)
    }

    pub fn gru(&mut self, name: &str, x: ValueId, layer: &RecurrentLayer) -> ValueId {
        self.recurrent(name, x, layer, 3)
    }

    fn recurrent(&mut self, name: &str, x: ValueId, layer: &RecurrentLayer, gates: usize) -> ValueId {
        let mut x = x;
        for l in 0..layer.layers {
            let forward = self.direction(name, x, layer, gates, (l, false));
            x = if layer.bidirectional {
                let backward = self.direction(name, x, layer, gates, (l, true));
                self.op(format!("{name}.l{l}"), Op::Concat { axis: 2 }, &[forward, backward])
            } else {
                forward
            };
            if layer.dropout > 0.0 && l + 1 < layer.layers {
                x = self.dropout(&format!("{name}.dropout_l{l}"), x, layer.dropout);
            }
        }
        x
    }

    /// One layer in one direction.
    fn direction(
        &mut self,
        name: &str,
        x: ValueId,
        layer: &RecurrentLayer,
        gates: usize,
        at: (usize, bool),
    ) -> ValueId {
        let (l, reverse) = at;
        let (h, tail) = (layer.hidden, if reverse { "_reverse" } else { "" });
        let Some(i) = self.fixed(name, x, 2) else { return x };
        let Some(rows) = self.product(name, &[gates, h]) else { return x };
        if self.product(name, &[rows, i.max(h)]).is_none() {
            return x;
        }
        let init = uniform(h);
        let mut inputs = vec![
            x,
            self.parameter(format!("{name}.weight_ih_l{l}{tail}"), &[rows, i], init),
            self.parameter(format!("{name}.weight_hh_l{l}{tail}"), &[rows, h], init),
        ];
        if layer.bias {
            inputs.push(self.parameter(format!("{name}.bias_ih_l{l}{tail}"), &[rows], init));
            inputs.push(self.parameter(format!("{name}.bias_hh_l{l}{tail}"), &[rows], init));
        }
        let settings = Recurrent {
            hidden: h,
            batch_first: layer.batch_first,
            reverse,
            bias: layer.bias,
            initial: false,
        };
        let op = if gates == 4 { Op::Lstm(settings) } else { Op::Gru(settings) };
        self.op(format!("{name}.l{l}{tail}.cells"), op, &inputs)
    }
}
