//! Inference: serve a model from a program, and ask for outputs.
//!
//! An [`InferenceNode`] serves models, or functions of its program, by name. An [`EdgeNode`] asks: its requests go to
//! any node that serves the model, and survive the death of nodes. [`BlockingEdgeNode`] is the same for programs
//! without a runtime. Requests that wait at a node together are computed together.
//!
//! ```no_run
//! use phalanx::infer::BlockingEdgeNode;
//! use phalanx::jobs::Parcel;
//! use phalanx::model::Tensor;
//! use phalanx::nodes::{Domain, NodeKind};
//!
//! # fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! let edge = BlockingEdgeNode::start(Domain::new("lab")?.fabric("edge", NodeKind::Edge))?;
//! let x = Tensor::from_f32(vec![1, 1, 8, 8], &[0.5; 64])?;
//! let outputs = edge.request_inference("digits", Parcel::default().with_tensor("x", x))?;
//! println!("{:?}", outputs.tensors);
//! # Ok(())
//! # }
//! ```
//! `examples/inference.rs` has both sides.

pub use phalanx_infer::{
    BlockingEdgeNode, DEFAULT_MAX_BATCH, EdgeNode, InferError, InferenceHandle, InferenceNode, InputError,
    ServeError, ServedModel, Serving,
};
