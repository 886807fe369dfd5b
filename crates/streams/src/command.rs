//! What a stream decides.

use crate::cursor::Cursor;
use crate::event::{ProducerLife, ReaderLife, TrainerLife};
use crate::fact::{Fact, ReaderEnding};
use crate::refusal::StreamRefusal;
use crate::wait::StreamWait;
use phalanx_types::{Epoch, ProducerId, ReaderId, TrainerId, UploadSequence};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// What the shell does next, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamCommand {
    /// Append to the journal. Nothing after it may be carried out before it is durable.
    Record(Fact),
    /// Send to a producer.
    TellProducer {
        /// The producer.
        producer: ProducerLife,
        /// What it is told.
        message: ToProducer,
    },
    /// Send to the process that opened or closed a reader.
    TellReader {
        /// The reader.
        reader: ReaderLife,
        /// What it is told.
        message: ToReader,
    },
    /// Send to a trainer.
    TellTrainer {
        /// The trainer.
        trainer: TrainerLife,
        /// What it is told.
        message: ToTrainer,
    },
    /// Drop the bytes of a half-written upload.
    DiscardUpload {
        /// The producer.
        producer: ProducerLife,
        /// The number of the upload.
        number: u64,
    },
    /// Drop all samples of an upload but these.
    ShrinkUpload {
        /// The upload.
        sequence: UploadSequence,
        /// Which samples of it are kept, in order.
        keep: Vec<u32>,
    },
    /// Drop an upload.
    FreeUpload {
        /// The upload.
        sequence: UploadSequence,
    },
    /// Tell the user.
    Report(StreamReport),
}

/// What a producer is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToProducer {
    /// It may upload.
    Opened {
        /// All its uploads below this number have arrived, in this life or an earlier one.
        next: u64,
        /// It had closed in an earlier life: there is nothing left to do.
        closed: bool,
    },
    /// It may send this upload; this also ends a wait.
    Admitted {
        /// The number of the upload.
        number: u64,
    },
    /// It has to wait before it sends this upload.
    Wait {
        /// The number of the upload.
        number: u64,
        /// Why.
        reason: StreamWait,
    },
    /// The upload counts.
    Acknowledged {
        /// The number of the upload.
        number: u64,
    },
    /// It has closed.
    Closed,
    /// Its last request is refused.
    Refused(StreamRefusal),
}

/// What the process that opened a reader is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToReader {
    /// Its trainers may join.
    Opened {
        /// Where it goes on; `None` before its first pass.
        cursor: Option<Cursor>,
    },
    /// It is closed.
    Closed,
    /// Its steps are committed.
    Committed {
        /// Where it stands now.
        cursor: Option<Cursor>,
    },
    /// Its last request is refused.
    Refused(StreamRefusal),
}

/// What a trainer is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToTrainer {
    /// It takes its share of the batch at this cursor; this also ends a wait. All steps before it are committed.
    Assigned(Assignment),
    /// It has to wait.
    Wait(StreamWait),
    /// The reader needs no more samples.
    Finished(ReaderEnding),
    /// Its last request is refused.
    Refused(StreamRefusal),
}

/// The share of a trainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The epoch of the group: a trainer that has begun the step in an earlier epoch begins it again.
    pub epoch: Epoch,
    /// Which of the shares is its own.
    pub rank: u32,
    /// How many trainers share every batch.
    pub ranks: u32,
    /// Which step it computes.
    pub cursor: Cursor,
}

/// What the user is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamReport {
    /// A producer is lost and has not closed.
    ProducerLost {
        /// The producer.
        producer: ProducerId,
        /// How long it had said nothing; zero if its connection broke.
        silent_for: Duration,
    },
    /// A producer that was lost is back.
    ProducerBack {
        /// The producer.
        producer: ProducerId,
    },
    /// A trainer is lost.
    TrainerLost {
        /// The reader.
        reader: ReaderId,
        /// The trainer.
        trainer: TrainerId,
        /// How long it had said nothing; zero if its connection broke.
        silent_for: Duration,
    },
    /// A reader has no trainers any more and has not finished.
    ReaderLost {
        /// The reader.
        reader: ReaderId,
    },
    /// Samples are no longer kept for a reader.
    ReaderReleased {
        /// The reader.
        reader: ReaderId,
    },
    /// A window was sealed before it was full, since the budget was.
    WindowCut {
        /// The reader.
        reader: ReaderId,
        /// The number of the window.
        pass: u64,
        /// How many samples it has.
        samples: u64,
        /// How many it should have.
        window: u64,
    },
    /// The stream has ended.
    StreamEnded {
        /// How many samples it has.
        samples: u64,
    },
}

impl fmt::Display for StreamReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let silent = |f: &mut fmt::Formatter<'_>, silent_for: &Duration| match silent_for.is_zero() {
            true => f.write_str("its connection broke"),
            false => write!(f, "it said nothing for {}", humantime::format_duration(*silent_for)),
        };
        match self {
            StreamReport::ProducerLost { producer, silent_for } => {
                write!(f, "producer {producer} is lost: ")?;
                silent(f, silent_for)
            }
            StreamReport::ProducerBack { producer } => write!(f, "producer {producer} is back"),
            StreamReport::TrainerLost { reader, trainer, silent_for } => {
                write!(f, "trainer {trainer} of {reader} is lost: ")?;
                silent(f, silent_for)
            }
            StreamReport::ReaderLost { reader } => write!(f, "reader {reader} has no trainers any more"),
            StreamReport::ReaderReleased { reader } => {
                write!(f, "reader {reader} is released: samples are no longer kept for it")
            }
            StreamReport::WindowCut { reader, pass, samples, window } => write!(
                f,
                "window {pass} of {reader} has {samples} of {window} samples: the budget holds no more"
            ),
            StreamReport::StreamEnded { samples } => write!(f, "the stream has ended with {samples} samples"),
        }
    }
}
