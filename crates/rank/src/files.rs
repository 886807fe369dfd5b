//! Files that this node keeps for runs: they come from another node, once, and are known by their hash.
//!
//! A peer decides what is in a file and how long it is, never where it is on this node. Files are kept in a directory
//! of the user's own, by hash and by the last part of the peer's name for them, and are read from there or from a
//! directory that the node was allowed to use ([`DataRoots`]).

use super::data_roots::DataRoots;
use crate::error::{FileProblem, RankError};
use bytes::Bytes;
use phalanx_own_files::{
    link_private, open_private, open_regular, own_dir, plain_name, user_temp_dir, write_private,
};
use ring::digest::{Context, SHA256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes that are hashed at once.
const BLOCK: usize = 1 << 20;

/// The SHA-256 of a file.
pub type FileHash = [u8; 32];

/// A file as another node has it.
#[derive(Debug, Clone, Copy)]
pub struct WantedFile<'a> {
    /// The key of the run file that names it, or the folder that it is in.
    pub key: &'a str,
    /// Where the other node has it.
    pub path: &'a str,
    pub bytes: u64,
    pub sha256: &'a FileHash,
}

/// Which file it is, how long, and when it was written last.
type FileState = (u64, u64, u64, Option<SystemTime>);

/// The hashes of files, each computed once for as long as the file has the same length and time.
#[derive(Debug, Default)]
pub struct FileHashes(BTreeMap<FileState, FileHash>);

impl FileHashes {
    /// The hash and the length of a regular file.
    ///
    /// # Errors
    /// It cannot be read, or is a pipe or a device.
    pub fn of(&mut self, path: &Path) -> io::Result<(FileHash, u64)> {
        self.of_open(&open_regular(path)?)
    }

    /// The same for an open file.
    fn of_open(&mut self, mut file: &File) -> io::Result<(FileHash, u64)> {
        let about = file.metadata()?;
        let state = (about.dev(), about.ino(), about.len(), about.modified().ok());
        if let Some(hash) = self.0.get(&state) {
            return Ok((*hash, about.len()));
        }
        let (mut context, mut block, mut len) = (Context::new(&SHA256), vec![0; BLOCK], 0);
        loop {
            let read = file.read(&mut block)?;
            if read == 0 {
                break;
            }
            context.update(block.get(..read).unwrap_or_default());
            len += read as u64;
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(context.finish().as_ref());
        if len == about.len() {
            self.0.insert(state, hash);
        }
        Ok((hash, len))
    }
}

/// Files of other nodes that this node has, in a directory of the user's own.
#[derive(Debug)]
pub struct FileCache {
    /// Above `dir`; only this user can read it.
    base: PathBuf,
    dir: PathBuf,
    roots: DataRoots,
    hashes: FileHashes,
    /// The longest file that is fetched.
    most: u64,
}

impl FileCache {
    /// Files that are kept in a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let base = dir.into();
        let dir = base.join("files");
        Self { base, dir, roots: DataRoots::default(), hashes: FileHashes::default(), most: u64::MAX }
    }

