//! Memory-mapped files: the only `unsafe` code of this crate.

use crate::error::DataError;
use bytes::Bytes;
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;

/// The bytes of a file, loaded by the system when they are first touched.
///
/// # Errors
/// It cannot be opened, or is a folder.
pub fn map(path: &Path) -> Result<Bytes, DataError> {
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let (meta, file) = opened.map_err(|source| DataError::Open { file: path.to_owned(), source })?;
    let read = |source| DataError::Read { file: path.to_owned(), source };
    if meta.is_dir() {
        return Err(read(std::io::ErrorKind::IsADirectory.into()));
    }
    map_open(&file).map_err(read)
}

/// The bytes of an open file, which may have no name.
///
/// # Errors
/// The system cannot map it.
#[expect(unsafe_code, reason = "a file can only be mapped so")]
pub fn map_open(file: &File) -> std::io::Result<Bytes> {
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is only read, and only as bytes, for which every value is valid. The file must not be truncated
    // while it is mapped, as for any program that maps its data: then the system ends the process. To replace the data,
    // write a new file and rename it.
    let map = unsafe { Mmap::map(file) }?;
    Ok(Bytes::from_owner(map))
}
