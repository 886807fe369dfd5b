//! Why a request is refused.

use phalanx_types::{ByteSize, Class, Incarnation, ProducerId, ReaderId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A number in the settings of a stream or a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quantity {
    /// Producers that the stream waits for.
    ExpectedProducers,
    /// Bytes that samples may take.
    Budget,
    /// Uploads of a producer in flight.
    UploadsInFlight,
    /// Passes of a reader.
    Passes,
    /// Samples that are shuffled together.
    Window,
    /// Steps of a pass.
    Steps,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Quantity::ExpectedProducers => "the number of expected producers",
            Quantity::Budget => "the budget",
            Quantity::UploadsInFlight => "the number of uploads in flight",
            Quantity::Passes => "the number of passes",
            Quantity::Window => "the window",
            Quantity::Steps => "the number of steps of a pass",
        })
    }
}

/// Why settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A number must not be zero.
    #[error("{what} must not be 0")]
    Zero {
        /// Which number.
        what: Quantity,
    },
    /// The batch is empty or too large.
    #[error("a batch must have 1 to {max} samples, not {batch}")]
    Batch {
        /// Samples that were asked for.
        batch: u64,
        /// The most there can be.
        max: u64,
    },
    /// The reservoir is empty or too large.
    #[error("a reservoir must hold 1 to {max} samples, not {capacity}")]
    Reservoir {
        /// Samples that were asked for.
        capacity: u64,
        /// The most there can be.
        max: u64,
    },
    /// No batch would ever be full.
    #[error(
        "a reservoir of {capacity} samples never fills a batch of {batch}, and partial batches are dropped"
    )]
    ReservoirBelowBatch {
        /// Samples of the reservoir.
        capacity: u64,
        /// Samples of a batch.
        batch: u64,
    },
    /// The mode uses every sample again, and the stream frees them.
    #[error("the stream frees samples that were used: use the mode once or reservoir")]
    NeedsAll,
    /// Every sample is to be used once, and some would be dropped.
    #[error("in mode once every sample is used: partial batches cannot be dropped")]
    OnceDrops,
}

