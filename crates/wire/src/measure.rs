//! What nodes ask each other to learn how fast they and their links are.
//!
//! All of it rides in requests and replies of the fabric, which number them.

use crate::bulk::BlobId;
use crate::detail::{Bounded, Detail};
use phalanx_types::NodeId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The service that answers.
pub const MEASURE_SERVICE: &str = "measure";

/// The longest blob that is held ready for a measurement.
pub const MAX_MEASURED_BYTES: u64 = 64 << 20;

/// A question to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMeasured {
    /// Compute for a while and say how fast you are.
    Speed,
    /// Say how fast your link to another node is, moving at most so many bytes at once.
    Link { to: NodeId, bytes: u64 },
    /// Say what you have measured since you started.
    Known,
    /// Answer at once. From the other end of a link that is measured, as are those below.
    Ping,
    /// Hold so many bytes ready to be fetched.
    Hold { bytes: u64 },
    /// They are not needed any more.
    Release { blob: BlobId },
}

/// The answer to a [`ToMeasured`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromMeasured {
    Speed(Speed),
    Link(LinkSpeed),
    Known { speed: Option<Speed>, links: Vec<LinkSpeed> },
    Pong,
    Held { blob: BlobId },
    Released,
    Refused(MeasureRefusal),
}

/// How fast a node trains.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// With all the threads that it computes with, by the clock on the wall.
    pub gflops: f32,
    pub threads: u32,
    /// How long it was measured.
    pub millis: u32,
}

/// How fast a link is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkSpeed {
    pub to: NodeId,
    pub bytes_per_s: f64,
    /// Of one way.
    pub latency_s: f64,
    /// What was moved at once when the bandwidth was measured.
    pub bytes: u64,
}

/// Why a node does not measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MeasureRefusal {
    Trains {
        driver: NodeId,
    },
    RunsJobs {
        jobs: u32,
    },
    /// It measures already, for somebody else.
    Measures,
    /// The other end of the link did not do its part.
    OtherEnd {
        node: NodeId,
        #[serde(with = "Bounded::<{ Detail::MAX }>")]
        detail: String,
    },
    /// The work to measure with could not be done.
    Failed {
        #[serde(with = "Bounded::<{ Detail::MAX }>")]
        detail: String,
    },
}

impl fmt::Display for MeasureRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeasureRefusal::Trains { driver } => write!(f, "it trains a run, that of {driver}"),
            MeasureRefusal::RunsJobs { jobs: 1 } => f.write_str("it runs a job"),
            MeasureRefusal::RunsJobs { jobs } => write!(f, "it runs {jobs} jobs"),
            MeasureRefusal::Measures => f.write_str("it measures for somebody else"),
            MeasureRefusal::OtherEnd { node, detail } => write!(f, "{node}: {detail}"),
            MeasureRefusal::Failed { detail } => f.write_str(detail),
        }
    }
}
