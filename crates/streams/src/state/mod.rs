//! What a stream remembers over a restart of the store.
//!
//! Only [`StreamState::apply`] changes it, by one [`Fact`] at a time; the journal holds the same facts. A snapshot is
//! the state itself, encoded with serde.

mod producer;
mod reader;
mod uploads;

pub use producer::ProducerState;
pub use reader::ReaderState;
pub use uploads::{SamplePlace, Upload, Uploads};

use crate::fact::Fact;
use crate::settings::{Retention, StreamSettings};
use phalanx_types::{ProducerId, ReaderId, UploadSequence};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A fact that does not fit the state: the journal is not the one of this stream, or has a hole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FactError {
    /// A producer that was never opened.
    #[error("producer {0} is not known")]
    Producer(ProducerId),
    /// A reader that was never registered.
    #[error("reader {0} is not known")]
    Reader(ReaderId),
    /// An upload that is not there, or out of order.
    #[error("upload {found} does not follow, the next is {next}")]
    Upload {
        /// The one that was found.
        found: UploadSequence,
        /// The one that would follow.
        next: UploadSequence,
    },
    /// A pass or step that does not follow.
    #[error("reader {reader} cannot be at step {step} of pass {pass}")]
    Place {
        /// The reader.
        reader: ReaderId,
        /// The pass.
        pass: u64,
        /// The step.
        step: u64,
    },
}

/// The durable state of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamState {
    settings: StreamSettings,
    producers: BTreeMap<ProducerId, ProducerState>,
    uploads: Uploads,
    readers: BTreeMap<ReaderId, ReaderState>,
    ended: bool,
}

/// The first samples of uploads that a reader has stopped to need, to be looked at for freeing.
pub(crate) type Loose = BTreeSet<u64>;

impl StreamState {
    /// An empty stream.
    pub fn new(settings: StreamSettings) -> Self {
        Self {
            settings,
            producers: BTreeMap::new(),
            uploads: Uploads::default(),
            readers: BTreeMap::new(),
            ended: false,
        }
    }

    /// The settings of the stream.
    pub fn settings(&self) -> &StreamSettings {
        &self.settings
    }

    /// All producers, dead and closed ones included.
    pub fn producers(&self) -> &BTreeMap<ProducerId, ProducerState> {
        &self.producers
    }

    /// All uploads that are kept. What a store has beyond them after a restart, it may drop.
    pub fn uploads(&self) -> &Uploads {
        &self.uploads
    }

    /// All readers, finished ones included.
    pub fn readers(&self) -> &BTreeMap<ReaderId, ReaderState> {
        &self.readers
    }

    /// Whether no more samples will arrive.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether samples are freed when they were used.
    pub(crate) fn frees(&self) -> bool {
        self.settings.retention == Retention::Free
    }

    /// Applies one fact of the journal.
    ///
    /// # Errors
    /// The fact does not fit the facts before it.
    pub fn apply(&mut self, fact: &Fact) -> Result<(), FactError> {
        self.apply_noting(fact, &mut Loose::new())
    }

    /// The same, and notes the uploads that a reader has stopped to need.
    pub(crate) fn apply_noting(&mut self, fact: &Fact, loose: &mut Loose) -> Result<(), FactError> {
        match fact {
            Fact::ProducerOpened { producer, incarnation } => {
                self.producers.entry(producer.clone()).or_default().incarnation = *incarnation;
            }
            Fact::UploadAccepted { sequence, producer, number, samples, bytes } => {
                let next = self.uploads.next_sequence();
                let Some(known) = self.producers.get_mut(producer) else {
                    return Err(FactError::Producer(producer.clone()));
                };
                if *sequence != next || !known.accept(*number) {
                    return Err(FactError::Upload { found: *sequence, next });
                }
                let first = self.uploads.push(*samples, *bytes);
                self.upload_arrived(first, loose);
            }
            Fact::ProducerClosed { producer } => {
                let known = self.producers.get_mut(producer);
                known.ok_or_else(|| FactError::Producer(producer.clone()))?.closed = true;
            }
            Fact::StreamEnded => self.ended = true,
            Fact::ReaderRegistered { reader, incarnation, settings, start } => {
                let frees = self.frees();
                let mut state = ReaderState::new(*incarnation, settings.clone(), *start, frees);
                self.uploads.iter().for_each(|upload| state.upload_arrived(upload, &self.uploads, loose));
                loose.extend(self.uploads.iter().map(|upload| upload.first));
                self.readers.insert(reader.clone(), state);
            }
            Fact::ReaderRenewed { reader, .. }
            | Fact::Regrouped { reader, .. }
            | Fact::PassSealed { reader, .. }
            | Fact::StepsCommitted { reader, .. }
            | Fact::ReaderFinished { reader, .. } => {
                let Some(state) = self.readers.get_mut(reader) else {
                    return Err(FactError::Reader(reader.clone()));
                };
                state.apply(fact, &self.uploads, loose)?;
            }
            Fact::UploadShrunk { sequence, keep } => self.uploads.shrink(*sequence, keep.len())?,
            Fact::UploadFreed { sequence } => self.uploads.free(*sequence)?,
        }
        Ok(())
    }

    fn upload_arrived(&mut self, first: u64, loose: &mut Loose) {
        let Some(upload) = self.uploads.get(first) else { return };
        for reader in self.readers.values_mut() {
            reader.upload_arrived(upload, &self.uploads, loose);
        }
        // An upload of which no reservoir took a sample is not needed from the beginning.
        loose.insert(first);
    }

    /// Whether no reader will use a sample of the upload again. Without readers every sample waits for one.
    pub(crate) fn is_needless(&self, first: u64) -> bool {
        let mut active = self.readers.values().filter(|reader| reader.keeps_samples()).peekable();
        self.frees() && active.peek().is_some() && active.all(|reader| reader.needs_of(first) == 0)
    }

    pub(crate) fn reader(&self, id: &ReaderId) -> Option<&ReaderState> {
        self.readers.get(id)
    }
}
