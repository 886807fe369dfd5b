//! A model as a list of layers in a TOML file.
//!
//! ```toml
//! name = "cnn"
//! input = [1, 8, 8]        # the shape of one sample; or: tokens = 128
//!
//! [[layer]]
//! type = "conv2d"
//! name = "conv1"           # else <type>_<number>
//! out = 16
//! kernel = 3
//! padding = "same"
//! activation = "relu"
//!
//! [[layer]]
//! type = "flatten"
//!
//! [[layer]]
//! type = "linear"
//! out = 10
//! Every layer takes the output of the layer before it, or of the layer named in `input`. It may have a `name`, and an
//! `activation` at its end. Defaults are in parentheses.
//! `activation` at its end. In brackets: what is used when a key is absent.
//!
//! | `type` | keys |
//! |---|---|
//! | `conv1d`, `conv2d` | `out`, `kernel`, `stride` (1), `padding` (0, or `"same"`), `dilation` (1), `groups` (1), `bias` (true) |
//! | `linear` | `out`, `bias` (true) |
//! | `embedding` | `rows`, `width` |
//! | `batch_norm` | `eps` (1e-5), `momentum` (0.1) |
//! | `layer_norm` | `eps` (1e-5) |
//! | `group_norm` | `groups`, `eps` (1e-5) |
//! | `max_pool`, `avg_pool` | `kernel`, `stride` (kernel), `padding` (0) |
//! | `global_avg_pool`, `flatten` | |
//! | `dropout` | `ratio` (0.5) |
//! | `lstm`, `gru` | `hidden`, `layers` (1), `bidirectional` (false), `dropout` (0), `last` (false: the whole sequence) |
//! | `attention` | `heads`, `causal` (false) |
//! | `residual` | `from`: the layer whose result is added |
//! | `reshape` | `shape` of a sample |
//! | `transpose` | `order` of all dimensions, the batch being 0 |
//! | `relu`, `relu6`, `leaky_relu`, `elu`, `gelu`, `silu`, `sigmoid`, `tanh`, `softplus`, `hard_swish`, `hard_sigmoid`, `softmax`, `log_softmax` | |

mod keys;

use crate::{
    BuildError, Builder, ConvLayer, Graph, InferError, LinearLayer, Op, RecurrentLayer, Unary, ValueId,
};
use keys::Keys;
use phalanx_types::nearest;
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// Why a file is not a list of layers.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LayersError {
    #[error("line {line}: {message}")]
    Syntax { line: usize, message: String },
    #[error("line {line}: there is no key `{key}` in {place}{}", hint(nearest))]
    UnknownKey { line: usize, key: String, place: String, nearest: Option<String> },
    #[error("line {line}: there is no layer type `{word}`{}", hint(nearest))]
    UnknownType { line: usize, word: String, nearest: Option<String> },
    #[error("line {line}: there is no activation `{word}`{}", hint(nearest))]
    UnknownActivation { line: usize, word: String, nearest: Option<String> },
    #[error("line {line}: {place} needs the key `{key}`")]
    Missing { line: usize, key: &'static str, place: String },
    #[error("line {line}: `{key}` must be {wanted}")]
    Value { line: usize, key: String, wanted: &'static str },
    #[error("line {line}: no layer before this one is called `{name}`{}", hint(nearest))]
    UnknownLayer { line: usize, name: String, nearest: Option<String> },
    #[error("line {line}: this layer cannot be built")]
    Build {
        line: usize,
        #[source]
        source: BuildError,
    },
}

fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!("; did you mean `{n}`?")).unwrap_or_default()
}

/// The most layers of a file.
const MOST_LAYERS: usize = 10_000;
/// The most recurrent layers in a stack.
const MOST_STACKED: usize = 64;

const ACTIVATIONS: [&str; 13] = [
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "softplus",
    "hard_swish",
    "hard_sigmoid",
    "softmax",
    "log_softmax",
];

