//! Directories and files that only their user can read: caches, state and keys.
//!
//! Another user of the host may have made a directory or a link under the name that a program is about to use. So
//! every directory is checked after it was made, files are written under names that cannot be guessed and then renamed,
//! and links are not followed to another user's files.

#[cfg(test)]
mod tests;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::rand::GetRandomFlags;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Opening a file in a directory of the user's own: not by a link, and without waiting for the other end of a pipe.
const PLAIN: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Where temporary files of this user are that other processes of the user find again. [`own_dir`] makes it.
pub fn user_temp_dir() -> PathBuf {
    std::env::temp_dir().join(format!("phalanx-{}", me()))
}

/// Sees that a directory is there, belongs to this user and can be read by no other user. Directories above it are made
/// with mode 0700 where they are missing, and are otherwise not touched.
///
/// # Errors
/// It cannot be made, it belongs to another user, or a link of another user leads to it.
pub fn own_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // Checks both the link and its target: a link placed by another user would lead to that user's choice.
    let (link, target) = (fs::symlink_metadata(path)?, fs::metadata(path)?);
    if link.uid() != me() || target.uid() != me() {
        return Err(foreign("the directory belongs to another user", path));
    }
    match target.mode() & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(path, fs::Permissions::from_mode(0o700)),
    }
}

/// Makes a directory, and those above it, for this user only where they are missing. One that is there stays as it is:
/// it may be shared on purpose.
///
/// # Errors
/// It cannot be made.
pub fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that only its user can read. It is written under a name that cannot be guessed, and then takes the
/// place of what had its name before, also of a link.
///
/// # Errors
/// It cannot be written; then nothing is left behind.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = dir.join(format!(".{}", unguessable()?));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | PLAIN;
    let mut file = File::from(rustix::fs::open(&beside, flags, PRIVATE)?);
    let written = file.write_all(bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // What matters is why it could not be written.
        let _removed = fs::remove_file(&beside);
    }
    written
}

/// Opens a file for writing that only its user can read, new or emptied.
///
/// # Errors
/// It cannot be opened, is a link, no regular file, or another user's.
pub fn create_private(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | PLAIN;
    let file = File::from(rustix::fs::open(path, flags, PRIVATE)?);
    check_own(&file, path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    Ok(file)
}

/// Opens a file of this user for reading, in a directory of this user.
///
/// # Errors
/// It is not there, is a link, no regular file, or another user's; the directory is a link or another user's.
pub fn open_private(dir: &Path, name: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(dir, flags, Mode::empty())?;
    if rustix::fs::fstat(&opened)?.st_uid != me() {
        return Err(foreign("the directory belongs to another user", dir));
    }
    let file = File::from(rustix::fs::openat(&opened, name, OFlags::RDONLY | PLAIN, Mode::empty())?);
    check_own(&file, name)?;
    Ok(file)
}

/// Opens any regular file for reading. Links are followed; pipes and devices are refused at once.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(foreign("not a regular file", path)),
    }
}

/// Gives a file a second name in a directory of this user, if it is a regular file of this user on the same file
/// system. What has the name already stays.
///
/// # Errors
/// There is a file of that name, or none can be made.
pub fn link_private(from: &Path, to: &Path) -> io::Result<()> {
    let opened = open_regular(from)?;
    check_own(&opened, from)?;
    let from = fs::canonicalize(from)?;
    rustix::fs::linkat(rustix::fs::CWD, &from, rustix::fs::CWD, to, AtFlags::empty())?;
    let (meant, linked) = (opened.metadata()?, fs::symlink_metadata(to)?);
    if (meant.dev(), meant.ino()) == (linked.dev(), linked.ino()) {
        return Ok(());
    }
    // Another file took its name in between.
    fs::remove_file(to)?;
    Err(foreign("the file was replaced meanwhile", &from))
}

/// The last part of a name that another node gave, where it can be a file's name here.
pub fn plain_name(path: &Path) -> Option<&Path> {
    const LONGEST: usize = 200;
    let name = path.file_name()?;
    let bytes = name.as_bytes();
    let fine = bytes.len() <= LONGEST && !bytes.starts_with(b".") && !bytes.iter().any(u8::is_ascii_control);
    (fine && name.to_str().is_some()).then_some(Path::new(name))
}

fn check_own(file: &File, path: &Path) -> io::Result<()> {
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(foreign("not a regular file", path));
    }
    match about.uid() == me() {
        true => Ok(()),
        false => Err(foreign("the file belongs to another user", path)),
    }
}

fn foreign(what: &str, path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{what}: {}", path.display()))
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn unguessable() -> io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
