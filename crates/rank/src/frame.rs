//! What travels between two stages: a head (`phalanx_wire::stage_frame`), then values.

use super::connector::broken;
use crate::error::RankError;
pub(super) use phalanx_wire::stage_frame::{Carries, FrameHead as Head};

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
    fn a_frame_other_than_the_one_that_is_due_is_refused() {
        let head = Head {
            carries: Carries::Gradients,
            part: 3,
            len: 16,
            step: 1 << 40,
            seen: u64::MAX - 5,
            bytes: 77,
        };
        let frame = Frame { head, values: Vec::new() };
        assert!(frame.expect(Carries::Gradients, 1 << 40, 3, 16).is_ok());
        assert!(frame.expect(Carries::Gradients, 1 << 40, 2, 16).is_err());
        let frame = Frame { head, values: vec![0; 12] };
        assert!(frame.expect_bytes([4, 8].into_iter()).is_ok());
        assert!(frame.expect_bytes([4, 4].into_iter()).is_err());
        assert!(frame.expect_bytes([usize::MAX, 13].into_iter()).is_err());
    }
}