/// The keys of each type, beside `type`, `name`, `input` and `activation`.
const TYPES: [(&str, &[&str]); 18] = [
    ("conv1d", &["out", "kernel", "stride", "padding", "dilation", "groups", "bias"]),
    ("conv2d", &["out", "kernel", "stride", "padding", "dilation", "groups", "bias"]),
    ("linear", &["out", "bias"]),
    ("embedding", &["rows", "width"]),
    ("batch_norm", &["eps", "momentum"]),
    ("layer_norm", &["eps"]),
    ("group_norm", &["groups", "eps"]),
    ("max_pool", &["kernel", "stride", "padding"]),
    ("avg_pool", &["kernel", "stride", "padding"]),
    ("global_avg_pool", &[]),
    ("flatten", &[]),
    ("dropout", &["ratio"]),
    ("lstm", &["hidden", "layers", "bidirectional", "dropout", "last"]),
    ("gru", &["hidden", "layers", "bidirectional", "dropout", "last"]),
    ("attention", &["heads", "causal"]),
    ("residual", &["from"]),
    ("reshape", &["shape"]),
    ("transpose", &["order"]),
];

/// Reads a model from the text of a TOML file.
///
/// # Errors
/// The first error, with its line.
pub fn parse(text: &str) -> Result<Graph, LayersError> {
    let line_of = |at: usize| 1 + text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count();
    let table = DeTable::parse(text).map_err(|e| LayersError::Syntax {
        line: line_of(e.span().map_or(0, |s| s.start)),
        message: e.message().to_owned(),
    })?;
    let file = Keys::new(table.get_ref(), text, 1, "the file");
    file.only(&["name", "input", "tokens", "layer"])?;
    let mut b = Builder::new(file.text("name")?.unwrap_or("model"));
    let x = match (file.sizes("input")?, file.size("tokens")?) {
        (Some(sample), None) => b.input("x", &sample),
        (None, Some(length)) => b.tokens("tokens", length),
        (Some(_), Some(_)) => return Err(file.value("tokens", "absent where there is an `input`")),
        (None, None) => return Err(file.missing("input")),
    };
    if b.failure().is_some() {
        let key = if file.get("input").is_some() { "input" } else { "tokens" };
        return Err(file.value(key, "smaller: a sample has more elements than can be computed"));
    }
    let Some(DeValue::Array(layers)) = file.get("layer").map(|v| v.get_ref()) else {
        return Err(file.missing("layer"));
    };
    if layers.len() > MOST_LAYERS {
        return Err(file.value("layer", "at most 10000 layers"));
    }
    let mut model = Model { b, made: BTreeMap::from([("x".to_owned(), x)]), x };
    for layer in layers {
        let line = line_of(layer.span().start);
        let DeValue::Table(table) = layer.get_ref() else {
            return Err(file.value("layer", "a list of tables"));
        };
        model.layer(&Keys::new(table, text, line, "this layer"))?;
    }
    let (mut b, x) = (model.b, model.x);
    b.output(x);
    b.finish().map_err(|source| LayersError::Build { line: 1, source })
}

struct Model {
    b: Builder,
    /// The outputs of layers, by name.
    made: BTreeMap<String, ValueId>,
    x: ValueId,
}

