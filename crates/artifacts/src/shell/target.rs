//! A directory that files are pulled into. Nothing is written outside of it, whatever names and links there are.

use super::files::hash_of;
use crate::core::path::{FilePath, PULLING, PathFault};
use crate::error::ArtifactError;
use phalanx_records::run_dir::{RunDir, is_run, run_uid};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A directory that one run is pulled into.
#[derive(Debug)]
pub(crate) struct Target {
    dir: PathBuf,
    root: OwnedFd,
    /// Locked, so that no other process pulls into it.
    _marker: File,
    /// A run that is there already, so that no process trains it meanwhile.
    _run: Option<RunDir>,
}

/// What a directory says about the pull into it that has not ended.
#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    uid: String,
}

/// A file that is being written, under another name.
#[derive(Debug)]
pub(crate) struct Incoming {
    parent: OwnedFd,
    beside: String,
    name: String,
    path: PathBuf,
    file: File,
}

impl Target {
    /// Takes a directory: a new one, an empty one, one with this run, or one where a pull of this run has not ended.
    pub(crate) fn take(dir: &Path, uid: &str) -> Result<Self, ArtifactError> {
        let failed = |what| move |source| ArtifactError::Local { what, path: dir.to_owned(), source };
        std::fs::create_dir_all(dir).map_err(failed("make"))?;
        let there = is_run(dir);
        let run = if there { Some(RunDir::open(dir)?) } else { None };
        let marker = dir.join(PULLING);
        let found = if there { Some(run_uid(dir)?) } else { pulled_before(&marker) };
        match found {
            Some(found) if found == uid => {}
            Some(found) => return Err(ArtifactError::OtherRun { dir: dir.to_owned(), found }),
            None if std::fs::read_dir(dir).map_err(failed("read"))?.next().is_some() => {
                return Err(ArtifactError::Occupied { dir: dir.to_owned() });
            }
            None => {}
        }
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            rustix::fs::open(dir, flags, Mode::empty()).map_err(|errno| failed("open")(errno.into()))?;
        let marker = mark(&root, dir, uid)?;
        Ok(Self { dir: dir.to_owned(), root, _marker: marker, _run: run })
    }

    /// The pull is whole.
    pub(crate) fn finish(self) -> Result<(), ArtifactError> {
        unlinkat(&self.root, PULLING, AtFlags::empty()).map_err(|errno| self.failed("clear", PULLING, errno))
    }

