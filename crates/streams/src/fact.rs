//! What a journal of a stream holds.
//!
//! Facts are the only way in which the durable state changes: a state that applies the facts of another, in order, is
//! equal to it.

use crate::cursor::Cursor;
use crate::settings::ReaderSettings;
use phalanx_types::{ByteSize, Epoch, Incarnation, ProducerId, ReaderId, UploadSequence};
use serde::{Deserialize, Serialize};

/// One change of the durable state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// A producer is known, in this incarnation.
    ProducerOpened {
        /// The producer.
        producer: ProducerId,
        /// Which of its lives.
        incarnation: Incarnation,
    },
    /// An upload counts: it has its place in the stream.
    UploadAccepted {
        /// Its place.
        sequence: UploadSequence,
        /// The producer.
        producer: ProducerId,
        /// The number that the producer gave it.
        number: u64,
        /// How many samples it has.
        samples: u32,
        /// How many bytes they take.
        bytes: ByteSize,
    },
    /// A producer has no more samples.
    ProducerClosed {
        /// The producer.
        producer: ProducerId,
    },
    /// No more samples will arrive.
    StreamEnded,
    /// A reader is registered.
    ReaderRegistered {
        /// The reader.
        reader: ReaderId,
        /// Which of its lives.
        incarnation: Incarnation,
        /// How it uses the samples.
        settings: ReaderSettings,
        /// The first sample it will use.
        start: u64,
    },
    /// A registered reader begins a new life.
    ReaderRenewed {
        /// The reader.
        reader: ReaderId,
        /// Which of its lives.
        incarnation: Incarnation,
        /// Where it goes on if not after the last committed step.
        rewind: Option<Cursor>,
    },
    /// The trainers of a reader form a new group.
    Regrouped {
        /// The reader.
        reader: ReaderId,
        /// The epoch of the group.
        epoch: Epoch,
    },
    /// A pass of a reader begins.
    PassSealed {
        /// The reader.
        reader: ReaderId,
        /// The number of the pass.
        pass: u64,
        /// Its first sample.
        base: u64,
        /// Where it ends.
        horizon: u64,
    },
    /// Steps of the current pass happened.
    StepsCommitted {
        /// The reader.
        reader: ReaderId,
        /// How many steps of the pass are committed now.
        steps: u64,
    },
    /// A reader has used all it wanted.
    ReaderFinished {
        /// The reader.
        reader: ReaderId,
        /// Why.
        ending: ReaderEnding,
    },
    /// Samples of an upload are needed by no reader any more.
    UploadShrunk {
        /// The upload.
        sequence: UploadSequence,
        /// Which samples of it are kept, in order.
        keep: Vec<u32>,
    },
    /// An upload is needed by no reader any more.
    UploadFreed {
        /// The upload.
        sequence: UploadSequence,
    },
}

/// Why a reader needs no more samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReaderEnding {
    /// It has made as many passes as it was to make.
    PassesDone,
    /// The stream has ended and every sample was used.
    StreamUsed,
    /// The stream has ended with too few samples for a step.
    TooFewSamples {
        /// How many there are.
        arrived: u64,
    },
    /// It said that it needs no more.
    Closed,
    /// It was away for too long, or the user gave it up.
    Released,
}
