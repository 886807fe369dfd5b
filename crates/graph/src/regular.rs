//! Reading regular files whole: no device, whose bytes never end, and no pipe, which may never begin.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Opens a regular file, and says its length.
pub(crate) fn open(path: &Path) -> Result<(File, u64)> {
    let wrong = || Error::new(ErrorKind::InvalidInput, "it is no regular file");
    // Asked before it is opened, too: opening a pipe waits for a writer.
    let meta = std::fs::metadata(path)?;
    if meta.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !meta.is_file() {
        return Err(wrong());
    }
    let file = File::open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() { Ok((file, meta.len())) } else { Err(wrong()) }
}

/// Reads up to `len` bytes, for which room is made once; a refusal of memory is an error.
pub(crate) fn read(file: File, len: u64) -> Result<Vec<u8>> {
    let room = usize::try_from(len).ok().ok_or(ErrorKind::OutOfMemory)?;
    let mut data = Vec::new();
    data.try_reserve_exact(room)?;
    file.take(len).read_to_end(&mut data)?;
    Ok(data)
}
