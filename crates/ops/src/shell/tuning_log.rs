//! What the tuner tried, as lines of a CSV file.

use crate::core::tuner::TunedSample;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

#[derive(Debug)]
pub(super) struct TuningLog {
    file: File,
}

impl TuningLog {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        writeln!(file, "bucket_bytes,bytes_per_sec,chosen")?;
        Ok(Self { file })
    }

    pub(super) fn note(&mut self, sample: &TunedSample) {
        let TunedSample { bucket_bytes, bytes_per_sec, chosen } = sample;
        if let Err(error) = writeln!(self.file, "{bucket_bytes},{bytes_per_sec:.0},{chosen}") {
            tracing::warn!(%error, "could not write the log of the tuning");
        }
    }
}
