//! MobileNet v2 as torchvision builds it.

use super::{ZooError, ZooOptions, finish, image};
use crate::{Builder, ConvLayer, Graph, Init, LinearLayer, ValueId};

/// Expansion, channels, repeats, stride of the first.
const BLOCKS: [(usize, usize, usize, usize); 7] = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
];

pub(super) fn v2(model: &'static str, options: &ZooOptions) -> Result<Graph, ZooError> {
    let mut b = Builder::new(model);
    let x = b.input("x", &image(model, options, [3, 224, 224])?);
    let mut x = conv_bn_relu(&mut b, "features.0", x, conv(32, 3).stride(2).pad(1));
    let (mut channels, mut n) = (32, 1);
    for (expansion, out, repeats, stride) in BLOCKS {
        for i in 0..repeats {
            let block = Block { channels, expansion, out, stride: if i == 0 { stride } else { 1 } };
            x = block.build(&mut b, &format!("features.{n}"), x);
            (channels, n) = (out, n + 1);
        }
    }
    let x = conv_bn_relu(&mut b, &format!("features.{n}"), x, conv(1280, 1));
    let x = b.global_average_pool(x);
    let x = b.dropout("classifier.0", x, 0.2);
    let init = Some((Init::Normal { std: 0.01 }, Init::Zeros));
    let x = b.linear_with(
        "classifier.1",
        x,
        LinearLayer { out: options.classes.unwrap_or(1000), bias: true, init },
    );
    b.output(x);
    finish(model, b)
}

struct Block {
    channels: usize,
    expansion: usize,
    out: usize,
    stride: usize,
}

impl Block {
    fn build(&self, b: &mut Builder, name: &str, x: ValueId) -> ValueId {
        let hidden = self.channels * self.expansion;
        let (mut y, mut n) = (x, 0);
        if self.expansion != 1 {
            y = conv_bn_relu(b, &format!("{name}.conv.0"), y, conv(hidden, 1));
            n = 1;
        }
        let depthwise = conv(hidden, 3).stride(self.stride).pad(1).groups(hidden);
        y = conv_bn_relu(b, &format!("{name}.conv.{n}"), y, depthwise);
        y = b.conv2d(&format!("{name}.conv.{}", n + 1), y, conv(self.out, 1));
        y = b.batch_norm(&format!("{name}.conv.{}", n + 2), y);
        if self.stride == 1 && self.channels == self.out { b.add(x, y) } else { y }
    }
}

fn conv_bn_relu(b: &mut Builder, name: &str, x: ValueId, layer: ConvLayer) -> ValueId {
    let x = b.conv2d(&format!("{name}.0"), x, layer);
    let x = b.batch_norm(&format!("{name}.1"), x);
    b.relu6(x)
}

/// Without bias, with kaiming_normal over the outputs.
fn conv(out: usize, kernel: usize) -> ConvLayer {
    let std = (2.0 / (out * kernel * kernel) as f32).sqrt();
    ConvLayer::new(out, kernel).no_bias().init(Init::Normal { std })
}
