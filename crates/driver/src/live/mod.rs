//! Live queries: any node of the domain can compute with the model of a run while it is being trained.
//!
//! ```text
//!   client ─About────► driver of the run
//!         ──Predict──► driver ──► the replica that computes it between two steps, or its stages
//!         ◄─Outputs──
//! ```
//! Every query is a request of the fabric; samples and outputs are blobs. The model stays where it is trained.

mod ask;
mod error;
mod model;
mod note;

pub use ask::{Outputs, Samples, about, predict};
pub use error::LiveError;
pub use model::{LiveModel, LiveOutputs, runs};
pub use note::{LiveNote, LiveNoteFile};
pub use phalanx_wire::live::{LiveRefusal, LiveRun, MAX_LIVE_BYTES};
