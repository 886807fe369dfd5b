//! Why nodes refuse runs, why groups break, why ranks fail, as data; every front prints the same words for it.

use crate::detail::Detail;
use crate::node::LostReason;
use crate::usage::Shortage;
use phalanx_types::{ByteSize, NodeId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a group is over before its members agreed to leave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BreakReason {
    /// A member has no link to the driver any more.
    NodeLost { node: NodeId, loss: LostReason },
    /// A member refused to go on.
    NodeRefused { node: NodeId, refusal: RunRefusal },
    /// A node that is lost held a part of the state that the group was to begin with.
    StateLost { node: NodeId },
    /// This member was told to connect to a group that it has not prepared.
    NotPrepared,
    /// This node has closed the run.
    Closed(CloseReason),
    /// A rank could not go on together with the others; what it met, with its causes.
    Failed { detail: Detail },
}

impl BreakReason {
    /// Whether the driver gave it: it has told the user already.
    pub fn is_from_driver(&self) -> bool {
        match self {
            BreakReason::NodeLost { .. }
            | BreakReason::NodeRefused { .. }
            | BreakReason::StateLost { .. } => true,
            BreakReason::NotPrepared | BreakReason::Closed(_) | BreakReason::Failed { .. } => false,
        }
    }
}

impl fmt::Display for BreakReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BreakReason::NodeLost { node, loss } => write!(f, "{node} is lost: {loss}"),
            BreakReason::NodeRefused { node, refusal } => write!(f, "{node} does not take part: {refusal}"),
            BreakReason::StateLost { node } => {
                write!(f, "{node} is lost with a part of the state that the group begins with")
            }
            BreakReason::NotPrepared => f.write_str("it is not ready"),
            BreakReason::Closed(reason) => write!(f, "{reason}"),
            BreakReason::Failed { detail } => write!(f, "{detail}"),
        }
    }
}

/// Why a node has closed a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CloseReason {
    /// The driver said that the node is not needed any more.
    Dismissed,
    /// The driver opens the run anew.
    EnlistedAnew,
    /// There is no link to the driver any more.
    DriverLost { loss: LostReason },
    /// The node has told the driver that it cannot train the run.
    Refused,
    /// The node stops.
    NodeStops,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Dismissed => f.write_str("the run is over here"),
            CloseReason::EnlistedAnew => f.write_str("the driver enlists this node anew"),
            CloseReason::DriverLost { loss } => write!(f, "the driver of the run is gone: {loss}"),
            CloseReason::Refused => f.write_str("this node cannot train it"),
            CloseReason::NodeStops => f.write_str("this node stops"),
        }
    }
}

/// Why a node does not take part in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunRefusal {
    /// It trains a run of the same number for another driver.
    OtherDriver,
    /// The run does not fit on it, now or ever.
    Shortage(Shortage),
    /// It could not fetch the state of the run.
    NoState { detail: Detail },
    /// It could not start a thread for the run.
    NoThread { detail: Detail },
    /// A defect: the thread of the run panicked.
    Panicked,
    /// It cannot open the run or go on with it: files, model or data are not as they should be.
    Unable { detail: Detail },
    /// It does not have the custom loss of the run.
    NoLoss { name: Detail },
    /// It cannot have a file of the run.
    File { file: Detail, refusal: FileRefusal },
    /// A file of the run is not what the run file takes it for.
    WrongFile { fault: FileFault },
    /// The driver offers more bytes at once than the run has claimed memory.
    TooMuch { bytes: u64, limit: u64 },
    /// The driver sends more orders than a run has.
    TooManyOrders,
}

/// Why a node cannot have a file of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRefusal {
    /// The driver has not listed it, and it is in no directory that the node allows.
    NotListed,
    /// It could not be fetched.
    Fetch { detail: Detail },
    /// What came is another file than the one that was listed.
    OtherBytes,
    /// It is longer than the node fetches.
    TooLong { bytes: u64, limit: u64 },
    /// No file can be kept under its name.
    Name,
    /// It could not be kept.
    NotKept { detail: Detail },
}

