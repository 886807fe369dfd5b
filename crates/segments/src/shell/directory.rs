//! The directory of a journal: private, locked, and reached by its descriptor only.

use super::file_error::FileError;
use super::write_at::write_all_at;
use crate::core::{FileHeader, FileKind, HEADER_LEN, Position};
use crate::error::OpenError;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The name of a snapshot that is not whole yet.
pub(crate) const UNFINISHED_SNAPSHOT: &str = "snapshot.part";
const LOCK: &str = "lock";
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

/// The right of one process to write to a directory, until it is dropped.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: File,
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing is not enough: a process that another thread is just starting has a copy of the descriptor.
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "could not unlock a directory");
        }
    }
}

/// A segment file that was opened for reading.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) len: u64,
    /// The first bytes, as many as a header has or the file holds.
    pub(crate) front: Vec<u8>,
}

/// Names of segment files.
pub(crate) fn file_name(kind: FileKind, number: u64) -> String {
    let prefix = prefix(kind);
    format!("{prefix}{number:016x}.seg")
}

fn prefix(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Journal => "journal-",
        FileKind::Snapshot => "snapshot-",
        FileKind::Values => "values-",
    }
}

impl Directory {
    /// Opens or makes a private directory and locks it.
    pub(crate) fn open_locked(path: &Path) -> Result<(Self, DirectoryLock), OpenError> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) => sync_parent(path).map_err(FileError::when("make", path))?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(FileError::when("make", path)(error).into()),
        }
        let directory = Self::open(path)?;
        let stat = rustix::fs::fstat(&directory.fd).map_err(FileError::when("open", path))?;
        let mode = stat.st_mode & 0o777;
        if mode & 0o077 != 0 || stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(OpenError::NotPrivate { mode, path: path.to_owned() });
        }
        let lock = directory.open_at(LOCK, OFlags::RDWR | OFlags::CREATE)?;
        match lock.try_lock() {
            Ok(()) => Ok((directory, DirectoryLock { file: lock })),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(FileError::when("lock", path)(source).into()),
        }
    }

    /// Opens a directory for files without names.
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(FileError::when("open", path))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn open_at(&self, name: &str, flags: OFlags) -> Result<File, OpenError> {
        // A pipe or a device must not block the open.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match rustix::fs::openat(&self.fd, name, flags, PRIVATE) {
            Ok(fd) => fd,
            Err(Errno::LOOP) => return Err(OpenError::NotAFile { path: self.path_of(name) }),
            Err(error) => return Err(FileError::when("open", &self.path_of(name))(error).into()),
        };
        let stat = rustix::fs::fstat(&fd).map_err(FileError::when("open", &self.path_of(name)))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(OpenError::NotAFile { path: self.path_of(name) });
        }
        Ok(fd.into())
    }

    /// The numbers of all files of this kind, in order.
    pub(crate) fn numbers(&self, kind: FileKind) -> Result<Vec<u64>, OpenError> {
        let failed = || FileError::when("list", &self.path);
        let mut numbers = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd).map_err(|e| failed()(e))? {
            let entry = entry.map_err(|e| failed()(e))?;
            let name = entry.file_name().to_str().unwrap_or_default();
            let digits = name.strip_prefix(prefix(kind)).and_then(|rest| rest.strip_suffix(".seg"));
            let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            numbers.extend(number.filter(|number| file_name(kind, *number) == name));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Opens an existing file.
    pub(crate) fn open_file(&self, name: &str) -> Result<OpenFile, OpenError> {
        let file = self.open_at(name, OFlags::RDWR)?;
        let path = self.path_of(name);
        let len = file.metadata().map_err(FileError::when("read", &path))?.len();
        let mut front = vec![0; usize::try_from(len).unwrap_or(HEADER_LEN).min(HEADER_LEN)];
        file.read_exact_at(&mut front, 0).map_err(FileError::when("read", &path))?;
        Ok(OpenFile { file, len, front })
    }

    /// Makes a file with a header and brings both to disk, with the entry of the directory.
    pub(crate) fn create(&self, name: &str, header: &FileHeader) -> Result<File, FileError> {
        let path = self.path_of(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.fd, name, flags, PRIVATE) {
            Ok(fd) => File::from(fd),
            Err(error) => return Err(FileError::when("make", &path)(error)),
        };
        let made = write_all_at(&file, 0, [header.to_bytes().as_slice()])
            .and_then(|()| file.sync_all())
            .and_then(|()| rustix::fs::fsync(&self.fd).map_err(io::Error::from));
        match made {
            Ok(()) => Ok(file),
            Err(source) => {
                // The next try makes a file of the same name.
                if let Err(error) = self.remove(name) {
                    tracing::warn!(error = %error.source, file = %path.display(), "could not remove a file");
                }
                Err(FileError::when("make", &path)(source))
            }
        }
    }

    /// Makes a file that ends with the process.
    pub(crate) fn create_nameless(&self) -> Result<File, FileError> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.fd, ".", flags, PRIVATE) {
            Ok(fd) => Ok(fd.into()),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => self.create_unlinked(),
            Err(error) => Err(FileError::when("make a file in", &self.path)(error)),
        }
    }

    /// As [`Directory::create_nameless`], for file systems that cannot make one without a name.
    pub(crate) fn create_unlinked(&self) -> Result<File, FileError> {
        let doing = "make a file in";
        let name = format!("spill-{:016x}", random_u64().map_err(FileError::when(doing, &self.path))?);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.fd, &name, flags, PRIVATE)
            .map_err(FileError::when(doing, &self.path))?;
        self.remove(&name)?;
        Ok(file.into())
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), FileError> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
            .map_err(FileError::when("remove", &self.path_of(name)))
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to)
            .map_err(FileError::when("rename", &self.path_of(from)))?;
        self.sync()
    }

    /// Brings the entries to disk.
    pub(crate) fn sync(&self) -> Result<(), FileError> {
        rustix::fs::fsync(&self.fd).map_err(FileError::when("flush", &self.path))
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}

/// A header for a new file.
pub(crate) fn new_header(kind: FileKind, number: u64, synced: Position) -> io::Result<FileHeader> {
    Ok(FileHeader { kind, number, salt: random_u64()?, synced })
}
