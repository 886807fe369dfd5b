//! What the journal holds of streams, and how they are rebuilt of it.

use super::super::change::Change;
use super::super::keyspace::Keyspace;
use super::uploads::StoredUpload;
use super::{Machine, StreamEntry, Streams};
use bytes::Bytes;
use phalanx_streams::{Fact, FactError, StreamField, StreamSettings, StreamState};
use phalanx_types::UploadSequence;
use serde::{Deserialize, Serialize};

/// One record of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum StreamRecord {
    /// The stream is there, empty.
    Created(StreamSettings),
    /// Its state changed.
    Fact(Fact),
    /// The samples of the next upload to be accepted lie under keys that begin so.
    Stored { sequence: UploadSequence, base: Vec<u8> },
    /// Every upload has these tensors.
    Fields(Vec<StreamField>),
    /// The whole state, in a snapshot.
    State(Box<StreamState>),
    /// Samples of an upload in a snapshot of which some were dropped.
    Kept { sequence: UploadSequence, rows: Vec<u32> },
    /// The stream is gone.
    Deleted,
}

/// Why a record of a stream cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamRecordError {
    /// The bytes are none.
    #[error("a record of a stream cannot be decoded")]
    Undecodable,
    /// The stream was never made.
    #[error("a record of a stream that was not made")]
    Unknown,
    /// The record does not fit those before it.
    #[error("a record of a stream does not follow those before it")]
    Fact(#[source] FactError),
}

impl StreamRecord {
    pub(crate) fn change(&self, name: &Bytes) -> Option<Change> {
        let record = postcard::to_allocvec(self).ok()?;
        Some(Change::Stream { name: name.clone(), record: record.into() })
    }
}

impl Streams {
    /// Applies one record.
    ///
    /// # Errors
    /// It is none, or does not follow those before it.
    pub(crate) fn apply(&mut self, name: &Bytes, record: &[u8]) -> Result<(), StreamRecordError> {
        let record = postcard::from_bytes(record).ok().ok_or(StreamRecordError::Undecodable)?;
        self.asleep = true;
        match record {
            StreamRecord::Created(settings) => {
                let entry = StreamEntry::new(Machine::Asleep(StreamState::new(settings)));
                self.entries.insert(name.clone(), entry);
                return Ok(());
            }
            StreamRecord::State(state) => {
                self.entries.insert(name.clone(), StreamEntry::new(Machine::Asleep(*state)));
                return Ok(());
            }
            StreamRecord::Deleted => {
                self.entries.remove(name);
                return Ok(());
            }
            StreamRecord::Fact(_)
            | StreamRecord::Stored { .. }
            | StreamRecord::Fields(_)
            | StreamRecord::Kept { .. } => {}
        }
        let entry = self.entries.get_mut(name).ok_or(StreamRecordError::Unknown)?;
        match record {
            StreamRecord::Fact(fact) => entry.apply(&fact),
            StreamRecord::Stored { sequence, base } => {
                entry.remember(sequence, base.into());
                Ok(())
            }
            StreamRecord::Kept { sequence, rows } => {
                if let Some(upload) = entry.stored.get_mut(&sequence) {
                    upload.rows = Some(rows);
                }
                Ok(())
            }
            StreamRecord::Fields(fields) => {
                entry.fields = fields;
                Ok(())
            }
            StreamRecord::Created(_) | StreamRecord::State(_) | StreamRecord::Deleted => Ok(()),
        }
    }

    /// Records that rebuild all streams.
    pub(crate) fn snapshot(&self) -> impl Iterator<Item = Change> {
        self.entries.iter().flat_map(|(name, entry)| {
            let state = StreamRecord::State(Box::new(entry.state().clone()));
            let fields = StreamRecord::Fields(entry.fields.clone());
            let uploads = entry.stored.iter().flat_map(|(sequence, upload)| {
                let sequence = *sequence;
                let stored = StreamRecord::Stored { sequence, base: upload.base.to_vec() };
                let kept = upload.rows.clone().map(|rows| StreamRecord::Kept { sequence, rows });
                std::iter::once(stored).chain(kept)
            });
            [state, fields].into_iter().chain(uploads).filter_map(|record| record.change(name))
        })
    }
}

impl StreamEntry {
    pub(super) fn remember(&mut self, sequence: UploadSequence, base: Bytes) {
        self.bases.insert(base.clone());
        self.stored.insert(sequence, StoredUpload { base, rows: None });
    }

    pub(super) fn forget(&mut self, sequence: UploadSequence) -> Option<StoredUpload> {
        let upload = self.stored.remove(&sequence)?;
        self.bases.remove(&upload.base);
        Some(upload)
    }

    fn apply(&mut self, fact: &Fact) -> Result<(), StreamRecordError> {
        match fact {
            Fact::UploadFreed { sequence } => drop(self.forget(*sequence)),
            Fact::UploadShrunk { sequence, keep } => {
                if let Some(upload) = self.stored.get_mut(sequence) {
                    upload.rows = Some(keep.clone());
                }
            }
            _ => {}
        }
        match &mut self.machine {
            Machine::Asleep(state) => state.apply(fact).map_err(StreamRecordError::Fact),
            // Records are applied before the store serves clients.
            Machine::Awake(_) => Err(StreamRecordError::Unknown),
        }
    }
}

impl Keyspace {
    /// Notes a record of a stream for the journal.
    pub(crate) fn record_stream(&mut self, name: &Bytes, record: &StreamRecord) {
        self.database.record(|| {
            record.change(name).unwrap_or(Change::Stream { name: name.clone(), record: Bytes::new() })
        });
    }

    /// Records that rebuild all streams, for a snapshot.
    pub fn stream_changes(&self) -> Vec<Change> {
        self.streams.snapshot().collect()
    }
}
