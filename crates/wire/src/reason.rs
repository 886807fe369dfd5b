//! Why something waits or failed, as data; every front prints the same words for it.

use crate::detail::Bounded;
use crate::usage::Shortage;
use bytes::Bytes;
use phalanx_types::{ByteSize, JobId, NodeId};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;

/// The most bytes of one text of a reason. Workers say less; journals of earlier versions may hold as much.
pub const MAX_REASON: usize = 128 << 10;

/// The most bytes of all texts and of the exception in a reason that a worker may report.
pub const MAX_REPORTED: usize = 128 << 10;

/// Why a job has not been given to a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitReason {
    NoNodes,
    NoHandler {
        kind: SmolStr,
    },
    NeedsMemory {
        needed: ByteSize,
        largest: ByteSize,
        node: NodeId,
    },
    NeedsCores {
        needed: u32,
        largest: u32,
        node: NodeId,
    },
    NodesDraining {
        nodes: u32,
    },
    AllBusy {
        nodes: u32,
        ahead: u64,
    },
    /// Training uses so much of every suitable node that the job does not fit beside it; of the nodes, the one with
    /// the most free cores is named.
    InUse {
        nodes: u32,
        node: NodeId,
        shortage: Shortage,
    },
    /// It takes the solutions of other jobs that are not there: not made yet, or lost with their node and made again.
    Inputs {
        missing: u32,
        /// The first of those jobs.
        first: JobId,
    },
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitReason::NoNodes => f.write_str("no computing node in this domain yet"),
            WaitReason::NoHandler { kind } => write!(f, "no node of this domain handles {kind:?}"),
            WaitReason::NeedsMemory { needed, largest, node } => {
                write!(f, "needs {needed}, largest free node has {largest} ({node})")
            }
            WaitReason::NeedsCores { needed, largest, node } => {
                write!(f, "needs {needed} cores, largest node has {largest} ({node})")
            }
            WaitReason::NodesDraining { nodes } => {
                write!(f, "every node that could take it is draining ({nodes})")
            }
            WaitReason::AllBusy { nodes, ahead } => {
                let s = if *nodes == 1 { "" } else { "s" };
                write!(f, "{nodes} suitable node{s} busy, {ahead} jobs ahead")
            }
            WaitReason::InUse { nodes, node, shortage } => {
                write!(f, "{shortage} on {node}")?;
                match nodes.saturating_sub(1) {
                    0 => Ok(()),
                    1 => f.write_str(" and too few on 1 other node"),
                    others => write!(f, " and too few on {others} other nodes"),
                }
            }
            WaitReason::Inputs { missing: 1, first } => write!(f, "waits for the solution of job {first}"),
            WaitReason::Inputs { missing, first } => {
                write!(f, "waits for the solutions of {missing} jobs, the first is job {first}")
            }
        }
    }
}

/// Why a job failed for good.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailReason {
    /// The handler returned an error.
    Handler {
        #[serde(with = "Bounded::<MAX_REASON>")]
        message: String,
    },
    /// The handler panicked.
    Panicked {
        #[serde(with = "Bounded::<MAX_REASON>")]
        message: String,
    },
    /// Every node it ran on was lost while it ran.
    NodesLost { attempts: u32, nodes: Vec<NodeId> },
    /// The solution could not be taken over from the node.
    Unreadable {
        #[serde(with = "Bounded::<MAX_REASON>")]
        message: String,
    },
    /// A Python function raised an exception.
    Raised(Box<Raised>),
    /// A job whose solution it takes was not solved.
    InputFailed {
        job: JobId,
        #[serde(with = "Bounded::<MAX_REASON>")]
        why: String,
        /// The exception, if that job failed with one.
        raised: Option<Box<Raised>>,
    },
    /// The solution of a job is lost and cannot be made again.
    InputLost { job: JobId, why: LostInput },
}

/// Why a kept solution cannot be had any more.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LostInput {
    /// It was never kept, or is not needed any more.
    NotKept,
    /// The nodes that held it are gone, and its job has been run as often as it may.
    AttemptsUsedUp { attempts: u32 },
    /// The nodes that held it are gone, and the main node keeps no description of its job any more.
    NoRecipe,
    /// Its job ran again and failed.
    FailedAgain {
        #[serde(with = "Bounded::<MAX_REASON>")]
        why: String,
    },
    /// It takes the solution of another job, which is lost.
    Input { job: JobId },
    /// It could not be fetched from the node that holds it.
    Unreachable { node: NodeId },
}

