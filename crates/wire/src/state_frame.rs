//! How the state of a model, or of a part of it, is framed when it travels between nodes.
//!
//! ```text
//!   the state itself:      0 steps  8 bytes of the weights  16 weights, then the optimizer's state: safetensors both
//!   given to a node:       0 length  8 the state         ◄── one byte when it was read
//!   copy for a neighbour:  0 step  8 start  12 end of its operators  16 length  24 the state  ◄── 1 kept, 0 not
//! ```

use crate::fields::Fields;
use crate::train::Ops;

/// What stands before the tensors of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateHead {
    /// Steps that the optimizer has done.
    pub optimizer_steps: u64,
    /// Bytes of the weights; all that comes after them is the state of the optimizer.
    pub weights_bytes: u64,
}

impl StateHead {
    /// Bytes of a head.
    pub const LEN: usize = 16;

    /// The head in its layout.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.optimizer_steps.to_le_bytes());
        bytes[8..].copy_from_slice(&self.weights_bytes.to_le_bytes());
        bytes
    }

    /// Cuts a state into its head, its weights and the state of the optimizer; `None` when it ends before the weights
    /// do.
    pub fn split(state: &[u8]) -> Option<(Self, std::ops::Range<usize>, std::ops::Range<usize>)> {
        let mut fields = Fields::new(state);
        let head = Self { optimizer_steps: fields.u64()?, weights_bytes: fields.u64()? };
        let end = usize::try_from(head.weights_bytes).ok()?.checked_add(Self::LEN)?;
        (end <= state.len()).then_some((head, Self::LEN..end, end..state.len()))
    }
}

/// What stands before a state that is given to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateLength(pub u64);

impl StateLength {
    /// Bytes of a length.
    pub const LEN: usize = 8;
    /// The answer of the node that has read the state: the stream may be closed.
    pub const TAKEN: [u8; 1] = [1];

    /// The length in its layout.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        self.0.to_le_bytes()
    }

    /// Reads what [`StateLength::to_bytes`] made.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }
}

/// What stands before a copy that a stage sends to its neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyHead {
    /// Steps that the copy has behind it.
    pub step: u64,
    /// The operators that it is of.
    pub ops: Ops,
    /// Bytes of the state that comes after the head.
    pub bytes: u64,
}

impl CopyHead {
    /// Bytes of a head.
    pub const LEN: usize = 24;

    /// The head in its layout.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.step.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.ops.start.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.ops.end.to_le_bytes());
        bytes[16..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Reads what [`CopyHead::to_bytes`] made; `None` for operators that end before they start.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        let step = fields.u64()?;
        let ops = Ops { start: fields.u32()?, end: fields.u32()? };
        let bytes = fields.u64()?;
        (ops.start <= ops.end).then_some(Self { step, ops, bytes })
    }
}

/// The answer to a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CopyReply {
    /// The neighbour could not keep it.
    NotKept = 0,
    /// The neighbour keeps it.
    Kept = 1,
}

impl CopyReply {
    /// The reply in its layout.
    pub fn to_bytes(self) -> [u8; 1] {
        [self as u8]
    }

    /// Reads what [`CopyReply::to_bytes`] made; `None` for any other byte.
    pub fn from_bytes([byte]: [u8; 1]) -> Option<Self> {
        match byte {
            0 => Some(CopyReply::NotKept),
            1 => Some(CopyReply::Kept),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_cut_where_its_head_says() {
        let head = StateHead { optimizer_steps: 7, weights_bytes: 3 };
        let state = [&head.to_bytes()[..], b"aaabb"].concat();
        assert_eq!(StateHead::split(&state), Some((head, 16..19, 19..21)));
        assert_eq!(StateHead::split(&state[..19]), Some((head, 16..19, 19..19)));
        for len in [0, 8, 15, 16, 18] {
            assert_eq!(StateHead::split(&state[..len]), None, "{len}");
        }
        let huge = StateHead { weights_bytes: u64::MAX, ..head };
        assert_eq!(StateHead::split(&huge.to_bytes()), None);
    }

    #[test]
    fn a_copy_survives_the_wire_and_other_bytes_are_refused() {
        let head = CopyHead { step: 1 << 40, ops: Ops { start: 2, end: 5 }, bytes: 77 };
        assert_eq!(CopyHead::from_bytes(&head.to_bytes()), Some(head));
        let backwards = CopyHead { ops: Ops { start: 6, end: 5 }, ..head };
        assert_eq!(CopyHead::from_bytes(&backwards.to_bytes()), None);
        for reply in [CopyReply::Kept, CopyReply::NotKept] {
            assert_eq!(CopyReply::from_bytes(reply.to_bytes()), Some(reply));
        }
        assert_eq!(CopyReply::from_bytes([2]), None);
        assert_eq!(StateLength::from_bytes(StateLength(1 << 40).to_bytes()), StateLength(1 << 40));
    }
}
