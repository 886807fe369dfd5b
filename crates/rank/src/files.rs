//! Files of a run that this node does not have: they come from another node, once, and are kept.

use crate::error::{FileProblem, RankError};
use bytes::Bytes;
use phalanx_data::map_open;
use phalanx_train::config::Override;
use phalanx_wire::train::FileRef;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Brings the bytes of a file from the driver.
pub(super) type FetchFile = Box<dyn Fn(&FileRef) -> Result<Bytes, FileProblem> + Send>;

/// The SHA-256 of a file.
pub type FileHash = [u8; 32];

/// A file as another node has it.
#[derive(Debug, Clone, Copy)]
pub struct WantedFile<'a> {
    /// Where the other node has it.
    pub path: &'a str,
    pub bytes: u64,
    pub sha256: &'a FileHash,
}

/// The hashes of files, each computed once for as long as the file has the same length and time.
#[derive(Debug, Default)]
pub struct FileHashes(BTreeMap<(PathBuf, u64, Option<SystemTime>), FileHash>);

impl FileHashes {
    /// The hash and the length of a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(&mut self, path: &Path) -> io::Result<(FileHash, u64)> {
        let about = std::fs::metadata(path)?;
        let state = (path.to_owned(), about.len(), about.modified().ok());
        if let Some(hash) = self.0.get(&state) {
            return Ok((*hash, about.len()));
        }
        let bytes = map_open(&File::open(path)?)?;
        let hash = hash_of(&bytes);
        self.0.insert(state, hash);
        Ok((hash, bytes.len() as u64))
    }
}

/// Files of other nodes that this node has: where they have them, too, or in a directory of its own.
#[derive(Debug)]
pub struct FileCache {
    dir: PathBuf,
    hashes: FileHashes,
}

impl FileCache {
    /// Files that are kept in a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), hashes: FileHashes::default() }
    }

    /// Files that are kept where this user's caches are; `PHALANX_CACHE_DIR` names another place.
    pub fn usual() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let own = set("PHALANX_CACHE_DIR").or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("phalanx")));
        let home = || set("HOME").map(|home| home.join(".cache").join("phalanx"));
        Self::new(
            own.or_else(home).unwrap_or_else(|| std::env::temp_dir().join("phalanx-cache")).join("files"),
        )
    }

    /// Where a file is on this node; fetched if it is not here.
    ///
    /// # Errors
    /// It cannot be fetched or written, or what came is another file.
    pub fn bring(
        &mut self,
        file: WantedFile<'_>,
        fetch: impl FnOnce() -> Result<Bytes, FileProblem>,
    ) -> Result<PathBuf, RankError> {
        if self.has(Path::new(file.path), file) {
            return Ok(file.path.into());
        }
        // Only the last part of the other node's name: nothing is written outside of the directory.
        let name = Path::new(file.path).file_name().map_or_else(|| "file".into(), ToOwned::to_owned);
        let dir = self.dir.join(hex(file.sha256));
        let path = dir.join(name);
        if self.has(&path, file) {
            return Ok(path);
        }
        let failed = |problem| RankError::File { path: file.path.to_owned(), problem };
        let bytes = fetch().map_err(failed)?;
        if hash_of(&bytes) != *file.sha256 {
            return Err(failed(FileProblem::OtherBytes));
        }
        match write_new(&dir, &path, &bytes) {
            Err(source) if !self.has(&path, file) => Err(failed(FileProblem::Write { path, source })),
            _ => Ok(path),
        }
    }

    /// Whether a file is there and is the one that is meant.
    fn has(&mut self, path: &Path, file: WantedFile<'_>) -> bool {
        let same_size = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == file.bytes);
        same_size && self.hashes.of(path).is_ok_and(|(hash, _)| hash == *file.sha256)
    }
}

/// Other nodes of this host or process may be at it, too.
fn write_new(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let beside = dir.join(format!(".{}-{number}.tmp", std::process::id()));
    std::fs::create_dir_all(dir)?;
    std::fs::write(&beside, bytes)?;
    std::fs::rename(&beside, path)
}

/// Sees that every file is here, and says under which names.
pub(super) fn bring(
    files: &[FileRef],
    fetch: &FetchFile,
    cache: &mut FileCache,
) -> Result<Vec<Override>, RankError> {
    let mut said = Vec::new();
    for file in files {
        let wanted = WantedFile { path: &file.path, bytes: file.bytes, sha256: &file.sha256 };
        let path = cache.bring(wanted, || fetch(file))?;
        if path == Path::new(&file.path) {
            continue;
        }
        // A text in JSON is one in TOML.
        let text = serde_json::Value::from(path.to_string_lossy()).to_string();
        said.push(Override::flag("the driver", &file.key, text));
    }
    Ok(said)
}

fn hash_of(bytes: &[u8]) -> FileHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    hash
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text does not fail.
        let _written = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_wire::bulk::BlobId;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    fn file(path: &Path, bytes: &[u8]) -> FileRef {
        let path = path.to_string_lossy().into_owned();
        FileRef {
            key: "data.train.file".to_owned(),
            path,
            bytes: bytes.len() as u64,
            sha256: hash_of(bytes),
            blob: BlobId(1),
        }
    }

    #[test]
    fn what_is_here_is_used_and_the_rest_comes_once() {
        let dir = tempfile::tempdir().unwrap();
        let (here, mut cache) = (dir.path().join("here.npz"), FileCache::new(dir.path().join("kept")));
        std::fs::write(&here, b"here").unwrap();
        let fetched = Arc::new(AtomicUsize::new(0));
        let count = fetched.clone();
        let fetch: FetchFile = Box::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Bytes::from_static(b"there"))
        });
        let there = file(Path::new("/nowhere/../there.npz"), b"there");
        for _ in 0..2 {
            let said = bring(&[file(&here, b"here"), there.clone()], &fetch, &mut cache).unwrap();
            let [said] = said.as_slice() else { panic!("{said:?}") };
            assert!(said.value.contains("kept") && said.value.ends_with("there.npz\""), "{said:?}");
        }
        assert_eq!(fetched.load(Ordering::Relaxed), 1);
        // Another file of the same length is another file.
        let other = FileRef { sha256: [9; 32], ..file(&here, b"here") };
        assert!(bring(&[other], &fetch, &mut cache).unwrap_err().to_string().contains("other bytes"));
    }

    #[test]
    fn a_file_that_has_changed_has_another_hash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let mut hashes = FileHashes::default();
        for bytes in [&b"first"[..], b"second"] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(hashes.of(&path).unwrap(), (hash_of(bytes), bytes.len() as u64));
        }
        assert!(hashes.of(&dir.path().join("nowhere")).is_err());
    }
}