impl Model {
    fn layer(&mut self, keys: &Keys<'_>) -> Result<(), LayersError> {
        let kind = keys.need_text("type")?;
        let known = TYPES.iter().map(|(t, _)| *t).chain(ACTIVATIONS);
        let Some(kind) = known.clone().find(|t| *t == kind) else {
            let nearest = nearest(kind, known).map(str::to_owned);
            return Err(LayersError::UnknownType { line: keys.line_of("type"), word: kind.into(), nearest });
        };
        let own = TYPES.iter().find(|(t, _)| *t == kind).map_or(&[][..], |(_, k)| k);
        keys.only(&[&["type", "name", "input", "activation"], own].concat())?;
        let name = match keys.text("name")? {
            Some(name) => name.to_owned(),
            None => self.b.fresh(kind),
        };
        let x = match keys.text("input")? {
            Some(from) => self.find(keys, "input", from)?,
            None => self.x,
        };
        let mut y = match kind {
            "conv1d" | "conv2d" | "linear" | "embedding" | "lstm" | "gru" | "attention" => {
                self.weighted(kind, &name, x, keys)?
            }
            "batch_norm" | "layer_norm" | "group_norm" | "dropout" => self.norm(kind, &name, x, keys)?,
            "max_pool" | "avg_pool" => {
                let kernel = keys.need_size("kernel")?;
                let stride = keys.size("stride")?.unwrap_or(kernel);
                let pool = self.b.square(x, kernel, stride, keys.size("padding")?.unwrap_or(0));
                if kind == "max_pool" { self.b.max_pool_with(x, pool) } else { self.b.average_pool(x, pool) }
            }
            "global_avg_pool" => self.b.global_average_pool(x),
            "flatten" => self.b.flatten(x),
            "residual" => {
                let other = self.find(keys, "from", keys.need_text("from")?)?;
                self.b.add(x, other)
            }
            "reshape" => {
                let sample = keys.sizes("shape")?.ok_or_else(|| keys.missing("shape"))?;
                self.b.reshape(x, &sample)
            }
            "transpose" => {
                let order = keys.sizes("order")?.ok_or_else(|| keys.missing("order"))?;
                self.b.transpose(x, &order)
            }
            activation => self.activation(activation, x),
        };
        if let Some(word) = keys.text("activation")? {
            let Some(word) = ACTIVATIONS.into_iter().find(|a| *a == word) else {
                let nearest = nearest(word, ACTIVATIONS).map(str::to_owned);
                let line = keys.line_of("activation");
                return Err(LayersError::UnknownActivation { line, word: word.into(), nearest });
            };
            y = self.activation(word, y);
        }
        if let Some(source) = self.b.failure() {
            return Err(build_error(keys, source));
        }
        self.made.insert(name, y);
        self.x = y;
        Ok(())
    }

    fn find(&self, keys: &Keys<'_>, key: &str, name: &str) -> Result<ValueId, LayersError> {
        self.made.get(name).copied().ok_or_else(|| LayersError::UnknownLayer {
            line: keys.line_of(key),
            name: name.into(),
            nearest: nearest(name, self.made.keys().map(String::as_str)).map(str::to_owned),
        })
    }

    fn weighted(
        &mut self,
        kind: &str,
        name: &str,
        x: ValueId,
        keys: &Keys<'_>,
    ) -> Result<ValueId, LayersError> {
        Ok(match kind {
            "conv1d" | "conv2d" => {
                let layer = conv(keys, if kind == "conv1d" { 1 } else { 2 })?;
                if kind == "conv1d" { self.b.conv1d(name, x, layer) } else { self.b.conv2d(name, x, layer) }
            }
            "linear" => {
                let layer = LinearLayer {
                    out: keys.need_size("out")?,
                    bias: keys.flag("bias")?.unwrap_or(true),
                    init: None,
                };
                self.b.linear_with(name, x, layer)
            }
            "embedding" => self.b.embedding(name, x, keys.need_size("rows")?, keys.need_size("width")?),
            "attention" => self.b.self_attention(
                name,
                x,
                keys.need_size("heads")?,
                keys.flag("causal")?.unwrap_or(false),
            ),
            _ => {
                let layer = RecurrentLayer {
                    layers: stacked(keys)?,
                    bidirectional: keys.flag("bidirectional")?.unwrap_or(false),
                    dropout: keys.ratio("dropout")?.unwrap_or(0.0),
                    ..RecurrentLayer::new(keys.need_size("hidden")?)
                };
                let y =
                    if kind == "lstm" { self.b.lstm(name, x, &layer) } else { self.b.gru(name, x, &layer) };
                if keys.flag("last")?.unwrap_or(false) { self.last(y) } else { y }
            }
        })
    }

    /// The last step of a sequence.
    fn last(&mut self, y: ValueId) -> ValueId {
        let shape = self.b.shape(y);
        let (Some(t), Some(width)) =
            (shape.dims().get(1).and_then(|d| d.fixed()), shape.dims().get(2).and_then(|d| d.fixed()))
        else {
            return y;
        };
        let y = self.b.slice(y, 1, t.saturating_sub(1), 1);
        self.b.reshape(y, &[width])
    }

