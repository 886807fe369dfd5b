//! The first bytes of a segment file.

use super::Position;

/// The last byte is the version of the format.
const MAGIC: [u8; 8] = *b"PHLXSEG1";
/// Magic, kind, number, salt, synced position, checksum, zeros up to a multiple of 64.
pub(crate) const HEADER_LEN: usize = 64;
const CHECKED: usize = 48;

/// What a segment file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Journal = 1,
    Snapshot = 2,
    Values = 3,
}

/// The header of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) kind: FileKind,
    pub(crate) number: u64,
    /// Random. All checksums of record heads are over it, so that bytes of another file or bytes that a client chose
    /// are not taken for records.
    pub(crate) salt: u64,
    /// Everything before this position of the journal was known to be on disk when the file was made.
    pub(crate) synced: Position,
}

/// Why bytes are not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderProblem {
    /// The file was being made when the process or the machine died: short, or zeros.
    Unfinished,
    /// Other bytes than the ones that were written.
    Damaged,
}

impl FileHeader {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let words = [self.kind as u64, self.number, self.salt, self.synced.segment, self.synced.offset];
        bytes[..8].copy_from_slice(&MAGIC);
        for (word, place) in words.iter().zip(bytes[8..CHECKED].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let checksum = crc32fast::hash(&bytes[..CHECKED]);
        bytes[CHECKED..CHECKED + 4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the header at the front of `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, HeaderProblem> {
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else { return Err(HeaderProblem::Unfinished) };
        let word = |at: usize| {
            header.get(at..).and_then(|b| b.first_chunk::<8>()).map_or(0, |b| u64::from_le_bytes(*b))
        };
        let kind = match word(8) {
            1 => FileKind::Journal,
            2 => FileKind::Snapshot,
            3 => FileKind::Values,
            _ if bytes.iter().all(|b| *b == 0) => return Err(HeaderProblem::Unfinished),
            _ => return Err(HeaderProblem::Damaged),
        };
        let parsed = Self {
            kind,
            number: word(16),
            salt: word(24),
            synced: Position { segment: word(32), offset: word(40) },
        };
        if parsed.to_bytes() == *header { Ok(parsed) } else { Err(HeaderProblem::Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FileHeader {
        FileHeader {
            kind: FileKind::Values,
            number: 7,
            salt: 0x0123_4567_89ab_cdef,
            synced: Position { segment: 3, offset: 99 },
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        assert_eq!(FileHeader::parse(&header().to_bytes()), Ok(header()));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for bit in 0..HEADER_LEN * 8 {
            let mut bytes = header().to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FileHeader::parse(&bytes), Err(HeaderProblem::Damaged), "bit {bit}");
        }
    }

    #[test]
    fn short_and_empty_files_are_unfinished() {
        for len in 0..HEADER_LEN {
            assert_eq!(FileHeader::parse(&header().to_bytes()[..len]), Err(HeaderProblem::Unfinished));
        }
        assert_eq!(FileHeader::parse(&[0; 4096]), Err(HeaderProblem::Unfinished));
    }
}
