//! Models: graphs of operators over named parameters, with import, export and cost.
//!
//! ```text
//! ONNX · TOML layers · zoo · builder  ──►  Graph (+ Weights)  ──►  engine
//!                                             │
//!                                             ├─► cost, cuts into stages
//!                                             └─► ONNX, safetensors
//! ```
//! A graph knows shapes and names, but not how it is computed.

mod build;
mod cost;
mod cut;
mod graph;
mod infer;
mod init;
pub mod layers;
pub mod onnx;
mod op;
mod regular;
mod shape;
pub mod weights;
pub mod zoo;

pub use build::{BuildError, Builder, ConvLayer, LinearLayer, RecurrentLayer};
pub use cost::{Cost, NodeCost};
pub use cut::{CutError, CutPoint};
pub use graph::{Graph, Init, Node, Value, ValueId, ValueKind, Weights};
pub use infer::InferError;
pub use op::{
    Binary, Compare, Conv, ConvTranspose, Coordinates, Op, PadMode, Pool, Range, Recurrent, Reduce, Resize,
    ResizeMode, Unary,
};
pub use shape::{Count, Dim, Shape};
