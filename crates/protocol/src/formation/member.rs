//! What the driver knows of a node.

use phalanx_types::NodeId;
use phalanx_wire::group_end::RankEnds;
use phalanx_wire::train_reason::BreakReason;
use serde::{Deserialize, Serialize};

/// Where a node stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Member {
    /// It opens the model and the data.
    Opening,
    /// It takes over the state that is on disk.
    Restoring,
    /// It could be in a group; `step` is how many steps the state it holds has behind it, if it holds one.
    Standby { step: Option<u64> },
    /// It gets its end of a group ready.
    Preparing { step: Option<u64>, ends: Option<RankEnds> },
    /// It trains.
    Active,
    /// It has done the last step.
    Ended,
}

impl Member {
    /// Steps that the state it holds has behind it, if it holds one.
    pub(super) fn step(&self) -> Option<u64> {
        match self {
            Member::Standby { step } | Member::Preparing { step, .. } => *step,
            _ => None,
        }
    }

    /// Whether it must say that it has left before a new group can be formed.
    pub(super) fn is_in_group(&self) -> bool {
        matches!(self, Member::Active | Member::Preparing { .. })
    }
}

/// One rank of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seat {
    pub node: NodeId,
    /// How the others reach its ends of the group; recordings leave them out.
    #[serde(skip)]
    pub ends: RankEnds,
    /// Steps that its state has behind it, if it holds one.
    pub step: Option<u64>,
}

/// Why a member is not in the group any more, and how many steps it has applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Left {
    /// The group is broken.
    Broken { step: u64, reason: BreakReason },
    /// All members agreed to form the group anew.
    Reformed { step: u64 },
    /// The last step is done, or all agreed to stop.
    Ended { step: u64 },
    /// It did not hold the state of the run yet; the reason says what broke, if something did.
    Empty { reason: Option<BreakReason> },
}

impl Left {
    pub(super) fn step(&self) -> Option<u64> {
        match self {
            Left::Broken { step, .. } | Left::Reformed { step } | Left::Ended { step } => Some(*step),
            Left::Empty { .. } => None,
        }
    }
}
