//! Whole lines of a file that may be growing.

use crate::run_dir::RunDirError;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How much is read at once.
const CHUNK: u64 = 1 << 20;
/// The longest line that is read; a longer one is damage, and is skipped.
const LONGEST: u64 = 64 << 20;

/// How much is read at once from the end.
const TAIL: u64 = 16 << 10;

/// Whole lines from a position on.
#[derive(Debug)]
pub(super) struct Chunk {
    begin: u64,
    bytes: Vec<u8>,
    /// The position after them.
    pub(super) end: u64,
    /// Whether no whole line follows.
    pub(super) is_all: bool,
}

impl Chunk {
    /// The lines with their positions, without line ends; empty ones are left out.
    pub(super) fn lines(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut at = self.begin;
        let lines = self.bytes.split_inclusive(|byte| *byte == b'\n').map(move |line| {
            let begin = at;
            at += line.len() as u64;
            (begin, line.trim_ascii_end())
        });
        lines.filter(|(_, line)| !line.is_empty())
    }
}

/// Reads whole lines from a position on. A file that is not there, or is shorter, has none.
pub(super) fn read_chunk(path: &Path, begin: u64) -> Result<Chunk, RunDirError> {
    let failed = |source| RunDirError::Io { what: "read", path: path.to_owned(), source };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Chunk { begin, bytes: Vec::new(), end: begin, is_all: true });
        }
        Err(error) => return Err(failed(error)),
    };
    let mut most = CHUNK;
    loop {
        file.seek(SeekFrom::Start(begin)).map_err(failed)?;
        let mut bytes = Vec::new();
        (&mut file).take(most).read_to_end(&mut bytes).map_err(failed)?;
        let is_all = (bytes.len() as u64) < most;
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => bytes.truncate(last + 1),
            // The beginning of a line.
            None if is_all => bytes.clear(),
            None if most < LONGEST => {
                most *= 8;
                continue;
            }
            // Its end is read as a line that cannot be understood.
            None => {}
        }
        let end = begin + bytes.len() as u64;
        return Ok(Chunk { begin, bytes, end, is_all });
    }
}

/// Where the whole lines of a file end; 0 if it is not there.
pub(super) fn end_of_lines(path: &Path) -> Result<u64, RunDirError> {
    let failed = |source| RunDirError::Io { what: "read", path: path.to_owned(), source };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(failed(error)),
    };
    let mut end = file.metadata().map_err(failed)?.len();
    while end > 0 {
        let begin = end.saturating_sub(TAIL);
        file.seek(SeekFrom::Start(begin)).map_err(failed)?;
        let mut bytes = Vec::new();
        (&mut file).take(end - begin).read_to_end(&mut bytes).map_err(failed)?;
        if let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + last as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}
