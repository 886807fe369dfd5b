//! What a rank says of one step, in a layout of fixed length: there is a vote from every rank for every step.
//!
//! ```text
//!    0 step   8 loss  16 samples  20 compute  24 exchange  28 wait
//!   32 finite  33 wish  34 standing  35 zeros  40 seen  48 hash  56
//! ```

use crate::fields::Fields;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// What a rank wishes to happen at this boundary between steps. The greatest wish of all ranks is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Wish {
    /// Go on with the next step.
    #[default]
    GoOn = 0,
    /// Form the group anew: a node wants to come in.
    Reform = 1,
    /// End the run here.
    Stop = 2,
}

impl Wish {
    /// The wish that a byte stands for.
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Wish::GoOn,
            1 => Wish::Reform,
            2 => Wish::Stop,
            _ => return None,
        })
    }
}

/// Whether a rank holds the state of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Standing {
    /// It holds what the step starts from.
    #[default]
    Level = 0,
    /// It has come new: the state is on its way, and it remembers what happens meanwhile.
    Catching = 1,
    /// So much has happened meanwhile that it wants the state as it is now.
    Late = 2,
}

impl Standing {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Standing::Level,
            1 => Standing::Catching,
            2 => Standing::Late,
            _ => return None,
        })
    }
}

/// What one rank says of the step that it has computed but not yet applied.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Vote {
    /// The step, from 0.
    pub step: u64,
    /// Its samples' part of the mean loss over the whole batch.
    pub loss: f64,
    /// Samples it computed.
    pub samples: u32,
    /// Whether everything it computed is finite.
    pub finite: bool,
    /// What it wishes to happen after the step.
    pub wish: Wish,
    /// Microseconds it computed.
    pub compute_us: u32,
    /// Microseconds it exchanged without computing.
    pub exchange_us: u32,
    /// Microseconds it waited for others.
    pub wait_us: u32,
    /// Which samples it computed: the sum of their marks.
    pub seen: u64,
    /// What its parameters were before the step, in short; 0 when it did not look.
    pub hash: u64,
    /// Whether it holds what the step starts from.
    pub standing: Standing,
}

impl Vote {
    /// Bytes of a vote.
    pub const LEN: usize = 56;

    /// The vote in its layout.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.step.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.loss.to_le_bytes());
        let numbers = [self.samples, self.compute_us, self.exchange_us, self.wait_us];
        for (place, number) in bytes[16..32].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[32] = u8::from(self.finite);
        bytes[33] = self.wish as u8;
        bytes[34] = self.standing as u8;
        bytes[40..48].copy_from_slice(&self.seen.to_le_bytes());
        bytes[48..].copy_from_slice(&self.hash.to_le_bytes());
        bytes
    }

    /// Reads what [`Vote::to_bytes`] made; `None` for any other bytes.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        let (step, loss) = (fields.u64()?, fields.f64()?);
        let (samples, compute_us) = (fields.u32()?, fields.u32()?);
        let (exchange_us, wait_us) = (fields.u32()?, fields.u32()?);
        let finite = fields.bool()?;
        let wish = Wish::from_code(fields.u8()?)?;
        let standing = Standing::from_code(fields.u8()?)?;
        fields.padding::<5>()?;
        let (seen, hash) = (fields.u64()?, fields.u64()?);
        Some(Self {
            step,
            loss,
            samples,
            finite,
            wish,
            compute_us,
            exchange_us,
            wait_us,
            seen,
            hash,
            standing,
        })
    }
}

/// In a message the layout stands behind its length.
impl Serialize for Vote {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.to_bytes())
    }
}

impl<'de> Deserialize<'de> for Vote {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Layout;

        impl Visitor<'_> for Layout {
            type Value = Vote;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "the {} bytes of a vote", Vote::LEN)
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vote, E> {
                let vote = bytes.try_into().ok().and_then(Vote::from_bytes);
                vote.ok_or_else(|| E::invalid_length(bytes.len(), &self))
            }
        }

        deserializer.deserialize_bytes(Layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vote_survives_the_wire_and_other_bytes_are_refused() {
        let vote = Vote {
            step: 1 << 40,
            loss: 0.25,
            samples: 16,
            finite: false,
            wish: Wish::Stop,
            compute_us: 900,
            exchange_us: 30,
            wait_us: 7,
            seen: 1 << 63,
            hash: 77,
            standing: Standing::Late,
        };
        let bytes = vote.to_bytes();
        assert_eq!(Vote::from_bytes(&bytes), Some(vote));
        for (at, byte) in [(32, 2), (33, 3), (34, 3), (35, 1), (39, 1)] {
            let mut other = bytes;
            other[at] = byte;
            assert_eq!(Vote::from_bytes(&other), None, "byte {at} is {byte}");
        }
    }
}
