//! What ranks of a group tell each other when it begins, and after every step or interval.

use crate::fields::Fields;
use crate::train::{SealedPass, StageReport};
use crate::vote::Vote;
use serde::{Deserialize, Serialize};

/// What one rank says of the steps that it has computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ballot {
    /// One for every step.
    pub votes: Vec<Vote>,
    /// What it did as a stage.
    pub report: StageReport,
    /// The copy of its state before is still on its way.
    pub copying: bool,
    /// That copy was not made, or the neighbour does not keep it.
    pub missed: bool,
    /// The sum of the squares of every parameter's gradient, in the order of names; only stages say it.
    pub squares: Vec<f64>,
    /// A live query that is to be computed after this.
    pub asking: Option<Asking>,
    /// By its clock a checkpoint is due after this. That of the speaker counts.
    pub late: bool,
    /// The driver has not taken its part of the checkpoint before.
    pub saving: bool,
}

impl Ballot {
    /// A ballot that says nothing beside these.
    pub fn new(votes: &[Vote], report: StageReport, squares: Vec<f64>) -> Self {
        let (copying, missed, late, saving) = (false, false, false, false);
        Self { votes: votes.to_vec(), report, squares, copying, missed, asking: None, late, saving }
    }
}

/// What one rank says before the first step of a pass over a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassBallot {
    /// The pass, if the store has sealed it.
    pub sealed: Option<SealedPass>,
    /// The stream has no more samples.
    pub ended: bool,
    /// What it wishes, as the number of a [`Wish`](crate::vote::Wish).
    pub wish: u8,
    /// A checkpoint is due while all wait. What the speaker says counts.
    pub save: bool,
    /// It has made one a short while ago.
    pub saved: bool,
}

/// What the speaker tells the others of a live query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    /// That of the query.
    pub number: u64,
    /// How many samples it is about.
    pub samples: u64,
    /// How many are computed at once.
    pub batch: u64,
}

/// What a replica tells the others when a group begins, in a layout of fixed length.
///
/// ```text
///   0 whether there is a state  1 step  9 cost  17
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Greeting {
    /// Steps that its state has behind it, if it holds one.
    pub step: Option<u64>,
    /// Microseconds of a sample in the group before; 0 when it was in none.
    pub cost: f64,
}

impl Greeting {
    /// Bytes of a greeting.
    pub const LEN: usize = 17;

    /// The greeting in its layout.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = u8::from(self.step.is_some());
        bytes[1..9].copy_from_slice(&self.step.unwrap_or(0).to_le_bytes());
        bytes[9..].copy_from_slice(&self.cost.to_le_bytes());
        bytes
    }

    /// Reads what [`Greeting::to_bytes`] made; `None` for any other bytes.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        let step = match (fields.bool()?, fields.u64()?) {
            (false, 0) => None,
            (false, _) => return None,
            (true, step) => Some(step),
        };
        Some(Self { step, cost: fields.f64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_survives_the_wire_and_other_bytes_are_refused() {
        for step in [None, Some(0), Some(1 << 40)] {
            let greeting = Greeting { step, cost: 12.5 };
            assert_eq!(Greeting::from_bytes(&greeting.to_bytes()), Some(greeting));
        }
        let mut bytes = Greeting { step: Some(3), cost: 12.5 }.to_bytes();
        bytes[0] = 0;
        assert_eq!(Greeting::from_bytes(&bytes), None, "no state, but of step 3");
        bytes[0] = 2;
        assert_eq!(Greeting::from_bytes(&bytes), None);
    }
}
