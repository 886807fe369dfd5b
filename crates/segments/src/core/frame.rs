//! The bytes of one record: a head, references to values, the body.
//!
//! ```text
//!   length of the body  u64 ┐
//!   checksum of the body u32│
//!   kind u8, class u8       ├ 20 bytes, little endian
//!   references u16          │
//!   checksum of the head u32┘ over salt of the file, offset, the 16 bytes before it, the references
//!   references × (segment u64, offset u64, length u64, checksum u32)
//!   body
//! ```
//! The checksum of the body does not depend on the place, so that the thread that appends can compute it. The checksum
//! of the head binds it to the place: a record that was copied elsewhere is not taken for one.

use super::{Position, ValueRef};

/// Bytes of a head without references.
pub(crate) const HEAD_LEN: usize = 20;
/// Bytes of one reference.
pub(crate) const REF_LEN: usize = 28;
/// Bytes of the body of a barrier.
pub(crate) const BARRIER_BODY_LEN: usize = 16;
/// Bytes of a barrier.
pub(crate) const BARRIER_LEN: usize = HEAD_LEN + BARRIER_BODY_LEN;

/// Whose record it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameClass {
    /// The user's.
    Record = 1,
    /// Tells up to where the journal and the values it refers to were known to be on disk.
    Barrier = 2,
    /// The last of its file: the next file goes on.
    End = 3,
}

/// The head of a record, without its references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) class: FrameClass,
    pub(crate) kind: u8,
    pub(crate) body_len: u64,
    pub(crate) body_checksum: u32,
    pub(crate) refs: u16,
}

impl FrameHead {
    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.body_checksum.to_le_bytes());
        bytes[12] = self.kind;
        bytes[13] = self.class as u8;
        bytes[14..].copy_from_slice(&self.refs.to_le_bytes());
        bytes
    }

    /// How many bytes of references follow a head; the number is not verified yet, but never over 2 MiB.
    pub(crate) fn refs_len(head: &[u8; HEAD_LEN]) -> usize {
        usize::from(u16::from_le_bytes([head[14], head[15]])) * REF_LEN
    }

    /// Reads a head; `None` when it is not what was written at this offset of this file.
    pub(crate) fn parse(salt: u64, offset: u64, head: &[u8; HEAD_LEN], refs: &[u8]) -> Option<Self> {
        let [l0, l1, l2, l3, l4, l5, l6, l7, b0, b1, b2, b3, kind, class, r0, r1, rest @ ..] = *head;
        let class = match class {
            1 => FrameClass::Record,
            2 => FrameClass::Barrier,
            3 => FrameClass::End,
            _ => return None,
        };
        let parsed = Self {
            class,
            kind,
            body_len: u64::from_le_bytes([l0, l1, l2, l3, l4, l5, l6, l7]),
            body_checksum: u32::from_le_bytes([b0, b1, b2, b3]),
            refs: u16::from_le_bytes([r0, r1]),
        };
        let whole = refs.len() == usize::from(parsed.refs) * REF_LEN
            && head_checksum(salt, offset, &parsed.to_bytes(), refs) == u32::from_le_bytes(rest);
        whole.then_some(parsed)
    }

    /// The references that follow a head.
    pub(crate) fn parse_refs(refs: &[u8]) -> Vec<ValueRef> {
        refs.as_chunks::<REF_LEN>().0.iter().map(parse_ref).collect()
    }
}

fn parse_ref(bytes: &[u8; REF_LEN]) -> ValueRef {
    let (words, checksum) = bytes.split_at(24);
    let mut words = words.as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w));
    let mut word = || words.next().unwrap_or_default();
    ValueRef {
        segment: word(),
        offset: word(),
        len: word(),
        checksum: checksum.first_chunk().map_or(0, |c| u32::from_le_bytes(*c)),
    }
}

fn head_checksum(salt: u64, offset: u64, head: &[u8; 16], refs: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(head);
    hasher.update(refs);
    hasher.finalize()
}

/// Appends a head and its references; `head.refs` is set to their number.
///
/// The caller makes sure that there are at most `u16::MAX` references.
pub(crate) fn encode_head(
    salt: u64,
    offset: u64,
    head: FrameHead,
    refs: impl ExactSizeIterator<Item = ValueRef>,
    out: &mut Vec<u8>,
) {
    let head = FrameHead { refs: u16::try_from(refs.len()).unwrap_or(u16::MAX), ..head }.to_bytes();
    out.extend_from_slice(&head);
    let checksum_at = out.len();
    out.extend_from_slice(&[0; 4]);
    for reference in refs {
        out.extend_from_slice(&reference.segment.to_le_bytes());
        out.extend_from_slice(&reference.offset.to_le_bytes());
        out.extend_from_slice(&reference.len.to_le_bytes());
        out.extend_from_slice(&reference.checksum.to_le_bytes());
    }
    let checksum = head_checksum(salt, offset, &head, &out[checksum_at + 4..]);
    out[checksum_at..checksum_at + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// The body of a barrier.
pub(crate) fn barrier_body(synced: Position) -> [u8; BARRIER_BODY_LEN] {
    let mut body = [0; BARRIER_BODY_LEN];
    body[..8].copy_from_slice(&synced.segment.to_le_bytes());
    body[8..].copy_from_slice(&synced.offset.to_le_bytes());
    body
}

/// Reads the body of a barrier.
pub(crate) fn parse_barrier_body(body: &[u8]) -> Option<Position> {
    let [segment, offset] = body.as_chunks::<8>().0 else { return None };
    Some(Position { segment: u64::from_le_bytes(*segment), offset: u64::from_le_bytes(*offset) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: FrameHead =
        FrameHead { class: FrameClass::Record, kind: 9, body_len: 1234, body_checksum: 77, refs: 2 };

    fn refs() -> [ValueRef; 2] {
        [1, 2].map(|n| ValueRef { segment: n, offset: 64 * n, len: 1 << (30 + n), checksum: 5 })
    }

    fn encoded() -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_head(42, 1000, HEAD, refs().into_iter(), &mut bytes);
        bytes
    }

    fn parse(salt: u64, offset: u64, bytes: &[u8]) -> Option<(FrameHead, Vec<ValueRef>)> {
        let (head, refs) = bytes.split_first_chunk().unwrap();
        let refs = refs.get(..FrameHead::refs_len(head))?;
        Some((FrameHead::parse(salt, offset, head, refs)?, FrameHead::parse_refs(refs)))
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_only_at_its_place() {
        let bytes = encoded();
        assert_eq!(parse(42, 1000, &bytes), Some((HEAD, refs().to_vec())));
        assert_eq!(parse(42, 1001, &bytes), None);
        assert_eq!(parse(43, 1000, &bytes), None);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for bit in 0..encoded().len() * 8 {
            let mut bytes = encoded();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(42, 1000, &bytes), None, "bit {bit}");
        }
    }

    #[test]
    fn a_barrier_is_read_as_it_was_written() {
        let position = Position { segment: 3, offset: 1 << 40 };
        assert_eq!(parse_barrier_body(&barrier_body(position)), Some(position));
        assert_eq!(parse_barrier_body(&barrier_body(position)[1..]), None);
    }
}