/// Why a request is refused; every front prints the same words for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum StreamRefusal {
    /// A newer incarnation of the same client is known.
    #[error("incarnation {incarnation} is replaced by {current}")]
    Fenced {
        /// The one that asks.
        incarnation: Incarnation,
        /// The one that counts.
        current: Incarnation,
    },
    /// The producer has not opened the stream, or not since it was lost.
    #[error("producer {producer} has not opened the stream")]
    NotOpen {
        /// The producer.
        producer: ProducerId,
    },
    /// The producer has closed and may not upload more.
    #[error("producer {producer} has closed after {uploads} uploads")]
    ProducerClosed {
        /// The producer.
        producer: ProducerId,
        /// How many uploads it has.
        uploads: u64,
    },
    /// The stream has ended.
    #[error("the stream has ended with {samples} samples")]
    Ended {
        /// How many samples it has.
        samples: u64,
    },
    /// An upload without samples.
    #[error("upload {number} has no samples")]
    Empty {
        /// The number of the upload.
        number: u64,
    },
    /// Fewer bytes than samples.
    #[error("upload {number} cannot hold {samples} samples in {bytes}")]
    TooManyInBytes {
        /// The number of the upload.
        number: u64,
        /// How many samples it is said to have.
        samples: u32,
        /// How many bytes it has.
        bytes: ByteSize,
    },
    /// The number is so high that uploads before it must be missing.
    #[error("upload {number} is too far ahead: upload {missing} has not arrived")]
    TooFarAhead {
        /// The number of the upload.
        number: u64,
        /// The first upload of the producer that has not arrived.
        missing: u64,
    },
    /// Completed without being begun, or its bytes were discarded since.
    #[error("upload {number} was not begun, begin it again")]
    NotBegun {
        /// The number of the upload.
        number: u64,
    },
    /// The upload alone is larger than the budget.
    #[error("an upload of {bytes} is larger than the budget of {budget}")]
    TooLarge {
        /// The bytes of the upload.
        bytes: ByteSize,
        /// The bytes that all samples may take.
        budget: ByteSize,
    },
    /// The budget is used up and nothing will be freed.
    #[error("{used} of {budget} hold samples that later passes use again, {bytes} more do not fit")]
    Full {
        /// The bytes of samples.
        used: ByteSize,
        /// The bytes that all samples may take.
        budget: ByteSize,
        /// The bytes of the upload.
        bytes: ByteSize,
    },
    /// The stream has more samples than can be counted.
    #[error("the stream cannot hold more samples")]
    TooManySamples,
    /// The producer closes although uploads are missing.
    #[error("upload {missing} of {uploads} has not arrived")]
    Incomplete {
        /// The first that is missing.
        missing: u64,
        /// How many there should be.
        uploads: u64,
    },
    /// There are too many producers, readers or trainers.
    #[error("there are {max} already")]
    TooMany {
        /// The most there can be.
        max: u64,
    },
    /// There is no such reader.
    #[error("reader {reader} has not opened the stream")]
    UnknownReader {
        /// The reader.
        reader: ReaderId,
    },
    /// The reader has closed.
    #[error("reader {reader} has closed")]
    ReaderClosed {
        /// The reader.
        reader: ReaderId,
    },
    /// The reader was away for too long; its samples may have been freed.
    #[error("reader {reader} was released while it was away, samples that it needs may be freed")]
    ReaderReleased {
        /// The reader.
        reader: ReaderId,
    },
    /// The reader is known with other settings.
    #[error("reader {reader} is known with other settings")]
    SettingsDiffer {
        /// The reader.
        reader: ReaderId,
    },
    /// The settings cannot be used.
    #[error("the settings cannot be used: {0}")]
    Settings(#[from] SettingsError),
    /// The place to resume from is not one of this reader.
    #[error("step {step} of pass {pass} is not a place where reader {reader} has been")]
    UnknownPlace {
        /// The reader.
        reader: ReaderId,
        /// The pass to resume in.
        pass: u64,
        /// The step to resume from.
        step: u64,
    },
    /// The place to resume from needs samples that may have been freed.
    #[error(
        "samples since step {step} of pass {pass} may be freed, only the last committed step can be resumed"
    )]
    Freed {
        /// The pass to resume in.
        pass: u64,
        /// The step to resume from.
        step: u64,
    },
    /// The trainer is not in the group of its reader, for instance since the store was restarted.
    #[error("the trainer is not in the group of reader {reader}, it must join again")]
    NotJoined {
        /// The reader.
        reader: ReaderId,
    },
    /// An upload without a tensor that other uploads of the stream have, or that was announced.
    #[error("upload {number} has no tensor {field}")]
    FieldMissing {
        /// The number of the upload.
        number: u64,
        /// The name of the tensor.
        field: String,
    },
    /// A tensor has another type or shape of samples than in the other uploads.
    #[error("samples of {field} are {found} in upload {number}, and {expected} in others")]
    FieldDiffers {
        /// The number of the upload.
        number: u64,
        /// The name of the tensor.
        field: String,
        /// What other uploads have.
        expected: String,
        /// What this one has.
        found: String,
    },
    /// The tensors of an upload have different numbers of samples.
    #[error("{field} has {found} samples in upload {number}, not {expected}")]
    SamplesDiffer {
        /// The number of the upload.
        number: u64,
        /// The name of the tensor.
        field: String,
        /// How many samples the upload has.
        expected: u64,
        /// How many this tensor has.
        found: u64,
    },
    /// The tensors are others than were announced when the upload began.
    #[error("upload {number} was announced with {} samples in {}, and has {} in {}", announced.0, announced.1, found.0, found.1)]
    UploadDiffers {
        /// The number of the upload.
        number: u64,
        /// Samples and bytes that were announced.
        announced: (u32, ByteSize),
        /// Samples and bytes that there are.
        found: (u32, ByteSize),
    },
    /// There is no such tensor in the stream's uploads.
    #[error("uploads of the stream have no tensor {field}")]
    UnknownField {
        /// The name of the tensor.
        field: String,
    },
    /// A sample that has not arrived, was freed or was deleted.
    #[error("sample {sample} is not in the store")]
    SampleGone {
        /// The sample, by order of arrival.
        sample: u64,
    },
    /// The stream is known with other settings.
    #[error("the stream is known with other settings")]
    StreamDiffers,
    /// There is no such stream.
    #[error("there is no such stream")]
    UnknownStream,
    /// The name is the store's own.
    #[error("producer {producer} is the list of the stream itself, use another name")]
    ReservedName {
        /// The name.
        producer: ProducerId,
    },
    /// The trainer says to have done steps that the pass does not have.
    #[error("pass {pass} has {steps} steps, {done} cannot be done")]
    BeyondPass {
        /// The pass.
        pass: u64,
        /// How many steps it has.
        steps: u64,
        /// How many were said to be done.
        done: u64,
    },
}

impl StreamRefusal {
    /// How the shell of the client should act on it.
    pub fn class(&self) -> Class {
        match self {
            StreamRefusal::NotOpen { .. }
            | StreamRefusal::NotBegun { .. }
            | StreamRefusal::NotJoined { .. } => Class::Retry,
            StreamRefusal::UnknownReader { .. } => Class::Retry,
            StreamRefusal::Empty { .. }
            | StreamRefusal::TooManyInBytes { .. }
            | StreamRefusal::BeyondPass { .. }
            | StreamRefusal::FieldMissing { .. }
            | StreamRefusal::FieldDiffers { .. }
            | StreamRefusal::SamplesDiffer { .. }
            | StreamRefusal::UploadDiffers { .. }
            | StreamRefusal::UnknownField { .. }
            | StreamRefusal::ReservedName { .. }
            | StreamRefusal::TooFarAhead { .. } => Class::Peer,
            StreamRefusal::Fenced { .. }
            | StreamRefusal::ProducerClosed { .. }
            | StreamRefusal::Ended { .. }
            | StreamRefusal::TooLarge { .. }
            | StreamRefusal::Full { .. }
            | StreamRefusal::TooManySamples
            | StreamRefusal::Incomplete { .. }
            | StreamRefusal::TooMany { .. }
            | StreamRefusal::ReaderClosed { .. }
            | StreamRefusal::ReaderReleased { .. }
            | StreamRefusal::SettingsDiffer { .. }
            | StreamRefusal::StreamDiffers
            | StreamRefusal::UnknownStream
            | StreamRefusal::SampleGone { .. }
            | StreamRefusal::Settings(_)
            | StreamRefusal::UnknownPlace { .. }
            | StreamRefusal::Freed { .. } => Class::Fatal,
        }
    }
}
