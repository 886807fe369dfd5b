//! A stream as a store shows it.

use crate::core::StreamOverview;
use crate::wait::StreamWait;
use phalanx_types::{ByteSize, DType, Time};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A tensor that every upload of a stream has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamField {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// The shape of one sample: the tensor's without the first dimension.
    pub sample_shape: Vec<u64>,
}

impl StreamField {
    /// The bytes of one sample; `None` if there cannot be this many.
    pub fn sample_bytes(&self) -> Option<usize> {
        let elements = self.sample_shape.iter().try_fold(1u64, |all, len| all.checked_mul(*len))?;
        usize::try_from(elements).ok()?.checked_mul(self.dtype.size())
    }
}

/// `f32 of shape [3, 8, 8]`.
impl fmt::Display for StreamField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of shape {:?}", self.dtype, self.sample_shape)
    }
}

/// Everything that there is to show of a stream of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamInfo {
    /// The name of the stream.
    pub name: String,
    /// The time of the store.
    pub at: Time,
    /// What the core of the stream knows.
    pub stream: StreamOverview,
    /// The tensors of every upload, known with the first.
    pub fields: Vec<StreamField>,
    /// When the first upload arrived since the store was started.
    pub first_upload: Option<Time>,
    /// When the last upload arrived since the store was started.
    pub last_upload: Option<Time>,
    /// How many samples have arrived since the store was started.
    pub arrived_since: u64,
    /// Datasets of the list of this name that do not count yet.
    pub pending_datasets: u64,
    /// Why the first of them does not count yet, if that is because of itself.
    pub list_wait: Option<StreamWait>,
    /// What the whole store holds.
    pub store_used: ByteSize,
    /// What the whole store may hold; 0 for no limit.
    pub store_memory: ByteSize,
    /// What of the whole store is on disk and not in memory.
    #[serde(default)]
    pub store_on_disk: ByteSize,
    /// How many values clients have read that were on disk then, since the store was started.
    #[serde(default)]
    pub read_back_values: u64,
    /// The bytes that they read of them.
    #[serde(default)]
    pub read_back: ByteSize,
    /// What happened last, the newest at the end.
    pub reports: Vec<(Time, String)>,
}

impl StreamInfo {
    /// How many samples arrived in a second: since an earlier time at which this many had arrived, or since the first
    /// upload to the running store.
    pub fn samples_per_second(&self, before: Option<(Time, u64)>) -> f64 {
        let (since, samples) = match before {
            Some((at, samples)) => (Some(at), self.stream.samples.saturating_sub(samples)),
            None => (self.first_upload, self.arrived_since),
        };
        let seconds = since.map_or(0.0, |since| self.at.since(since).as_secs_f64());
        if seconds > 0.0 { samples as f64 / seconds } else { 0.0 }
    }
}
