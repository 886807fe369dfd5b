//! What the driver of a run and its ranks decide, without clock, thread or socket.
//!
//! ```text
//!   driver:  DriverCore      a whole run: groups, plans, records, checkpoints, the end
//!            FormationCore   in it: who is in the group, when it is formed anew, why it waits
//!   ranks:   votes           after every step: did all succeed, what does a rank wish, how long did it take
//!            Shares, Balance who takes which samples of the global batch
//!            Aggregate       how what ranks learned alone becomes one new state
//! ```
//! Ranks agree by exchanging votes: each computes the same decision from the same list, without a coordinator.

pub mod aggregate;
mod balance;
pub mod bugs;
pub mod driver;
mod every;
mod formation;
pub mod holdings;
pub mod layout;
mod passes;
pub mod pipeline;
pub mod progress;
mod report_log;
mod shares;
mod vote;

pub use balance::{Balance, better};
pub use every::{Every, Length, ParseEveryError};
pub use formation::{FormationCommand, FormationCore, FormationStage, Left, Limits, Pause, Seat};
pub use passes::{NotSealed, PassLengths, Passes};
pub use phalanx_wire::train::{PassStart, SealedPass};
pub use phalanx_wire::vote::{Standing, Vote, Wish};
pub use report_log::{ReportLog, Unheard};
pub use shares::Shares;
pub use vote::{Outcome, VoteError, count, mark, read_votes};
