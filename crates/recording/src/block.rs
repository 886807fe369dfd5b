//! The bytes of a recording: a magic number, then blocks of `length, checksums, body`.
//!
//! Entries are gathered into blocks of up to some tens of kilobytes, so that a checksum and a
//! system call are paid for once per block and not once per entry.

/// What every recording begins with.
pub(crate) const MAGIC: [u8; 8] = *b"PHLXREC\n";
/// The format of blocks, headers and entries.
pub(crate) const FORMAT: u32 = 1;
/// The magic number and the format, little endian.
pub(crate) const PREAMBLE_LEN: usize = 12;
/// Length, checksum of the length, checksum of the body: `u32` each, little endian. The length has
/// its own checksum, so that a damaged length is not taken for a block that was cut short.
pub(crate) const PREFIX_LEN: usize = 12;

/// What a block holds; its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// The header of a section and the configuration of its core.
    Section = 0,
    /// Entries of the section before.
    Entries = 1,
}

pub(crate) fn preamble() -> [u8; PREAMBLE_LEN] {
    let mut bytes = [0; PREAMBLE_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&FORMAT.to_le_bytes());
    bytes
}

/// Begins a block in an empty buffer.
pub(crate) fn begin(kind: BlockKind, buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.extend_from_slice(&[0; PREFIX_LEN]);
    buffer.push(kind as u8);
}

/// Fills in the prefix of a block that [`begin`] began; `false` when it is too long for one.
pub(crate) fn seal(buffer: &mut [u8]) -> bool {
    let Some((prefix, body)) = buffer.split_first_chunk_mut::<PREFIX_LEN>() else { return false };
    let Ok(len) = u32::try_from(body.len()) else { return false };
    let len = len.to_le_bytes();
    prefix[..4].copy_from_slice(&len);
    prefix[4..8].copy_from_slice(&crc32fast::hash(&len).to_le_bytes());
    prefix[8..].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    true
}

/// What stands at the front of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Front<'a> {
    Whole { kind: BlockKind, body: &'a [u8], len: usize },
    Torn,
    Damaged,
}

/// Reads the block at the front of `bytes`.
pub(crate) fn front(bytes: &[u8]) -> Front<'_> {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_LEN>() else { return Front::Torn };
    let [len @ .., l0, l1, l2, l3, b0, b1, b2, b3] = *prefix;
    if crc32fast::hash(&len) != u32::from_le_bytes([l0, l1, l2, l3]) {
        // A file that grew before its bytes reached the disk ends in zeros.
        return if bytes.iter().all(|b| *b == 0) { Front::Torn } else { Front::Damaged };
    }
    let len = u32::from_le_bytes(len) as usize;
    let Some(body) = rest.get(..len) else { return Front::Torn };
    if crc32fast::hash(body) != u32::from_le_bytes([b0, b1, b2, b3]) {
        // The last block may have reached the disk in parts.
        return if len == rest.len() { Front::Torn } else { Front::Damaged };
    }
    let kind = match body.first() {
        Some(0) => BlockKind::Section,
        Some(1) => BlockKind::Entries,
        _ => return Front::Damaged,
    };
    Front::Whole { kind, body: body.get(1..).unwrap_or_default(), len: PREFIX_LEN + len }
}
