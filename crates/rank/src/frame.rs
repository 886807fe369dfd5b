//! What travels between two stages: a head of fixed size, then values.

use super::connector::broken;
use crate::error::RankError;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Carries {
    Activations = 1,
    Gradients = 2,
    /// Activations of samples that are not learned from.
    Validation = 3,
    /// Activations of a live query.
    Asked = 4,
}

/// Which values these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) carries: Carries,
    /// Which part of the step's samples.
    pub(super) part: u32,
    /// How many samples.
    pub(super) len: u32,
    pub(super) step: u64,
    /// Which samples these are: the sum of their marks. Labels go with them, not with the order of arrival.
    pub(super) seen: u64,
    pub(super) bytes: u64,
}

impl Head {
    pub(super) const LEN: usize = 40;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.carries as u8;
        bytes[4..8].copy_from_slice(&self.part.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.step.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.seen.to_le_bytes());
        bytes[32..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let carries = match bytes[0] {
            1 => Carries::Activations,
            2 => Carries::Gradients,
            3 => Carries::Validation,
            4 => Carries::Asked,
            _ => return None,
        };
        let short = |at: usize| bytes[at..].first_chunk::<4>().map(|b| u32::from_le_bytes(*b));
        let long = |at: usize| bytes[at..].first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
        Some(Self {
            carries,
            part: short(4)?,
            len: short(8)?,
            step: long(16)?,
            seen: long(24)?,
            bytes: long(32)?,
        })
    }
}

/// A frame that has come.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) head: Head,
    pub(super) values: Vec<u8>,
}

impl Frame {
    /// Checks that it is the one that is due.
    ///
    /// # Errors
    /// It is another: the other stage computes something else.
    pub(super) fn expect(
        &self,
        carries: Carries,
        step: u64,
        part: usize,
        len: usize,
    ) -> Result<(), RankError> {
        let Head { carries: c, step: s, part: p, len: l, .. } = self.head;
        if (c, s, p as usize, l as usize) == (carries, step, part, len) {
            return Ok(());
        }
        let got = format!("{c:?} of step {s}, part {p}, {l} samples");
        Err(broken(format!("expected {carries:?} of step {step}, part {part}, {len} samples, got {got}")))
    }

    /// Checks that it has as many bytes as its values take, before there is memory for them.
    ///
    /// # Errors
    /// It has not.
    pub(super) fn expect_bytes(&self, of_values: impl Iterator<Item = usize>) -> Result<(), RankError> {
        let expected = of_values.fold(0, usize::saturating_add);
        match self.values.len() == expected {
            true => Ok(()),
            false => Err(broken(format!("expected a frame of {expected} bytes, got {}", self.values.len()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_wire_and_strange_ones_are_refused() {
        let head = Head {
            carries: Carries::Gradients,
            part: 3,
            len: 16,
            step: 1 << 40,
            seen: u64::MAX - 5,
            bytes: 77,
        };
        assert_eq!(Head::from_bytes(&head.to_bytes()), Some(head));
        let mut bytes = head.to_bytes();
        bytes[0] = 9;
        assert_eq!(Head::from_bytes(&bytes), None);
        let frame = Frame { head, values: Vec::new() };
        assert!(frame.expect(Carries::Gradients, 1 << 40, 3, 16).is_ok());
        assert!(frame.expect(Carries::Gradients, 1 << 40, 2, 16).is_err());
        let frame = Frame { head, values: vec![0; 12] };
        assert!(frame.expect_bytes([4, 8].into_iter()).is_ok());
        assert!(frame.expect_bytes([4, 4].into_iter()).is_err());
        assert!(frame.expect_bytes([usize::MAX, 13].into_iter()).is_err());
    }
}
