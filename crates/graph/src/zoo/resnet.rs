//! ResNet-18 as torchvision builds it.

use super::{ZooError, ZooOptions, finish, image};
use crate::{Builder, ConvLayer, Graph, Init, ValueId};

pub(super) fn resnet_18(model: &'static str, options: &ZooOptions) -> Result<Graph, ZooError> {
    let mut b = Builder::new(model);
    let x = b.input("x", &image(model, options, [3, 224, 224])?);
    let x = b.conv2d("conv1", x, conv(64, 7).stride(2).pad(3));
    let x = b.batch_norm("bn1", x);
    let x = b.relu(x);
    let pool = b.square(x, 3, 2, 1);
    let mut x = b.max_pool_with(x, pool);
    for (i, (out, stride)) in [(64, 1), (128, 2), (256, 2), (512, 2)].into_iter().enumerate() {
        x = block(&mut b, &format!("layer{}.0", i + 1), x, out, stride);
        x = block(&mut b, &format!("layer{}.1", i + 1), x, out, 1);
    }
    let x = b.global_average_pool(x);
    let x = b.linear("fc", x, options.classes.unwrap_or(1000));
    b.output(x);
    finish(model, b)
}

fn block(b: &mut Builder, name: &str, x: ValueId, out: usize, stride: usize) -> ValueId {
    let y = b.conv2d(&format!("{name}.conv1"), x, conv(out, 3).stride(stride).pad(1));
    let y = b.batch_norm(&format!("{name}.bn1"), y);
    let y = b.relu(y);
    let y = b.conv2d(&format!("{name}.conv2"), y, conv(out, 3).pad(1));
    let y = b.batch_norm(&format!("{name}.bn2"), y);
    let kept = if stride == 1 {
        x
    } else {
        let x = b.conv2d(&format!("{name}.downsample.0"), x, conv(out, 1).stride(stride));
        b.batch_norm(&format!("{name}.downsample.1"), x)
    };
    let y = b.add(y, kept);
    b.relu(y)
}

/// Without bias, with kaiming_normal over the outputs.
fn conv(out: usize, kernel: usize) -> ConvLayer {
    let std = (2.0 / (out * kernel * kernel) as f32).sqrt();
    ConvLayer::new(out, kernel).no_bias().init(Init::Normal { std })
}
