//! Why nodes refuse runs, why groups break, why ranks fail, as data; every front prints the same words for it.

use crate::detail::Detail;
use crate::node::LostReason;
use crate::usage::Shortage;
use phalanx_types::NodeId;
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
            | RunRefusal::NoLoss { .. } => false,
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
    use phalanx_types::{ByteSize, Needs};

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
