//! Inference: requests are jobs, and every served model is a kind of job.
//!
//! A node that serves a model says so by the kind among those it handles, so requests go only to such nodes.
//! The payload of a request holds the inputs, the solution the outputs: both are parcels with a tensor for each, the
//! first axis of which is that of samples. Models that are functions of a program may use the bytes of the parcel.

use smol_str::{SmolStr, format_smolstr};

/// What the kind of a request begins with; the name of the model follows.
pub const KIND_PREFIX: &str = "infer:";

/// The kind of the requests to a model.
pub fn job_kind(model: &str) -> SmolStr {
    format_smolstr!("{KIND_PREFIX}{model}")
}

/// The model that requests of this kind are for, if they are requests.
pub fn model_of(kind: &str) -> Option<&str> {
    kind.strip_prefix(KIND_PREFIX)
}
