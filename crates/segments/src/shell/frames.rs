//! Writing and reading the records of journal and snapshot files.

use super::file_error::FileError;
use super::write_at::write_all_at;
use crate::core::{
    BARRIER_LEN, FileHeader, FrameClass, FrameHead, HEAD_LEN, HEADER_LEN, Position, ValueRef, barrier_body,
    encode_head, parse_barrier_body,
};
use bytes::Bytes;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const READ_AHEAD: usize = 1 << 20;

/// Records that are written together. Bodies stay where they are.
#[derive(Debug, Default)]
pub(crate) struct FrameBatch {
    heads: Vec<u8>,
    pieces: Vec<Piece>,
    len: u64,
}

#[derive(Debug)]
enum Piece {
    Own(Range<usize>),
    Part(Bytes),
}

/// What a record holds besides its references.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameBody<'a> {
    pub(crate) kind: u8,
    pub(crate) parts: &'a [Bytes],
    pub(crate) len: u64,
    pub(crate) checksum: u32,
}

impl FrameBatch {
    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.pieces.clear();
        self.len = 0;
    }

    /// Bytes of all records.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes that the batch itself holds.
    pub(crate) fn memory(&self) -> usize {
        self.heads.len() + self.pieces.len() * size_of::<Piece>()
    }

    /// Adds a record; the batch is going to be written to `start` of a file with this salt.
    pub(crate) fn push(
        &mut self,
        salt: u64,
        start: u64,
        body: FrameBody<'_>,
        refs: impl ExactSizeIterator<Item = ValueRef>,
    ) {
        let head = FrameHead {
            class: FrameClass::Record,
            kind: body.kind,
            body_len: body.len,
            body_checksum: body.checksum,
            refs: 0,
        };
        self.push_head(salt, start, head, refs);
        self.pieces.extend(body.parts.iter().cloned().map(Piece::Part));
        self.len += body.len;
    }

    /// Adds a record of this crate's own.
    pub(crate) fn push_own(&mut self, salt: u64, start: u64, class: FrameClass, body: &[u8]) {
        let body_checksum = crc32fast::hash(body);
        let head = FrameHead { class, kind: 0, body_len: body.len() as u64, body_checksum, refs: 0 };
        self.push_head(salt, start, head, std::iter::empty());
        let from = self.heads.len();
        self.heads.extend_from_slice(body);
        self.pieces.push(Piece::Own(from..self.heads.len()));
        self.len += body.len() as u64;
    }

    pub(crate) fn push_barrier(&mut self, salt: u64, start: u64, synced: Position) {
        self.push_own(salt, start, FrameClass::Barrier, &barrier_body(synced));
    }

    fn push_head(
        &mut self,
        salt: u64,
        start: u64,
        head: FrameHead,
        refs: impl ExactSizeIterator<Item = ValueRef>,
    ) {
        let from = self.heads.len();
        encode_head(salt, start + self.len, head, refs, &mut self.heads);
        self.len += (self.heads.len() - from) as u64;
        self.pieces.push(Piece::Own(from..self.heads.len()));
    }

    /// Writes all records to the place that was said when they were added.
    pub(crate) fn write(&self, file: &File, start: u64) -> io::Result<()> {
        let bytes = self.pieces.iter().map(|piece| match piece {
            Piece::Own(range) => self.heads.get(range.clone()).unwrap_or_default(),
            Piece::Part(part) => part,
        });
        write_all_at(file, start, bytes)
    }
}

/// What comes next in a file.
#[derive(Debug)]
pub(crate) enum NextFrame {
    Frame(Frame),
    /// The file ends behind a whole record.
    Eof,
    /// What is here is not a whole record.
    Bad,
}

/// A whole record, as it was written.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) at: u64,
    pub(crate) class: FrameClass,
    pub(crate) kind: u8,
    pub(crate) refs: Vec<ValueRef>,
    pub(crate) body: Vec<u8>,
}

