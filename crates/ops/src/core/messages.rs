//! What ranks and their leader say to each other.
//!
//! ```text
//!   rank  ── Announce (name, signature) the first time, Ready (number) later ──►  leader (rank 0)
//!   rank  ◄── Define (number of a name), Run (units, in the one order of all ranks), Fail ──  leader
//! ```

use super::failure::OpFailure;
use super::signature::{OpSignature, SetId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The number of a known operation. A number is never used for another operation.
pub(crate) type UnitId = u32;

/// By which operations are matched: names are those of a set.
pub(crate) type OpKey = (SetId, String);

/// From a rank to the leader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToLeader {
    /// This rank has issued an operation that has no number yet, or that has changed.
    Announce { name: String, signature: OpSignature },
    /// This rank has issued a known operation.
    Ready { unit: UnitId },
    /// This rank does not use the number any more.
    Forgotten { unit: UnitId },
    /// This rank has no more data.
    Join,
    /// This rank leaves in order.
    Leave,
}

/// From the leader to a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToRank {
    /// From now on the operation has a number.
    Define { unit: UnitId, name: String, signature: OpSignature },
    /// The number means nothing any more.
    Forget { unit: UnitId },
    /// All ranks that take part have issued these; they are computed now, together.
    Run { units: Vec<UnitId> },
    /// An operation of this rank does not happen.
    Fail { set: SetId, failure: OpFailure },
    /// An operation waits for ranks; it may still happen.
    Stalled { name: String, missing: Vec<u32>, waited: Duration },
    /// All ranks have joined.
    AllJoined { last: u32 },
    /// A rank is lost; nothing more happens.
    Lost { rank: u32 },
    /// The leader leaves in order.
    Leave,
    /// The leader knows that this rank leaves.
    Goodbye,
}
