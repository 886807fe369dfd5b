//! Files of a run directory: which there are, and their hashes.

use crate::core::path::{FilePath, PUSHING};
use crate::core::plan::LocalFile;
use crate::error::ArtifactError;
use ring::digest::{Context, SHA256};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Read at a time when a file is hashed.
const BLOCK: usize = 1 << 20;
/// Files that say something about this machine or this moment, and what others are made from.
const OURS: [&str; 4] = ["lock", "live.json", PUSHING, crate::core::path::PULLING];

/// A file of a run, and how it was when it was hashed.
#[derive(Debug, Clone)]
pub(crate) struct Hashed {
    pub(crate) local: LocalFile,
    pub(crate) path: PathBuf,
    stamp: Stamp,
}

/// Tells a file that was written since from one that was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64);

fn stamp(file: &std::fs::Metadata) -> Stamp {
    Stamp(file.len(), file.ino(), file.mtime(), file.mtime_nsec())
}

/// Which files of a run there are, in the order of their names. Symbolic links are left out: what they lead to may not
/// be of the run.
pub(crate) fn of_run(run: &Path) -> Result<Vec<(FilePath, PathBuf)>, ArtifactError> {
    let mut found = Vec::new();
    let mut folders = vec![(run.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        let failed = |source| ArtifactError::Local { what: "read", path: folder.clone(), source };
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            let kind = entry.file_type().map_err(failed)?;
            let refused = |source| ArtifactError::Path { path: path.clone(), source };
            let name = entry.file_name().into_string();
            let name = name.map_err(|_bytes| refused(crate::core::path::PathFault::Character))?;
            if prefix.is_empty() && OURS.contains(&name.as_str()) || name.ends_with(".tmp") {
                continue;
            }
            let whole = format!("{prefix}{name}");
            if kind.is_dir() {
                folders.push((path, format!("{whole}/")));
            } else if kind.is_file() {
                found.push((FilePath::new(&whole).map_err(refused)?, path));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Hashes files, on a thread that may block.
pub(crate) async fn hash(files: Vec<(FilePath, PathBuf)>) -> Result<Vec<Hashed>, ArtifactError> {
    blocking(move || files.into_iter().map(|(name, path)| hash_one(name, path)).collect()).await
}

fn hash_one(name: FilePath, path: PathBuf) -> Result<Hashed, ArtifactError> {
    let failed = |source| ArtifactError::Local { what: "read", path: path.clone(), source };
    let mut file = File::open(&path).map_err(failed)?;
    let stamp = stamp(&file.metadata().map_err(failed)?);
    let (size, sha256) = hash_of(&mut file).map_err(failed)?;
    let local = LocalFile { path: name, size, sha256 };
    Ok(Hashed { local, path, stamp })
}

/// The length and the hash of what can be read.
pub(crate) fn hash_of(file: &mut impl Read) -> std::io::Result<(u64, String)> {
    let mut context = Context::new(&SHA256);
    let mut block = vec![0; BLOCK];
    let mut size = 0;
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok((size, hex(context.finish().as_ref()))),
            Ok(read) => {
                context.update(&block[..read]);
                size += read as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Hashed {
    /// Reads a part of the file.
    pub(crate) async fn read(&self, at: u64, len: u64) -> Result<Vec<u8>, ArtifactError> {
        let path = self.path.clone();
        blocking(move || {
            let failed = |source: std::io::Error| match source.kind() {
                std::io::ErrorKind::UnexpectedEof => ArtifactError::Changed { path: path.clone() },
                _ => ArtifactError::Local { what: "read", path: path.clone(), source },
            };
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
            let file = File::open(&path).map_err(failed)?;
            file.read_exact_at(&mut bytes, at).map_err(failed)?;
            Ok(bytes)
        })
        .await
    }

    /// That it was not written since it was hashed.
    pub(crate) fn check_unchanged(&self) -> Result<(), ArtifactError> {
        match std::fs::metadata(&self.path) {
            Ok(now) if stamp(&now) == self.stamp => Ok(()),
            _ => Err(ArtifactError::Changed { path: self.path.clone() }),
        }
    }
}

/// Does something that blocks, on a thread for that.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ArtifactError> + Send + 'static,
) -> Result<T, ArtifactError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
}