impl fmt::Display for LostInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostInput::NotKept => f.write_str("it was not kept"),
            LostInput::AttemptsUsedUp { attempts } => {
                write!(f, "its nodes were lost, and its job was run {attempts} times")
            }
            LostInput::NoRecipe => {
                f.write_str("its nodes were lost, and the main node does not remember how it was made")
            }
            LostInput::FailedAgain { why } => {
                write!(f, "its nodes were lost, and making it again failed: {why}")
            }
            LostInput::Input { job } => write!(f, "it is made from the solution of job {job}, which is lost"),
            LostInput::Unreachable { node } => write!(f, "it could not be fetched from {node}"),
        }
    }
}

/// An exception of a Python function, as far as it can be told elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Raised {
    /// The qualified name of its class: `ValueError`, `mine.Broken`.
    #[serde(with = "Bounded::<MAX_REASON>")]
    pub exception: String,
    #[serde(with = "Bounded::<MAX_REASON>")]
    pub message: String,
    /// The lines that Python prints for it.
    #[serde(with = "Bounded::<MAX_REASON>")]
    pub traceback: String,
    /// The exception itself, pickled; empty if it could not be pickled or is too long.
    pub pickled: Bytes,
}

impl Raised {
    /// About how many bytes it takes in a message.
    pub fn encoded_len(&self) -> usize {
        self.exception.len() + self.message.len() + self.traceback.len() + self.pickled.len() + 40
    }

    /// The same with texts of at most so many bytes, and without the pickled exception.
    fn shortened(&self, most: usize) -> Self {
        let cut = |text: &str| text.get(..text.floor_char_boundary(most)).unwrap_or_default().to_owned();
        Self {
            exception: cut(&self.exception),
            message: cut(&self.message),
            traceback: cut(&self.traceback),
            pickled: Bytes::new(),
        }
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.is_empty() {
            true => f.write_str(&self.exception),
            false => write!(f, "{}: {}", self.exception, self.message),
        }
    }
}

impl FailReason {
    /// About how many bytes its texts take.
    pub fn text_len(&self) -> usize {
        match self {
            FailReason::Handler { message }
            | FailReason::Panicked { message }
            | FailReason::Unreadable { message } => message.len(),
            FailReason::NodesLost { nodes, .. } => nodes.len() * size_of::<NodeId>(),
            FailReason::Raised(raised) => raised.encoded_len(),
            FailReason::InputFailed { why, raised, .. } => {
                why.len() + raised.as_ref().map_or(0, |raised| raised.encoded_len())
            }
            FailReason::InputLost { why: LostInput::FailedAgain { why }, .. } => why.len(),
            FailReason::InputLost { .. } => 0,
        }
    }

    /// Whether a computing node may report it: main nodes find the others out for themselves.
    pub fn is_reportable(&self) -> bool {
        let is_theirs = matches!(
            self,
            FailReason::Handler { .. }
                | FailReason::Panicked { .. }
                | FailReason::Unreadable { .. }
                | FailReason::Raised(_)
        );
        is_theirs && self.text_len() <= MAX_REPORTED
    }

    /// The same in few bytes: texts are cut to so many each, and an exception is left out.
    pub fn shortened(&self, most: usize) -> Self {
        let cut = |text: &str| text.get(..text.floor_char_boundary(most)).unwrap_or_default().to_owned();
        match self {
            FailReason::Handler { message } => FailReason::Handler { message: cut(message) },
            FailReason::Panicked { message } => FailReason::Panicked { message: cut(message) },
            FailReason::Unreadable { message } => FailReason::Unreadable { message: cut(message) },
            FailReason::Raised(raised) => FailReason::Raised(Box::new(raised.shortened(most))),
            FailReason::InputFailed { job, why, raised } => FailReason::InputFailed {
                job: *job,
                why: cut(why),
                raised: raised.as_ref().map(|raised| Box::new(raised.shortened(most))),
            },
            FailReason::InputLost { job, why: LostInput::FailedAgain { why } } => {
                FailReason::InputLost { job: *job, why: LostInput::FailedAgain { why: cut(why) } }
            }
            FailReason::InputLost { .. } | FailReason::NodesLost { .. } => self.clone(),
        }
    }
}

impl fmt::Display for FailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailReason::Handler { message } => write!(f, "handler failed: {message}"),
            FailReason::Panicked { message } => write!(f, "handler panicked: {message}"),
            FailReason::NodesLost { attempts, nodes } => {
                write!(f, "set aside after {attempts} attempts; nodes lost while running it: ")?;
                for (i, node) in nodes.iter().enumerate() {
                    write!(f, "{}{node}", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            FailReason::Unreadable { message } => write!(f, "solution could not be read: {message}"),
            FailReason::Raised(raised) => write!(f, "the function raised {raised}"),
            FailReason::InputFailed { job, why, .. } => {
                write!(f, "it takes the solution of job {job}, which was not solved: {why}")
            }
            FailReason::InputLost { job, why } => write!(f, "the solution of job {job} is lost: {why}"),
        }
    }
}
