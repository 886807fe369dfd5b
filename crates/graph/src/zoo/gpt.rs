//! A small language model: pre-norm blocks, learned positions, an untied head.

use super::{ZooError, ZooOptions, finish};
use crate::{Builder, Graph, Init, LinearLayer, ValueId};
use phalanx_types::{DType, Tensor};

const WIDTH: usize = 256;
const HEADS: usize = 4;
const LAYERS: usize = 4;
const DROPOUT: f32 = 0.1;
const NORMAL: Init = Init::Normal { std: 0.02 };

pub(super) fn small(model: &'static str, options: &ZooOptions) -> Result<Graph, ZooError> {
    let context = match options.input.as_deref() {
        None => 128,
        Some(&[t]) if t > 0 && t <= 1 << 20 => t,
        Some(got) => {
            return Err(ZooError::Input { model, wanted: "one dimension (tokens)", got: got.to_vec() });
        }
    };
    let vocabulary = options.classes.unwrap_or(1000);
    let mut b = Builder::new(model);
    let tokens = b.tokens("tokens", context);
    let words = b.embedding_with("wte", tokens, [vocabulary, WIDTH], NORMAL);
    let positions: Vec<u8> = (0..context as i64).flat_map(i64::to_le_bytes).collect();
    let positions = Tensor::new(DType::I64, vec![context as u64], positions.into())
        .expect("as many numbers as there are positions");
    let positions = b.constant("positions", positions);
    let positions = b.embedding_with("wpe", positions, [context, WIDTH], NORMAL);
    let mut x = b.add(words, positions);
    x = b.dropout("dropout", x, DROPOUT);
    for i in 0..LAYERS {
        x = block(&mut b, &format!("blocks.{i}"), x);
    }
    x = b.layer_norm("ln_f", x);
    x = b.linear_with(
        "head",
        x,
        LinearLayer { out: vocabulary, bias: false, init: Some((NORMAL, Init::Zeros)) },
    );
    b.output(x);
    finish(model, b)
}

fn block(b: &mut Builder, name: &str, x: ValueId) -> ValueId {
    let init = Some((NORMAL, Init::Zeros));
    let y = b.layer_norm(&format!("{name}.ln1"), x);
    let y = b.self_attention_with(&format!("{name}.attn"), y, HEADS, true, init);
    let y = b.dropout(&format!("{name}.attn.dropout"), y, DROPOUT);
    let x = b.add(x, y);
    let y = b.layer_norm(&format!("{name}.ln2"), x);
    let y = b.linear_with(&format!("{name}.mlp.fc"), y, LinearLayer { out: 4 * WIDTH, bias: true, init });
    let y = b.gelu(y);
    let y = b.linear_with(&format!("{name}.mlp.proj"), y, LinearLayer { out: WIDTH, bias: true, init });
    let y = b.dropout(&format!("{name}.mlp.dropout"), y, DROPOUT);
    b.add(x, y)
}