    /// The length and the hash of a file that is there.
    pub(crate) fn existing(&self, path: &FilePath) -> Result<Option<(u64, String)>, ArtifactError> {
        let (_, name) = path.parts();
        let Some(parent) = self.parent(path, false)? else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(parent, name, flags, Mode::empty()) {
            Ok(file) => file,
            // A link is not followed; it is replaced.
            Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            Err(errno) => return Err(self.failed("open", path.as_str(), errno)),
        };
        let stat = fstat(&file).map_err(|errno| self.failed("read", path.as_str(), errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let local =
            |source| ArtifactError::Local { what: "read", path: self.dir.join(path.as_str()), source };
        hash_of(&mut File::from(file)).map(Some).map_err(local)
    }

    /// Begins a file under a name of its own.
    pub(crate) fn begin(&self, path: &FilePath) -> Result<Incoming, ArtifactError> {
        let (_, name) = path.parts();
        let Some(parent) = self.parent(path, true)? else {
            return Err(self.failed("make", path.as_str(), Errno::NOENT));
        };
        let beside = format!(".{name}.part");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What a killed pull has left.
        match unlinkat(&parent, beside.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(self.failed("replace", path.as_str(), errno)),
        }
        let file = openat(&parent, beside.as_str(), flags, Mode::from_raw_mode(0o666));
        let file = file.map_err(|errno| self.failed("make", path.as_str(), errno))?;
        let whole = self.dir.join(path.as_str());
        Ok(Incoming { parent, beside, name: name.to_owned(), path: whole, file: File::from(file) })
    }

    /// The directory that a file lies in; each part is a directory, and no link.
    fn parent(&self, path: &FilePath, make: bool) -> Result<Option<OwnedFd>, ArtifactError> {
        let failed = |errno| self.failed("open the directory of", path.as_str(), errno);
        let mut folder = self
            .root
            .try_clone()
            .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        for part in path.parts().0 {
            if make {
                match mkdirat(&folder, part, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            folder = match openat(&folder, part, flags, Mode::empty()) {
                Ok(next) => next,
                Err(Errno::NOENT) if !make => return Ok(None),
                Err(Errno::LOOP | Errno::NOTDIR) => {
                    let path = self.dir.join(path.as_str());
                    return Err(ArtifactError::Path { path, source: PathFault::Link });
                }
                Err(errno) => return Err(failed(errno)),
            };
        }
        Ok(Some(folder))
    }

    fn failed(&self, what: &'static str, path: &str, errno: Errno) -> ArtifactError {
        ArtifactError::Local { what, path: self.dir.join(path), source: errno.into() }
    }
}

/// Which run a pull that has not ended was of.
fn pulled_before(marker: &Path) -> Option<String> {
    let text = std::fs::read(marker).ok()?;
    serde_json::from_slice::<Marker>(&text).ok().map(|marker| marker.uid)
}

/// Writes and locks the marker.
fn mark(root: &OwnedFd, dir: &Path, uid: &str) -> Result<File, ArtifactError> {
    let failed = |source| ArtifactError::Local { what: "write", path: dir.join(PULLING), source };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(root, PULLING, flags, Mode::from_raw_mode(0o666));
    let mut file = File::from(opened.map_err(|errno| failed(errno.into()))?);
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(ArtifactError::Busy { dir: dir.to_owned() }),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let text = serde_json::to_vec(&Marker { uid: uid.to_owned() }).map_err(|error| failed(error.into()))?;
    file.set_len(0).and_then(|()| file.write_all(&text)).map_err(failed)?;
    Ok(file)
}

impl Incoming {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        self.file.write_all(bytes).map_err(|source| self.failed("write", source))
    }

    /// Gives the file its name.
    pub(crate) fn keep(self) -> Result<(), ArtifactError> {
        self.file.sync_all().map_err(|source| self.failed("write", source))?;
        let renamed = renameat(&self.parent, self.beside.as_str(), &self.parent, self.name.as_str());
        renamed.map_err(|errno| self.failed("rename", errno.into()))
    }

    /// Removes what was written.
    pub(crate) fn discard(self) {
        // What stays is replaced by the next pull.
        let _removed = unlinkat(&self.parent, self.beside.as_str(), AtFlags::empty());
    }

    fn failed(&self, what: &'static str, source: std::io::Error) -> ArtifactError {
        ArtifactError::Local { what, path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0123456789abcdef0123456789abcdef";

    fn write(target: &Target, path: &str, bytes: &[u8]) -> Result<(), ArtifactError> {
        let mut incoming = target.begin(&FilePath::new(path).unwrap())?;
        incoming.write(bytes)?;
        incoming.keep()
    }

    #[test]
    fn links_are_never_followed() {
        let tmp = tempfile::tempdir().unwrap();
        let (dir, outside) = (tmp.path().join("in"), tmp.path().join("outside"));
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), "kept").unwrap();
        let target = Target::take(&dir, UID).unwrap();
        std::os::unix::fs::symlink(&outside, dir.join("folder")).unwrap();
        std::os::unix::fs::symlink(outside.join("kept"), dir.join("file")).unwrap();
        std::os::unix::fs::symlink(outside.join("kept"), dir.join(".other.part")).unwrap();
        let refused = write(&target, "folder/kept", b"x").unwrap_err();
        assert!(matches!(refused, ArtifactError::Path { source: PathFault::Link, .. }), "{refused}");
        // A link in the place of a file is replaced, and what it leads to stays.
        assert_eq!(target.existing(&FilePath::new("file").unwrap()).unwrap(), None);
        write(&target, "file", b"new").unwrap();
        write(&target, "other", b"new").unwrap();
        assert_eq!(std::fs::read(outside.join("kept")).unwrap(), b"kept");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"new");
        assert!(matches!(write(&target, "file/below", b"x"), Err(ArtifactError::Path { .. })));
    }

    #[test]
    fn a_directory_takes_one_run() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("in");
        let target = Target::take(&dir, UID).unwrap();
        assert!(matches!(Target::take(&dir, UID), Err(ArtifactError::Busy { .. })));
        write(&target, "a/b", b"x").unwrap();
        let size = target.existing(&FilePath::new("a/b").unwrap()).unwrap().unwrap().0;
        assert_eq!(size, 1);
        drop(target);
        let other = Target::take(&dir, &UID.replace('0', "f"));
        assert!(matches!(other, Err(ArtifactError::OtherRun { .. })));
        Target::take(&dir, UID).unwrap().finish().unwrap();
        assert!(matches!(Target::take(&dir, UID), Err(ArtifactError::Occupied { .. })));
    }
}
