//! What the model of a run says while it is being trained, for anybody in the domain.
//!
//! ```text
//!   asker ──About────► driver of the run
//!         ──Predict──► driver ──► the replica that computes it between two steps, or its stages
//!         ◄─Outputs──
//! ```
//! Every question is a request of the fabric; samples and outputs are blobs. Nobody gathers the model for it.

mod ask;
mod error;
mod model;
mod note;

pub use ask::{Outputs, Samples, about, predict};
pub use error::LiveError;
pub use model::{LiveModel, LiveOutputs, runs};
pub use note::{LiveNote, LiveNoteFile};
pub use phalanx_wire::live::{LiveRefusal, LiveRun, MAX_LIVE_BYTES};
