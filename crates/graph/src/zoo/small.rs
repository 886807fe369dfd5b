//! Models that train in seconds.

use super::{ZooError, ZooOptions, finish, image};
use crate::{Builder, ConvLayer, Graph};

pub(super) fn digits_cnn(model: &'static str, options: &ZooOptions) -> Result<Graph, ZooError> {
    let mut b = Builder::new(model);
    let x = b.input("x", &image(model, options, [1, 8, 8])?);
    let x = b.conv2d("conv2d_1", x, ConvLayer::new(16, 3).pad(1));
    let x = b.relu(x);
    let x = b.max_pool(x, 2);
    let x = b.dropout("dropout_1", x, 0.25);
    let x = b.batch_norm("bn_1", x);
    let x = b.max_pool(x, 2);
    let x = b.conv2d("conv2d_2", x, ConvLayer::new(32, 3).pad(1));
    let x = b.relu(x);
    let x = b.max_pool(x, 2);
    let x = b.dropout("dropout_2", x, 0.25);
    let x = b.batch_norm("bn_2", x);
    let x = b.flatten(x);
    let x = b.linear("dense_1", x, 256);
    let x = b.relu(x);
    let x = b.dropout("dropout_3", x, 0.4);
    let x = b.batch_norm("bn_3", x);
    let x = b.linear("dense_2", x, options.classes.unwrap_or(10));
    let x = b.softmax(x);
    b.output(x);
    finish(model, b)
}

pub(super) fn cifar_cnn(model: &'static str, options: &ZooOptions) -> Result<Graph, ZooError> {
    let mut b = Builder::new(model);
    let mut x = b.input("x", &image(model, options, [3, 32, 32])?);
    for (name, out) in [("conv1", 32), ("conv2", 64), ("conv3", 128)] {
        x = b.conv2d(name, x, ConvLayer::new(out, 3).pad(1));
        x = b.relu(x);
        x = b.max_pool(x, 2);
    }
    x = b.dropout("dropout1", x, 0.25);
    x = b.flatten(x);
    x = b.linear("fc1", x, 256);
    x = b.relu(x);
    x = b.dropout("dropout2", x, 0.5);
    x = b.linear("fc2", x, options.classes.unwrap_or(10));
    b.output(x);
    finish(model, b)
}

pub(super) fn mlp(model: &'static str, options: &ZooOptions) -> Result<Graph, ZooError> {
    let sample = options.input.clone().unwrap_or_else(|| vec![784]);
    if sample.is_empty() || sample.contains(&0) {
        return Err(ZooError::Input { model, wanted: "one or more dimensions", got: sample });
    }
    let mut b = Builder::new(model);
    let mut x = b.input("x", &sample);
    if sample.len() > 1 {
        x = b.flatten(x);
    }
    let x = b.linear("fc1", x, 256);
    let x = b.relu(x);
    let x = b.linear("fc2", x, 128);
    let x = b.relu(x);
    let x = b.linear("fc3", x, options.classes.unwrap_or(10));
    b.output(x);
    finish(model, b)
}
