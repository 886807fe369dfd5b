//! Trains models and solves jobs on many unequal machines as if they were one.
//!
//! # A model in thirty lines
//!
//! Build a model, give it two vectors, train it on three nodes of this machine, use it:
//!
//! ```
#![doc = include_str!("../examples/three_nodes.rs")]
//! ```
//!
//! # A tour
//!
//! | To | look at | example |
//! |---|---|---|
//! | build a model | [`model`] | `in_memory` |
//! | train it here, without any file | [`train()`] | `in_memory` |
//! | train with a run directory, and go on with it later | [`train::Training::run_dir`] | `run_directory` |
//! | train on nodes of this machine | [`train::Nodes::Local`] | `three_nodes` |
//! | train on the nodes of a domain | [`train::Nodes::Domain`] | `domain` |
//! | read samples from anywhere | [`data::Source`] | `own_source` |
//! | minimise something of your own | [`train::OwnLoss`] | `own_loss` |
//! | watch a run | [`records::Observer`] | `own_observer` |
//! | let a program be a node | [`nodes::Node`] | `embedded_node` |
//! | solve jobs | [`jobs::MainNode`] | `jobs` |
//! | serve models, and ask them | [`infer`] | `inference` |
//! | exchange tensors between programs | [`store`] | `tensor_store` |
//! | reduce over a group of ranks | [`collective::Group`] | `all_reduce` |
//! | find and compare runs | [`ledger`] | |
//! | keep runs elsewhere and fetch them | [`artifacts`] | |
//! | find the best models of a space | [`search`] | `search` |
//! | plan who holds which part of a model | [`plan`] | `plan_formation` |
//! | fuse the stages of a checkpoint | [`model::fuse`] | `fuse` |
//!
//! The examples are in `examples/` of this crate: `cargo run -p phalanx --example three_nodes`.
//!
//! # How the pieces fit
//!
//! ```text
//!   Training ──► train() ──► Trained: predictions, evaluation, weights, files
//!      ├─ a model         model::Builder, ONNX, safetensors, the zoo
//!      ├─ data            two vectors, files, or a Source of your own
//!      ├─ a RunConfig     everything a run file says, with defaults and one validate()
//!      ├─ Nodes           this process, nodes of this machine, nodes of a domain
//!      └─ an Observer     told everything that happens, as values that can be kept and sent
//! ```
//! A run in this process without a directory writes nothing. Results follow from the seed: the number of threads
//! cannot be seen in them, and a run with a directory has the same bits as one without.
//!
//! The `phalanx` program is this library with arguments, tables and progress around it. A run directory that a program
//! makes can be read, resumed and fused with it, and the other way round.

#![warn(missing_docs)]

pub mod artifacts;
pub mod collective;
pub mod data;
mod error;
pub mod infer;
pub mod jobs;
pub mod ledger;
pub mod model;
pub mod nodes;
pub mod plan;
pub mod records;
pub mod search;
pub mod store;
pub mod train;

pub use data::Dataset;
pub use error::Error;
pub use train::{Nodes, Trained, Training, train};