    fn norm(&mut self, kind: &str, name: &str, x: ValueId, keys: &Keys<'_>) -> Result<ValueId, LayersError> {
        let eps = keys.number("eps")?.unwrap_or(1e-5);
        Ok(match kind {
            "batch_norm" => self.b.batch_norm_with(name, x, eps, keys.ratio("momentum")?.unwrap_or(0.1)),
            "layer_norm" => self.b.layer_norm_with(name, x, eps),
            "group_norm" => self.b.group_norm(name, x, keys.need_size("groups")?, eps),
            _ => self.b.dropout(name, x, keys.ratio("ratio")?.unwrap_or(0.5)),
        })
    }

    fn activation(&mut self, word: &str, x: ValueId) -> ValueId {
        let op = match word {
            "relu" => Unary::Relu,
            "relu6" => Unary::Clip { min: 0.0, max: 6.0 },
            "leaky_relu" => Unary::LeakyRelu { slope: 0.01 },
            "elu" => Unary::Elu { alpha: 1.0 },
            "gelu" => Unary::Gelu { tanh: false },
            "silu" => Unary::Silu,
            "sigmoid" => Unary::Sigmoid,
            "tanh" => Unary::Tanh,
            "softplus" => Unary::Softplus,
            "hard_swish" => Unary::HardSwish,
            "hard_sigmoid" => Unary::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 },
            "log_softmax" => {
                let axis = self.b.shape(x).rank().saturating_sub(1);
                let name = self.b.fresh("log_softmax");
                return self.b.op(name, Op::LogSoftmax { axis }, &[x]);
            }
            _ => return self.b.softmax(x),
        };
        self.b.unary(x, op)
    }
}

/// How many recurrent layers are stacked.
fn stacked(keys: &Keys<'_>) -> Result<usize, LayersError> {
    let layers = keys.size("layers")?.unwrap_or(1);
    if (1..=MOST_STACKED).contains(&layers) { Ok(layers) } else { Err(keys.value("layers", "from 1 to 64")) }
}

/// Converts an error of the builder; a layer that is too large is reported with one of its sizes.
fn build_error(keys: &Keys<'_>, source: &BuildError) -> LayersError {
    let sized = ["out", "hidden", "rows", "shape"].into_iter().find(|k| keys.get(k).is_some());
    match (source, sized) {
        (BuildError::TooLarge { .. } | BuildError::Infer(InferError::Large { .. }), Some(key)) => {
            keys.value(key, "smaller: the layer is larger than anything that can be trained")
        }
        _ => LayersError::Build { line: keys.line, source: source.clone() },
    }
}

fn conv(keys: &Keys<'_>, dims: usize) -> Result<ConvLayer, LayersError> {
    let each = |key: &'static str, usual: usize| {
        let sizes = keys.one_or_more(key)?.unwrap_or_else(|| vec![usual]);
        if sizes.len() == 1 || sizes.len() == dims {
            Ok(sizes)
        } else {
            Err(keys.value(key, "one number per dimension"))
        }
    };
    if keys.get("kernel").is_none() {
        return Err(keys.missing("kernel"));
    }
    let (kernel, dilation, stride) = (each("kernel", 1)?, each("dilation", 1)?, each("stride", 1)?);
    let pad = if keys.get("padding").is_some_and(|v| v.get_ref().as_str() == Some("same")) {
        let one = |all: &[usize], i: usize| all.get(i).or(all.first()).copied().unwrap_or(1);
        let total = |i: usize| (one(&kernel, i).saturating_sub(1)).saturating_mul(one(&dilation, i));
        (0..dims).map(|i| (total(i) / 2, total(i) - total(i) / 2)).collect()
    } else {
        each("padding", 0)?.into_iter().map(|p| (p, p)).collect()
    };
    Ok(ConvLayer {
        out: keys.need_size("out")?,
        kernel,
        stride,
        dilation,
        pad,
        groups: keys.size("groups")?.unwrap_or(1),
        bias: keys.flag("bias")?.unwrap_or(true),
        init: None,
    })
}

#[cfg(test)]
mod tests;
