use super::FactError;
use phalanx_types::{ByteSize, UploadSequence};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a sample lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SamplePlace {
    /// The upload.
    pub sequence: UploadSequence,
    /// Which sample of the upload, as it was uploaded.
    pub sample: u32,
}

/// An upload that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Its place in the stream.
    pub sequence: UploadSequence,
    /// How many samples arrived before it.
    pub first: u64,
    /// How many samples it had when it arrived.
    pub samples: u32,
    /// How many of them are kept.
    pub kept: u32,
    /// How many bytes it had when it arrived.
    pub bytes: ByteSize,
}

impl Upload {
    /// The bytes of the samples that are kept.
    pub fn stored(&self) -> ByteSize {
        self.stored_with(self.kept)
    }

    /// The bytes if so many samples were kept.
    pub(crate) fn stored_with(&self, kept: u32) -> ByteSize {
        let bytes = u128::from(self.bytes.0) * u128::from(kept.min(self.samples));
        let bytes = bytes.div_ceil(u128::from(self.samples.max(1)));
        ByteSize(u64::try_from(bytes).unwrap_or(self.bytes.0))
    }

    /// Where its samples end.
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.samples)
    }
}

/// The uploads that are kept, in order.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uploads {
    /// By first sample.
    kept: BTreeMap<u64, Upload>,
    firsts: BTreeMap<UploadSequence, u64>,
    next: UploadSequence,
    arrived: u64,
    stored: u64,
    /// Samples before this one may be freed.
    whole_from: u64,
}

impl Uploads {
    /// The sequence number of the next upload.
    pub fn next_sequence(&self) -> UploadSequence {
        self.next
    }

    /// How many samples have arrived.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// The bytes of all samples that are kept.
    pub fn stored(&self) -> ByteSize {
        ByteSize(self.stored)
    }

    /// All samples from this one on are kept.
    pub fn whole_from(&self) -> u64 {
        self.whole_from
    }

    /// All that are kept, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Upload> {
        self.kept.values()
    }

    /// All that are kept and begin at this sample or later, in order.
    pub fn iter_from(&self, first: u64) -> impl Iterator<Item = &Upload> {
        self.kept.range(first..).map(|(_, upload)| upload)
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The upload that begins with this sample.
    pub(crate) fn get(&self, first: u64) -> Option<&Upload> {
        self.kept.get(&first)
    }

    /// The upload that has this sample, if it is kept.
    pub fn holding(&self, sample: u64) -> Option<&Upload> {
        let (_, upload) = self.kept.range(..=sample).next_back()?;
        (sample < upload.end()).then_some(upload)
    }

    /// Where a sample lies, if its upload is kept.
    pub fn place(&self, sample: u64) -> Option<SamplePlace> {
        let upload = self.holding(sample)?;
        Some(SamplePlace { sequence: upload.sequence, sample: u32::try_from(sample - upload.first).ok()? })
    }

    /// Adds an upload and returns its first sample.
    pub(super) fn push(&mut self, samples: u32, bytes: ByteSize) -> u64 {
        let (sequence, first) = (self.next, self.arrived);
        self.kept.insert(first, Upload { sequence, first, samples, kept: samples, bytes });
        self.firsts.insert(sequence, first);
        self.next = sequence.next();
        self.arrived += u64::from(samples);
        self.stored += bytes.0;
        first
    }

    pub(super) fn shrink(&mut self, sequence: UploadSequence, kept: usize) -> Result<(), FactError> {
        let missing = FactError::Upload { found: sequence, next: self.next };
        let first = self.firsts.get(&sequence).ok_or_else(|| missing.clone())?;
        let upload = self.kept.get_mut(first).ok_or(missing)?;
        let before = upload.stored();
        upload.kept = u32::try_from(kept).unwrap_or(upload.kept).min(upload.kept);
        self.stored = self.stored + upload.stored().0 - before.0;
        self.whole_from = self.whole_from.max(upload.end());
        Ok(())
    }

    pub(super) fn free(&mut self, sequence: UploadSequence) -> Result<(), FactError> {
        let missing = FactError::Upload { found: sequence, next: self.next };
        let first = self.firsts.remove(&sequence).ok_or_else(|| missing.clone())?;
        let upload = self.kept.remove(&first).ok_or(missing)?;
        self.stored -= upload.stored().0;
        self.whole_from = self.whole_from.max(upload.end());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_and_bytes_are_counted() {
        let mut uploads = Uploads::default();
        for (samples, bytes) in [(3, 30), (1, 10), (4, 41)] {
            uploads.push(samples, ByteSize(bytes));
        }
        assert_eq!((uploads.arrived(), uploads.stored()), (8, ByteSize(81)));
        let place = |sample| uploads.place(sample).map(|p| (p.sequence.0, p.sample));
        assert_eq!(
            [2, 3, 4, 7, 8].map(place),
            [Some((0, 2)), Some((1, 0)), Some((2, 0)), Some((2, 3)), None]
        );
        uploads.free(UploadSequence(1)).unwrap();
        assert_eq!((uploads.place(3), uploads.stored(), uploads.whole_from()), (None, ByteSize(71), 4));
        uploads.shrink(UploadSequence(2), 1).unwrap();
        assert_eq!((uploads.stored(), uploads.whole_from()), (ByteSize(41), 8));
        assert!(uploads.free(UploadSequence(1)).is_err() && uploads.shrink(UploadSequence(9), 0).is_err());
    }
}
