//! Jobs: a main node asks, computing nodes solve, and no job is lost.
//!
//! [`MainNode`] submits jobs and hears how each ended. A [`Node`](crate::nodes::Node) solves them with [`Handlers`] of
//! its program; functions of a [`JobContext`] are handlers:
//!
//! ```
//! use phalanx::jobs::{HandlerError, Handlers, JobContext, Parcel};
//!
//! fn length(job: &JobContext) -> Result<Parcel, HandlerError> {
//!     Ok(Parcel::from_bytes(job.payload().bytes.len().to_string()))
//! }
//! let handlers = Handlers::new().with("length", length);
//! assert_eq!(handlers.kinds().next().map(|kind| kind.as_str()), Some("length"));
//! ```
//! These calls are async and need a tokio runtime; `examples/jobs.rs` has one.

pub use phalanx_jobs::{
    AskError, Asker, ComputingNode, Handler, HandlerError, Handlers, JobContext, JobEnd, JobFeed, JobHandle,
    JobRef, JobSpec, JournalError, JournalHistory, MainCounts, MainError, MainNode, MainOptions, NodeError,
    Outcome, Outcomes, PastMain, SolutionRef, Stopper, builtin, past_mains, read_journal,
};
pub use phalanx_types::{JobId, Needs, Parcel};
pub use phalanx_wire::jobs::INLINE_LIMIT;
pub use phalanx_wire::jobs::{JobAnswer, JobInfo, JobQuery, JobState};
pub use phalanx_wire::python::{self, PythonCall, PythonResult};
pub use phalanx_wire::reason::{FailReason, LostInput, Raised, WaitReason};
