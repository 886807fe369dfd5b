//! The head of what travels between two stages of a pipeline; the values come after it.
//!
//! ```text
//!   0 what it carries  1 zeros  4 part  8 samples  12 zeros  16 step  24 seen  32 bytes  40
//! ```

use crate::fields::Fields;

/// What a frame between two stages carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Carries {
    /// Outputs of the stage before.
    Activations = 1,
    /// Gradients of the outputs of the stage before.
    Gradients = 2,
    /// Activations of samples that are not learned from.
    Validation = 3,
    /// Activations of the samples of a live query.
    Asked = 4,
}

impl Carries {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Carries::Activations,
            2 => Carries::Gradients,
            3 => Carries::Validation,
            4 => Carries::Asked,
            _ => return None,
        })
    }
}

/// Which values a frame between two stages holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// What they are.
    pub carries: Carries,
    /// Which part of the step's samples.
    pub part: u32,
    /// How many samples.
    pub len: u32,
    /// Of this step.
    pub step: u64,
    /// Which samples these are: the sum of their marks. Labels go with them, not with the order of arrival.
    pub seen: u64,
    /// How many bytes come after the head.
    pub bytes: u64,
}

impl FrameHead {
    /// Bytes of a head.
    pub const LEN: usize = 40;

    /// The head in its layout.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.carries as u8;
        bytes[4..8].copy_from_slice(&self.part.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.step.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.seen.to_le_bytes());
        bytes[32..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Reads what [`FrameHead::to_bytes`] made; `None` for any other bytes.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        let carries = Carries::from_code(fields.u8()?)?;
        fields.padding::<3>()?;
        let (part, len) = (fields.u32()?, fields.u32()?);
        fields.padding::<4>()?;
        let (step, seen, bytes) = (fields.u64()?, fields.u64()?, fields.u64()?);
        Some(Self { carries, part, len, step, seen, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives_the_wire_and_other_bytes_are_refused() {
        let carried = [Carries::Activations, Carries::Gradients, Carries::Validation, Carries::Asked];
        for carries in carried {
            let (step, seen) = (1 << 40, u64::MAX - 5);
            let head = FrameHead { carries, part: 3, len: 16, step, seen, bytes: 77 };
            let bytes = head.to_bytes();
            assert_eq!(FrameHead::from_bytes(&bytes), Some(head));
            for (at, byte) in [(0, 0), (0, 9), (1, 1), (15, 1)] {
                let mut other = bytes;
                other[at] = byte;
                assert_eq!(FrameHead::from_bytes(&other), None, "byte {at} is {byte}");
            }
        }
    }
}
