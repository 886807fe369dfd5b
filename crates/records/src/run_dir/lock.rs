//! The lock of a run directory: only the process that holds it writes there.
//!
//! It belongs to an open file (`F_OFD_SETLK`), so that it ends with the process, and not when another part of the same
//! process closes the file. Whether it is held can be asked (`F_OFD_GETLK`) without taking it: an observer is never in
//! the way of a process that starts.

use super::error::{RunDirError, io};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(super) const LOCK: &str = "lock";

/// The lock of a directory, held until this is dropped or the process ends.
#[derive(Debug)]
pub struct RunLock {
    file: File,
}

impl RunLock {
    /// Takes the lock and records who holds it.
    ///
    /// # Errors
    /// Another process, or another part of this one, holds it.
    pub fn take(dir: &Path) -> Result<Self, RunDirError> {
        let path = dir.join(LOCK);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(io("open", &path))?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => {
                return Err(RunDirError::Locked { path: dir.to_owned(), pid: recorded_pid(&path) });
            }
            Err(errno) => return Err(io("lock", &path)(errno.into())),
        }
        let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(io("write", &path))?;
        Ok(Self { file })
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // Closing the file unlocks as well, except that a program that is being started may have a copy for an instant.
        let _closed_anyway = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_UNLCK)));
    }
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        // Three constants that fit.
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Whether the lock of a directory is held. It is not taken for that.
pub(super) fn is_locked(dir: &Path) -> bool {
    let Ok(file) = File::open(dir.join(LOCK)) else { return false };
    let mut asked = whole_file(libc::F_WRLCK);
    let answered = fcntl(&file, FcntlArg::F_OFD_GETLK(&mut asked));
    answered.is_ok() && asked.l_type != libc::F_UNLCK as libc::c_short
}

fn recorded_pid(lock: &Path) -> Option<u32> {
    let mut text = String::new();
    File::open(lock).ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// The process of this host that holds the lock of a run, and so writes it.
#[derive(Debug)]
pub struct LockHolder {
    pid: u32,
    /// Names this process even if its number is given to another one.
    process: OwnedFd,
}

impl LockHolder {
    /// The process that holds the lock of a run directory: the one recorded there, if it has that file open and locked.
    /// `None` if no process of this host, or none that this user may look at, can be shown to hold it.
    pub fn of(run: &Path) -> Option<Self> {
        let path = run.join(LOCK);
        let pid = recorded_pid(&path)?;
        let raw = Pid::from_raw(i32::try_from(pid).ok()?)?;
        // Opened before it is looked at: what follows is about this process or fails.
        let process = pidfd_open(raw, PidfdFlags::empty()).ok()?;
        holds(pid, &path).then_some(Self { pid, process })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Asks the process to end, as Ctrl-C does.
    ///
    /// # Errors
    /// It has ended, or this user may not signal it.
    pub fn interrupt(&self) -> std::io::Result<()> {
        Ok(pidfd_send_signal(&self.process, Signal::INT)?)
    }
}

/// Whether a process has this file open with a write lock on it.
fn holds(pid: u32, lock: &Path) -> bool {
    // A link may lead to the lock of another run.
    let Some(wanted) = lock.symlink_metadata().ok().filter(std::fs::Metadata::is_file) else { return false };
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.into_iter().any(|entry| {
        let same = std::fs::metadata(entry.path())
            .is_ok_and(|file| (file.dev(), file.ino()) == (wanted.dev(), wanted.ino()));
        same && {
            let about = format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_string_lossy());
            let about = std::fs::read_to_string(about).unwrap_or_default();
            about
                .lines()
                .any(|line| line.starts_with("lock:") && line.contains("OFDLCK") && line.contains("WRITE"))
        }
    })
}