impl fmt::Display for FileRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileRefusal::NotListed => f.write_str(
                "names a file that is not in the list of the run's files, and in no directory of --data-root",
            ),
            FileRefusal::Fetch { detail } => write!(f, "could not be fetched: {detail}"),
            FileRefusal::OtherBytes => f.write_str("the driver sent other bytes than it said"),
            FileRefusal::TooLong { bytes, limit } => {
                write!(f, "has {}, of which this node fetches {} at most", ByteSize(*bytes), ByteSize(*limit))
            }
            FileRefusal::Name => f.write_str("is no name that a file can be kept under"),
            FileRefusal::NotKept { detail } => write!(f, "{detail}"),
        }
    }
}

/// What is wrong with a file of a run, without anything that is in it: the node may have it from elsewhere than the
/// driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileFault {
    /// It cannot be opened or read.
    Unreadable,
    /// It is of no known format, or is broken.
    Malformed,
    /// It has no array or column of the name in the run file.
    NoSuchArray,
    /// It has several arrays or columns, and the run file names none.
    ArrayNotNamed,
    /// A line has something else than numbers.
    NotNumbers { line: u64 },
    /// A row cannot be used.
    Row { row: u64 },
    /// A label is not one of the classes.
    Label { row: u64, classes: u64 },
    /// It has a class that the model is not trained for.
    UnknownClass,
    /// Samples and labels do not fit each other, or what is to be done with them.
    Samples,
    /// A folder has no images, or one that cannot be used.
    Image,
    /// The model is not a good ONNX model, or needs tensors in files that are not listed.
    Onnx,
    /// The layers do not make a model.
    Layers,
    /// The weights do not fit the model.
    Weights,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileFault::Unreadable => f.write_str("a file of the run cannot be read"),
            FileFault::Malformed => f.write_str("a data file is broken or of an unknown format"),
            FileFault::NoSuchArray => f.write_str("a data file has no array or column of that name"),
            FileFault::ArrayNotNamed => {
                f.write_str("a data file has several arrays or columns, and the run file names none")
            }
            FileFault::NotNumbers { line } => {
                write!(f, "line {line} of a data file has something else than numbers")
            }
            FileFault::Row { row } => write!(f, "row {row} of a data file cannot be used"),
            FileFault::Label { row, classes } => {
                write!(f, "the label of row {row} is none of the {classes} classes, from 0 on")
            }
            FileFault::UnknownClass => f.write_str("the data have a class that the model is not trained for"),
            FileFault::Samples => f.write_str("samples or labels of a data file do not fit the run file"),
            FileFault::Image => f.write_str("the images of a folder cannot be used"),
            FileFault::Onnx => {
                f.write_str("the model cannot be imported, or has tensors in files that are not listed")
            }
            FileFault::Layers => f.write_str("the layers of the model do not make a model"),
            FileFault::Weights => f.write_str("the weights do not fit the model"),
        }
    }
}

impl RunRefusal {
    /// Whether the node may be able to take part later.
    pub fn is_temporary(&self) -> bool {
        match self {
            RunRefusal::OtherDriver | RunRefusal::NoState { .. } => true,
            RunRefusal::Shortage(shortage) => !shortage.is_permanent(),
            RunRefusal::NoThread { .. }
            | RunRefusal::Panicked
            | RunRefusal::Unable { .. }
            | RunRefusal::NoLoss { .. }
            | RunRefusal::File { .. }
            | RunRefusal::WrongFile { .. }
            | RunRefusal::TooMuch { .. }
            | RunRefusal::TooManyOrders => false,
        }
    }
}

impl fmt::Display for RunRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunRefusal::OtherDriver => f.write_str("it trains a run of this number for another driver"),
            RunRefusal::Shortage(shortage) => write!(f, "{shortage}"),
            RunRefusal::NoState { detail } => write!(f, "could not fetch the state of the run: {detail}"),
            RunRefusal::NoThread { detail } => write!(f, "there is no thread to be had: {detail}"),
            RunRefusal::Panicked => f.write_str("the replica panicked"),
            RunRefusal::Unable { detail } => write!(f, "{detail}"),
            RunRefusal::NoLoss { name } => {
                write!(f, "the loss `{name}` is a function of the user's own, which this node was not given")
            }
            RunRefusal::File { file, refusal } => write!(f, "{file}: {refusal}"),
            RunRefusal::WrongFile { fault } => write!(f, "{fault}"),
            RunRefusal::TooMuch { bytes, limit } => {
                let (bytes, limit) = (ByteSize(*bytes), ByteSize(*limit));
                write!(f, "the driver offers {bytes} at once, of {limit} that the run may use here")
            }
            RunRefusal::TooManyOrders => f.write_str("the driver sends more orders than a run has"),
        }
    }
}

