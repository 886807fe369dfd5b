//! What somebody asks the driver of a run to learn what its model says while it is being trained.
//!
//! All of it rides in requests and replies of the fabric, which number them. Samples and outputs are blobs.

use crate::bulk::BlobId;
use crate::detail::Detail;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The service that answers.
pub const LIVE_SERVICE: &str = "live";

/// The most bytes of samples, and of outputs, of one question.
pub const MAX_LIVE_BYTES: u64 = 64 << 20;

/// A question to a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToLive {
    /// Say which run it is.
    About,
    /// Say what the model makes of these samples, within so many milliseconds.
    Predict { samples: LiveSamples, wait_ms: u32 },
    /// Outputs were fetched; they need not be held any longer.
    Taken { blob: BlobId },
}

/// Samples as the model takes them, which the asker holds: 32-bit floats, little-endian.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveSamples {
    pub count: u32,
    /// How many are computed at once.
    pub batch: u32,
    pub bytes: u64,
    pub blob: BlobId,
}

/// The answer to a [`ToLive`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromLive {
    About(LiveRun),
    Outputs(LiveOutputs),
    Released,
    Refused(LiveRefusal),
}

/// A run that is being trained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRun {
    /// The resolved run file.
    pub config: String,
    /// What the outputs of the model stand for, if the run has names for that.
    pub classes: Option<Vec<String>>,
    /// Where the driver keeps it.
    pub dir: String,
}

/// What the model made of samples; the driver holds it: 32-bit floats, little-endian.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveOutputs {
    /// Steps that the model had behind it.
    pub step: u64,
    /// Of all outputs together.
    pub shape: Vec<u64>,
    pub bytes: u64,
    pub blob: BlobId,
}

/// Why a driver does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LiveRefusal {
    /// The run has ended.
    Over,
    /// Nobody computed it in time: there is no group, or its steps take long.
    Late { wait_ms: u32 },
    /// Samples have another size.
    Size { want: u64, got: u64 },
    /// More than [`MAX_LIVE_BYTES`].
    TooMuch { bytes: u64 },
    /// The samples could not be fetched, or the model cannot compute them.
    Failed { detail: Detail },
}

impl fmt::Display for LiveRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveRefusal::Over => f.write_str("the run has ended"),
            LiveRefusal::Late { wait_ms } => write!(f, "nobody has computed it within {wait_ms} ms"),
            LiveRefusal::Size { want, got } => write!(f, "samples have {got} bytes, the model takes {want}"),
            LiveRefusal::TooMuch { bytes } => {
                write!(f, "{bytes} bytes at once are more than {MAX_LIVE_BYTES}")
            }
            LiveRefusal::Failed { detail } => f.write_str(detail),
        }
    }
}
