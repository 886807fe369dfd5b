//! What a stream is told.

use crate::cursor::Cursor;
use crate::settings::ReaderSettings;
use phalanx_types::{ByteSize, Epoch, Incarnation, ProducerId, ReaderId, TrainerId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One life of a producer. A higher incarnation fences every lower one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProducerLife {
    /// The producer.
    pub id: ProducerId,
    /// Which of its lives.
    pub incarnation: Incarnation,
}

/// One life of a reader, which is a training run. A higher incarnation fences every lower one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReaderLife {
    /// The reader.
    pub id: ReaderId,
    /// Which of its lives.
    pub incarnation: Incarnation,
}

/// One life of a trainer in one life of its reader. A higher incarnation fences every lower one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrainerLife {
    /// The life of the reader that it trains for.
    pub reader: ReaderLife,
    /// The trainer.
    pub id: TrainerId,
    /// Which of its lives.
    pub incarnation: Incarnation,
}

impl fmt::Display for ProducerLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.id, self.incarnation.0)
    }
}

impl fmt::Display for ReaderLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.id, self.incarnation.0)
    }
}

impl fmt::Display for TrainerLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.reader, self.id, self.incarnation.0)
    }
}

/// What happened. Every request of a client may be repeated: it has an effect once and is answered every time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamEvent {
    /// A producer wants to upload, for the first time or after a loss.
    ProducerOpened {
        /// The producer.
        producer: ProducerLife,
    },
    /// A producer asks whether it may send an upload.
    UploadBegun {
        /// The producer.
        producer: ProducerLife,
        /// Counts the uploads of this producer from 0. A restarted producer gives the same samples the same number.
        number: u64,
        /// How many samples it has.
        samples: u32,
        /// How many bytes they take.
        bytes: ByteSize,
    },
    /// All bytes of an upload are stored, and survive what the journal survives.
    UploadCompleted {
        /// The producer.
        producer: ProducerLife,
        /// The number of the upload.
        number: u64,
    },
    /// An upload will not be completed.
    UploadAborted {
        /// The producer.
        producer: ProducerLife,
        /// The number of the upload.
        number: u64,
    },
    /// A producer has no more samples.
    ProducerClosed {
        /// The producer.
        producer: ProducerLife,
        /// How many uploads it had, in all its lives.
        uploads: u64,
    },
    /// A producer is alive.
    ProducerHeard {
        /// The producer.
        producer: ProducerLife,
    },
    /// The connection to a producer is lost, and the same life has no newer one.
    ProducerLost {
        /// The producer.
        producer: ProducerLife,
    },
    /// The user ends the stream, whatever its producers do.
    StreamSealed,
    /// A training run wants to use the samples, for the first time or after a restart.
    ReaderOpened {
        /// The reader.
        reader: ReaderLife,
        /// How it uses the samples.
        settings: ReaderSettings,
        /// Where it goes on, from its checkpoint; `None`: after the last committed step.
        resume: Option<Cursor>,
    },
    /// A training run needs no more samples.
    ReaderClosed {
        /// The reader.
        reader: ReaderLife,
    },
    /// The user gives a reader up.
    ReaderReleased {
        /// The reader.
        reader: ReaderId,
    },
    /// A trainer wants to take a share of every batch.
    TrainerJoined {
        /// The trainer.
        trainer: TrainerLife,
    },
    /// A trainer has done steps of the current pass; whether they count is decided when all trainers have done them.
    StepsDone {
        /// The trainer.
        trainer: TrainerLife,
        /// The epoch in which it got its share.
        epoch: Epoch,
        /// The pass.
        pass: u64,
        /// How many steps of the pass it has done, from the beginning of the pass.
        steps: u64,
    },
    /// A training run that shares its batches out itself wants a pass, though it may not have committed all steps
    /// before. The answer is [`StreamCore::pass_answer`](crate::StreamCore::pass_answer).
    PassWanted {
        /// The reader.
        reader: ReaderLife,
        /// The number of the pass.
        pass: u64,
    },
    /// A training run has a checkpoint of these steps: they will not be repeated.
    RunCommitted {
        /// The reader.
        reader: ReaderLife,
        /// The pass.
        pass: u64,
        /// How many steps of the pass will not be repeated; all steps of earlier passes neither.
        steps: u64,
    },
    /// A trainer is alive.
    TrainerHeard {
        /// The trainer.
        trainer: TrainerLife,
    },
    /// A trainer leaves.
    TrainerLeft {
        /// The trainer.
        trainer: TrainerLife,
    },
    /// The connection to a trainer is lost, and the same life has no newer one.
    TrainerLost {
        /// The trainer.
        trainer: TrainerLife,
    },
    /// The time has come that [`StreamCore::next_tick`](crate::StreamCore::next_tick) asked for.
    Ticked,
}