/// Why a run cannot go on, as a rank found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankFailure {
    /// A step cannot be done. Another rank may know more about the cause.
    Step(StepFailure),
    /// This rank's data are wrong, a label for example.
    WrongInput {
        detail: Detail,
        /// What the user can do about it.
        hint: Option<Detail>,
    },
    /// What this rank met, with its causes.
    Error { detail: Detail },
}

impl RankFailure {
    /// Whether it names the cause: no other rank can know more.
    pub fn is_cause(&self) -> bool {
        match self {
            RankFailure::Step(_) => false,
            RankFailure::WrongInput { .. } | RankFailure::Error { .. } => true,
        }
    }

    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            RankFailure::WrongInput { hint, .. } => hint.as_deref(),
            RankFailure::Step(_) | RankFailure::Error { .. } => None,
        }
    }
}

impl fmt::Display for RankFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RankFailure::Step(failure) => write!(f, "{failure}"),
            RankFailure::WrongInput { detail, .. } | RankFailure::Error { detail } => write!(f, "{detail}"),
        }
    }
}

/// Why a step cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepFailure {
    /// All gradients are finite, but their norm is not.
    NormNotFinite,
    /// A rank computed something that is not finite.
    NotFinite { rank: u32 },
    /// No replica holds the state that the group begins with.
    NoState,
    /// The loader has no more samples.
    NoSamples,
    /// The last stage loaded labels of other samples than the first one computed.
    OtherLabels { step: u64, part: u32 },
}

impl fmt::Display for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepFailure::NormNotFinite => f.write_str("the norm of the gradients is not finite"),
            StepFailure::NotFinite { rank } => write!(f, "what rank {rank} computed is not finite"),
            StepFailure::NoState => f.write_str("no replica holds the state of the run"),
            StepFailure::NoSamples => f.write_str("there are no more samples"),
            StepFailure::OtherLabels { step, part } => {
                write!(f, "labels of step {step}, part {part} are those of other samples")
            }
        }
    }
}

/// Why a node does not answer a live query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryRefusal {
    /// Samples have another size than the model takes.
    SampleSize { values: u64 },
    /// The node could not fetch the samples.
    NoSamples { detail: Detail },
    /// The model cannot compute them; what it met, with its causes.
    Failed { detail: Detail },
}

impl fmt::Display for QueryRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryRefusal::SampleSize { values } => write!(f, "a sample of this model has {values} values"),
            QueryRefusal::NoSamples { detail } => write!(f, "could not fetch the samples: {detail}"),
            QueryRefusal::Failed { detail } => write!(f, "{detail}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::Needs;

    #[test]
    fn only_what_may_pass_is_asked_again() {
        let detail = || Detail::new("no such file");
        let needs = |cores| Needs { cores, memory: ByteSize(0) };
        let shortage = |cores| Shortage { needed: needs(cores), capacity: needs(2), uses: Vec::new() };
        for (refusal, temporary) in [
            (RunRefusal::OtherDriver, true),
            (RunRefusal::NoState { detail: detail() }, true),
            (RunRefusal::Shortage(shortage(2)), true),
            (RunRefusal::Shortage(shortage(3)), false),
            (RunRefusal::NoThread { detail: detail() }, false),
            (RunRefusal::Panicked, false),
            (RunRefusal::Unable { detail: detail() }, false),
        ] {
            assert_eq!(refusal.is_temporary(), temporary, "{refusal}");
        }
    }

    #[test]
    fn reasons_nest_into_one_sentence() {
        let node: NodeId = "n2-4f3a".parse().unwrap();
        let loss = LostReason::Misbehaved { detail: "malformed FromReplica".into() };
        let lost = BreakReason::NodeLost { node, loss: loss.clone() };
        assert_eq!(lost.to_string(), "n2-4f3a is lost: cut off for misbehaving (malformed FromReplica)");
        let closed = BreakReason::Closed(CloseReason::DriverLost { loss });
        let words = "the driver of the run is gone: cut off for misbehaving (malformed FromReplica)";
        assert_eq!(closed.to_string(), words);
        assert!(lost.is_from_driver() && !closed.is_from_driver());
    }
}
