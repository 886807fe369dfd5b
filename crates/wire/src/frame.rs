//! Length-prefixed frames: `u32` length of the body (little endian), one byte of kind, the body.
//!
//! Each kind has its own ceiling, checked before a byte of the body is waited for, so a peer
//! cannot make a node reserve memory by announcing a length.

use crate::codec::{self, CodecError};
use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;

/// The bytes before each body.
pub const HEADER_LEN: usize = 5;

/// What stands in a frame's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    Handshake = 1,
    Fabric = 2,
    Jobs = 3,
    Bulk = 4,
    /// Raw: transfer number (`u64`, little endian), then bytes of the blob.
    Chunk = 5,
    Relay = 6,
    Train = 7,
    /// Only on the stream of a rank of a user's program.
    Launch = 8,
}

impl FrameKind {
    pub const ALL: [FrameKind; 8] = [
        FrameKind::Handshake,
        FrameKind::Fabric,
        FrameKind::Jobs,
        FrameKind::Bulk,
        FrameKind::Chunk,
        FrameKind::Relay,
        FrameKind::Train,
        FrameKind::Launch,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// The longest body this kind may have.
    pub fn max_len(self) -> usize {
        match self {
            FrameKind::Handshake | FrameKind::Bulk => 64 << 10,
            FrameKind::Fabric | FrameKind::Relay | FrameKind::Launch => 1 << 20,
            FrameKind::Jobs | FrameKind::Train => 4 << 20,
            FrameKind::Chunk => (1 << 20) + 8,
        }
    }
}

/// One frame, its body sharing the memory it was read into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: FrameKind,
    pub body: Bytes,
}

/// Why a byte stream is not a sequence of frames.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    #[error("{kind:?} frame of {len} bytes, at most {max} are allowed")]
    TooLong { kind: FrameKind, len: usize, max: usize },
    #[error("connection ended {have} bytes into a frame")]
    Truncated { have: usize },
    #[error("unexpected {got:?} frame, expected {expected:?}")]
    Unexpected { expected: FrameKind, got: FrameKind },
}

/// Takes the next whole frame off the front of `buffer`, or `None` until more bytes came.
///
/// # Errors
/// The kind is unknown or the length over its ceiling; the stream cannot be used any more.
pub fn take(buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let Some((header, _)) = buffer.split_first_chunk::<HEADER_LEN>() else { return Ok(None) };
    let [l0, l1, l2, l3, kind] = *header;
    let kind = FrameKind::from_byte(kind).ok_or(FrameError::UnknownKind(kind))?;
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let max = kind.max_len();
    if len > max {
        return Err(FrameError::TooLong { kind, len, max });
    }
    if buffer.len() < HEADER_LEN + len {
        return Ok(None);
    }
    buffer.advance(HEADER_LEN);
    Ok(Some(Frame { kind, body: buffer.split_to(len).freeze() }))
}

/// Appends one frame holding `message`.
///
/// # Errors
/// The message cannot be encoded or is over its kind's ceiling; `out` is then as it was.
pub fn put<T: Serialize>(kind: FrameKind, message: &T, out: &mut BytesMut) -> Result<(), PutError> {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind as u8]);
    if let Err(error) = codec::encode_into(message, out) {
        out.truncate(start);
        return Err(error.into());
    }
    let len = out.len() - start - HEADER_LEN;
    let max = kind.max_len();
    if len > max {
        out.truncate(start);
        return Err(FrameError::TooLong { kind, len, max }.into());
    }
    // The ceiling of every kind is far below u32::MAX.
    let prefix = (len as u32).to_le_bytes();
    if let Some(slot) = out.get_mut(start..start + 4) {
        slot.copy_from_slice(&prefix);
    }
    Ok(())
}

/// The header of a [`FrameKind::Chunk`] frame with `data_len` bytes of a blob behind it.
pub fn chunk_header(transfer: u64, data_len: usize) -> [u8; HEADER_LEN + 8] {
    let mut header = [0; HEADER_LEN + 8];
    header[..4].copy_from_slice(&((data_len + 8) as u32).to_le_bytes());
    header[4] = FrameKind::Chunk as u8;
    header[5..].copy_from_slice(&transfer.to_le_bytes());
    header
}

/// Why a message could not be put into a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_whatever_the_cuts() {
        let mut stream = BytesMut::new();
        put(FrameKind::Fabric, &"one", &mut stream).unwrap();
        put(FrameKind::Jobs, &vec![1u8; 300], &mut stream).unwrap();
        let mut buffer = BytesMut::new();
        let mut seen = Vec::new();
        for byte in stream {
            buffer.extend_from_slice(&[byte]);
            while let Some(frame) = take(&mut buffer).unwrap() {
                seen.push(frame.kind);
            }
        }
        assert_eq!(seen, [FrameKind::Fabric, FrameKind::Jobs]);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_huge_length_is_refused_from_the_header_alone() {
        let mut buffer = BytesMut::from(&[0xff, 0xff, 0xff, 0xff, FrameKind::Jobs as u8][..]);
        let max = FrameKind::Jobs.max_len();
        assert_eq!(
            take(&mut buffer),
            Err(FrameError::TooLong { kind: FrameKind::Jobs, len: u32::MAX as usize, max })
        );
    }

    #[test]
    fn a_message_over_the_ceiling_leaves_the_buffer_as_it_was() {
        let mut out = BytesMut::from(&b"before"[..]);
        assert!(put(FrameKind::Handshake, &vec![0u8; 70 << 10], &mut out).is_err());
        assert_eq!(&out[..], b"before");
    }
}
