//! Memory-mapped files.

mod truncation;

pub(crate) use truncation::Watch;

use crate::error::DataError;
use bytes::Bytes;
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;

/// The bytes of a file, loaded by the system when they are first touched.
///
/// If the file becomes shorter while it is mapped, what is missing reads as zeros, and the watch of the map says so.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub fn map(path: &Path) -> Result<Bytes, DataError> {
    let (file, _) = open_regular(path)?;
    let read = |source| DataError::Read { file: path.to_owned(), source };
    let meta = file.metadata().map_err(read)?;
    if meta.len() == 0 {
        return Ok(Bytes::new());
    }
    let map = map_file(&file).map_err(read)?;
    Ok(Bytes::from_owner(truncation::Watched::new(map, file)))
}

/// The bytes of an open file, which may have no name. It must not become shorter while it is mapped.
///
/// # Errors
/// The system cannot map it.
pub fn map_open(file: &File) -> std::io::Result<Bytes> {
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    Ok(Bytes::from_owner(map_file(file)?))
}

#[expect(unsafe_code, reason = "a file can only be mapped so")]
fn map_file(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the map is only read, and only as bytes, for which every value is valid. A file of samples that is
    // truncated is watched (`truncation.rs`); of others that are, the system ends the process when the missing part is
    // read, as for any program that maps its data.
    unsafe { Mmap::map(file) }
}

/// Opens a regular file, and says its length. A device may never end, and opening a pipe may wait for ever, so neither
/// is opened.
pub(crate) fn open_regular(path: &Path) -> Result<(File, u64), DataError> {
    let open = |source| DataError::Open { file: path.to_owned(), source };
    regular(path, &std::fs::metadata(path).map_err(open)?)?;
    // Without waiting, should a pipe have taken the file's place in the meantime.
    let file = unblocked(path).map_err(open)?;
    let meta = file.metadata().map_err(open)?;
    regular(path, &meta)?;
    Ok((file, meta.len()))
}

#[cfg(unix)]
fn unblocked(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

#[cfg(not(unix))]
fn unblocked(path: &Path) -> std::io::Result<File> {
    File::open(path)
}

fn regular(path: &Path, meta: &std::fs::Metadata) -> Result<(), DataError> {
    let file = path.to_owned();
    if meta.is_dir() {
        return Err(DataError::Read { file, source: std::io::ErrorKind::IsADirectory.into() });
    }
    if !meta.is_file() {
        return Err(DataError::NotRegular { file });
    }
    Ok(())
}