/// Reads the records of a file in order.
#[derive(Debug)]
pub(crate) struct FrameReader {
    reader: BufReader<File>,
    pub(crate) path: PathBuf,
    salt: u64,
    /// Where the next record begins.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl FrameReader {
    pub(crate) fn new(
        mut file: File,
        path: PathBuf,
        header: &FileHeader,
        len: u64,
    ) -> Result<Self, FileError> {
        let offset = HEADER_LEN as u64;
        file.seek(SeekFrom::Start(offset)).map_err(FileError::when("read", &path))?;
        Ok(Self { reader: BufReader::with_capacity(READ_AHEAD, file), path, salt: header.salt, offset, len })
    }

    pub(crate) fn next(&mut self) -> Result<NextFrame, FileError> {
        match self.try_next() {
            Ok(next) => Ok(next),
            // The file is shorter than it was when it was opened.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(NextFrame::Bad),
            Err(error) => Err(FileError::when("read", &self.path)(error)),
        }
    }

    fn try_next(&mut self) -> io::Result<NextFrame> {
        let at = self.offset;
        let mut left = self.len.saturating_sub(at);
        if left == 0 {
            return Ok(NextFrame::Eof);
        }
        if left < HEAD_LEN as u64 {
            return Ok(NextFrame::Bad);
        }
        let mut head = [0; HEAD_LEN];
        self.reader.read_exact(&mut head)?;
        left -= HEAD_LEN as u64;
        let refs_len = FrameHead::refs_len(&head);
        if refs_len as u64 > left {
            return Ok(NextFrame::Bad);
        }
        let mut refs = vec![0; refs_len];
        self.reader.read_exact(&mut refs)?;
        left -= refs_len as u64;
        let Some(parsed) = FrameHead::parse(self.salt, at, &head, &refs) else { return Ok(NextFrame::Bad) };
        let Some(body_len) = usize::try_from(parsed.body_len).ok().filter(|_| parsed.body_len <= left) else {
            return Ok(NextFrame::Bad);
        };
        let mut body = vec![0; body_len];
        self.reader.read_exact(&mut body)?;
        if crc32fast::hash(&body) != parsed.body_checksum {
            return Ok(NextFrame::Bad);
        }
        self.offset = at + (HEAD_LEN + refs_len + body_len) as u64;
        let refs = FrameHead::parse_refs(&refs);
        Ok(NextFrame::Frame(Frame { at, class: parsed.class, kind: parsed.kind, refs, body }))
    }

    /// Looks at every byte behind a bad record for barriers, and returns the farthest position that one names.
    pub(crate) fn find_barrier(&self) -> Result<Option<Position>, FileError> {
        let file = self.reader.get_ref();
        let mut farthest = None;
        let mut start = self.offset;
        let mut buffer = vec![0; READ_AHEAD];
        while start + BARRIER_LEN as u64 <= self.len {
            let len = usize::try_from(self.len - start).unwrap_or(READ_AHEAD).min(READ_AHEAD);
            let chunk = &mut buffer[..len];
            file.read_exact_at(chunk, start).map_err(FileError::when("read", &self.path))?;
            for (at, bytes) in (start..).zip(chunk.windows(BARRIER_LEN)) {
                farthest = farthest.max(barrier_at(self.salt, at, bytes));
            }
            start += (len - BARRIER_LEN + 1) as u64;
        }
        Ok(farthest)
    }
}

/// The position that a barrier at this place names, if there is one.
fn barrier_at(salt: u64, at: u64, bytes: &[u8]) -> Option<Position> {
    let (head, body) = bytes.split_first_chunk::<HEAD_LEN>()?;
    // Most places are told apart by the length and the class.
    if head[..8] != (body.len() as u64).to_le_bytes() || head[13] != FrameClass::Barrier as u8 {
        return None;
    }
    let parsed = FrameHead::parse(salt, at, head, &[])?;
    (parsed.body_checksum == crc32fast::hash(body)).then(|| parse_barrier_body(body))?
}
