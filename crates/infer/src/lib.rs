//! Inference: nodes that serve models, and nodes that ask them.
//!
//! ```text
//!   EdgeNode ── request: a job of kind infer:NAME ──► any InferenceNode that serves NAME
//!                                                        └ Serving: a ServedModel or a function for each name
//! ```
//! Requests are jobs, so they go to whichever node has room, survive the death of nodes and are answered once.
//! Requests that wait at a node together are computed together: [`phalanx_jobs`] gathers them, [`ServedModel`] joins
//! their samples, computes once and cuts the outputs apart.

mod blocking;
mod edge;
mod error;
mod inference_node;
mod input;
mod served;
mod stored_models;

pub use blocking::BlockingEdgeNode;
pub use edge::{EdgeNode, InferenceHandle};
pub use error::{InferError, ServeError};
pub use inference_node::{InferenceNode, Serving};
pub use input::InputError;
pub use served::{DEFAULT_MAX_BATCH, ServedModel};
pub use stored_models::StoredModels;
