//! Models: build one, find one, load a trained one, fuse a checkpoint, save.
//!
//! ```
//! use phalanx::model::{Builder, ConvLayer};
//!
//! let mut b = Builder::new("tiny");
//! let x = b.input("x", &[1, 8, 8]);
//! let x = b.conv2d("conv", x, ConvLayer::new(16, 3).pad(1));
//! let x = b.relu(x);
//! let x = b.flatten(x);
//! let x = b.linear("fc", x, 10);
//! b.output(x);
//! let graph = b.finish()?;
//! assert_eq!(graph.cost().parameters, 16 * 9 + 16 + 16 * 64 * 10 + 10);
//! # Ok::<(), phalanx::model::BuildError>(())
//! ```
//! Models also come from ONNX files and lists of layers ([`find_model`]) and from the [`zoo`]. What has been trained is
//! a [`TrainedModel`]: of a run directory, a checkpoint, or files ([`TrainedModel::load`]).

pub use phalanx_graph::{
    BuildError, Builder, ConvLayer, Cost, Graph, Init, LinearLayer, Op, RecurrentLayer, Shape, ValueId,
    Weights, onnx, weights, zoo,
};
pub use phalanx_train::config::{ModelConfig, ModelFrom};
pub use phalanx_train::{
    Compute, Found, FuseError, Fused, LoadOptions, ModelError, TrainedModel, TrainedModelError, find_model,
    fuse, load_model,
};
pub use phalanx_types::{DType, Seed, Tensor};