    /// Files that are kept where this user's caches are; `PHALANX_CACHE_DIR` names another place.
    pub fn usual() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let own = set("PHALANX_CACHE_DIR").or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("phalanx")));
        let home = || set("HOME").map(|home| home.join(".cache").join("phalanx"));
        Self::new(own.or_else(home).unwrap_or_else(user_temp_dir))
    }

    /// The same for a node that may use these directories, too.
    #[must_use]
    pub fn with_roots(self, roots: DataRoots) -> Self {
        Self { roots, ..self }
    }

    /// The same for a node that fetches no longer files than this.
    #[must_use]
    pub fn with_limit(self, most: u64) -> Self {
        Self { most, ..self }
    }

    /// Where a path of a run file is on this node that its driver has not listed.
    pub(crate) fn unlisted(&self, named: &Path) -> Option<PathBuf> {
        self.roots.find(named)
    }

    /// Where a file is on this node; fetched if it is not here.
    ///
    /// # Errors
    /// It cannot be fetched or written, it is too long, or what came is another file.
    pub fn bring(
        &mut self,
        file: WantedFile<'_>,
        fetch: impl FnOnce() -> Result<Bytes, FileProblem>,
    ) -> Result<PathBuf, RankError> {
        if let Some(path) = self.in_roots(file) {
            return Ok(path);
        }
        let failed = |problem| RankError::File { path: file.path.to_owned(), problem };
        let name = plain_name(Path::new(file.path)).ok_or_else(|| failed(FileProblem::Name))?;
        let dir = self.dir.join(hex(file.sha256));
        let path = dir.join(name);
        if self.has(&dir, name, file) {
            return Ok(path);
        }
        if file.bytes > self.most {
            return Err(failed(FileProblem::TooLong { bytes: file.bytes, limit: self.most }));
        }
        let bytes = fetch().map_err(failed)?;
        if bytes.len() as u64 != file.bytes || hash_of(&bytes) != *file.sha256 {
            return Err(failed(FileProblem::OtherBytes));
        }
        let write = || self.own_dirs(&dir).and_then(|()| write_private(&path, &bytes));
        write().map_err(|source| failed(FileProblem::Write { path: path.clone(), source }))?;
        Ok(path)
    }

    /// Lets nodes of this user on this host find a file under its hash without a copy.
    ///
    /// Does nothing where that is not possible: then nodes fetch the file.
    pub fn share(&self, path: &Path, sha256: &FileHash) {
        let Some(name) = plain_name(path) else { return };
        let dir = self.dir.join(hex(sha256));
        let shared = self.own_dirs(&dir).and_then(|()| link_private(path, &dir.join(name)));
        if let Err(error) = shared {
            tracing::debug!(%error, "nodes of this host fetch a file");
        }
    }

    /// Puts files into a directory of this cache, under these names in it; gives the directory. `files` are where
    /// [`FileCache::bring`] has put them.
    pub(crate) fn tree(&mut self, files: &[(PathBuf, PathBuf, FileHash)]) -> io::Result<PathBuf> {
        let mut all = Context::new(&SHA256);
        for (name, _, hash) in files {
            all.update(name.as_os_str().as_encoded_bytes());
            all.update(&[0]);
            all.update(hash);
        }
        let tree = self.base.join("trees").join(hex(all.finish().as_ref()));
        own_dir(&self.base)?;
        own_dir(&self.base.join("trees"))?;
        own_dir(&tree)?;
        for (name, path, hash) in files {
            let to = tree.join(name);
            let (Some(dir), Some(file)) = (to.parent(), to.file_name()) else { continue };
            let mut there = || Some(self.hashes.of_open(&open_private(dir, Path::new(file)).ok()?).ok()?.0);
            if there() == Some(*hash) {
                continue;
            }
            own_dir(dir)?;
            match link_private(path, &to) {
                Ok(()) => {}
                Err(_) => write_private(&to, &std::fs::read(path)?)?,
            }
        }
        Ok(tree)
    }

    /// Where a file is in a directory that this node may use, if it is the one that is meant.
    fn in_roots(&mut self, file: WantedFile<'_>) -> Option<PathBuf> {
        let path = self.roots.find(Path::new(file.path))?;
        let opened = open_regular(&path).ok().filter(|opened| is_as_long(opened, file))?;
        let (hash, _) = self.hashes.of_open(&opened).ok()?;
        (hash == *file.sha256).then_some(path)
    }

    /// Whether a file is kept and is the one that is meant.
    fn has(&mut self, dir: &Path, name: &Path, file: WantedFile<'_>) -> bool {
        let opened = open_private(dir, name).ok().filter(|opened| is_as_long(opened, file));
        opened.is_some_and(|opened| self.hashes.of_open(&opened).is_ok_and(|(hash, _)| hash == *file.sha256))
    }

    fn own_dirs(&self, dir: &Path) -> io::Result<()> {
        [self.base.as_path(), &self.dir, dir].into_iter().try_for_each(own_dir)
    }
}

fn is_as_long(opened: &File, file: WantedFile<'_>) -> bool {
    opened.metadata().is_ok_and(|about| about.len() == file.bytes)
}

/// The SHA-256 of bytes.
fn hash_of(bytes: &[u8]) -> FileHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(ring::digest::digest(&SHA256, bytes).as_ref());
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
mod tests;
