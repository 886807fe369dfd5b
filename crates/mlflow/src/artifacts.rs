//! Artifacts of runs: files below `artifacts/` of the run directory. Paths come from clients and may lead nowhere else.

use crate::error::MlflowError;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Deeper or longer paths are refused.
const PARTS: usize = 64;
const PART_BYTES: usize = 255;
/// The most entries of a listing.
const ENTRIES: usize = 10_000;
/// The ending of a file that is being written.
const PARTIAL: &str = ".part";
/// Bytes of a file that are read at once.
pub(crate) const BLOCK: usize = 256 << 10;

/// Splits `RUN/dir/file` into the run and the path below its artifacts.
pub(crate) fn split(path: &str) -> Result<(&str, PathBuf), MlflowError> {
    let wrong = || MlflowError::Path { path: path.to_owned() };
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let run = parts.next().ok_or_else(wrong)?;
    let mut below = PathBuf::new();
    for (depth, part) in parts.enumerate() {
        let is_plain = part != "."
            && part != ".."
            && !part.contains(['\\', '\0'])
            && !part.chars().any(char::is_control);
        if !is_plain || part.len() > PART_BYTES || depth >= PARTS {
            return Err(wrong());
        }
        below.push(part);
    }
    Ok((run, below))
}

/// The place of an artifact. A symbolic link on the way is refused: nothing that we write is one.
fn place(root: &Path, below: &Path) -> Result<PathBuf, MlflowError> {
    let mut path = root.to_owned();
    let is_link =
        |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_symlink());
    for part in below {
        path.push(part);
        if is_link(&path) {
            return Err(MlflowError::Path { path: below.display().to_string() });
        }
    }
    Ok(path)
}

/// An artifact that is being received; it is there when it is whole.
#[derive(Debug)]
pub(crate) struct Upload {
    path: PathBuf,
    partial: PathBuf,
    file: Option<File>,
}

impl Upload {
    pub(crate) fn begin(root: &Path, below: &Path) -> Result<Self, MlflowError> {
        if below.as_os_str().is_empty() {
            return Err(MlflowError::Path { path: String::new() });
        }
        let path = place(root, below)?;
        if path.is_dir() {
            return Err(MlflowError::Path { path: below.display().to_string() });
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Two uploads of one artifact do not write to one file.
        let unique = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let short: String = name.chars().take(100).collect();
        let partial = path.with_file_name(format!(".{short}.{}{PARTIAL}", unique.as_nanos()));
        let what = "write an artifact";
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(MlflowError::io(what))?;
        }
        let file =
            File::options().write(true).create_new(true).open(&partial).map_err(MlflowError::io(what))?;
        Ok(Self { path, partial, file: Some(file) })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), MlflowError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes).map_err(MlflowError::io("write an artifact"))
    }

    pub(crate) fn finish(mut self) -> Result<(), MlflowError> {
        let what = "write an artifact";
        if let Some(file) = self.file.take() {
            file.sync_data().map_err(MlflowError::io(what))?;
        }
        std::fs::rename(&self.partial, &self.path).map_err(MlflowError::io(what))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // After a rename there is nothing to remove.
        let _gone = std::fs::remove_file(&self.partial);
    }
}

/// Opens an artifact; returns its size, too.
pub(crate) fn open(root: &Path, below: &Path) -> Result<(File, u64), MlflowError> {
    let missing = || MlflowError::NotFound { what: "artifact", name: below.display().to_string() };
    let path = place(root, below)?;
    let file = File::open(path).map_err(|_missing| missing())?;
    let about = file.metadata().map_err(MlflowError::io("read an artifact"))?;
    if !about.is_file() {
        return Err(missing());
    }
    Ok((file, about.len()))
}

/// The next part of a file; empty at its end.
pub(crate) fn read_block(file: &mut File) -> Result<Vec<u8>, std::io::Error> {
    let mut block = Vec::with_capacity(BLOCK);
    file.take(BLOCK as u64).read_to_end(&mut block)?;
    Ok(block)
}

/// The entries of a directory of artifacts, with paths relative to it; of none if there is no such directory.
pub(crate) fn list(root: &Path, below: &Path) -> Result<Vec<Value>, MlflowError> {
    let path = place(root, below)?;
    let mut names: Vec<(String, bool, u64)> = Vec::new();
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten().take(ENTRIES) {
        let (Ok(name), Ok(about)) = (entry.file_name().into_string(), entry.metadata()) else { continue };
        if (name.starts_with('.') && name.ends_with(PARTIAL)) || about.is_symlink() {
            continue;
        }
        names.push((name, about.is_dir(), about.len()));
    }
    names.sort();
    let entry = |(name, is_dir, size): (String, bool, u64)| match is_dir {
        true => json!({ "path": name, "is_dir": true }),
        false => json!({ "path": name, "is_dir": false, "file_size": size }),
    };
    Ok(names.into_iter().map(entry).collect())
}

/// Removes an artifact, or a directory of them.
pub(crate) fn remove(root: &Path, below: &Path) -> Result<(), MlflowError> {
    if below.as_os_str().is_empty() {
        return Err(MlflowError::Path { path: String::new() });
    }
    let path = place(root, below)?;
    let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    removed.map_err(MlflowError::io("remove an artifact"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in
            ["", "/", "r/../x", "r/./x", "r/a\\b", "r/a\0b", "r/\u{1b}[2J", &format!("r/{}", "x".repeat(300))]
        {
            assert!(split(path).is_err(), "{path:?}");
        }
        assert!(split(&format!("r{}", "/d".repeat(100))).is_err());
        assert_eq!(split("/r//a/b.txt").unwrap(), ("r", PathBuf::from("a/b.txt")));
    }

    #[test]
    fn links_are_not_followed() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
        assert!(open(root.path(), Path::new("link/secret")).is_err());
        assert!(Upload::begin(root.path(), Path::new("link/new")).is_err());
        assert!(remove(root.path(), Path::new("link")).is_err());
        assert_eq!(list(root.path(), Path::new("")).unwrap(), Vec::<Value>::new());
    }

    #[test]
    fn an_artifact_is_there_when_it_is_whole() {
        let root = tempfile::tempdir().unwrap();
        let below = Path::new("models/a.bin");
        let mut upload = Upload::begin(root.path(), below).unwrap();
        upload.write(b"abc").unwrap();
        assert!(
            open(root.path(), below).is_err() && list(root.path(), Path::new("models")).unwrap().is_empty()
        );
        drop(upload);
        assert_eq!(std::fs::read_dir(root.path().join("models")).unwrap().count(), 0, "given up");
        let mut upload = Upload::begin(root.path(), below).unwrap();
        upload.write(b"abc").unwrap();
        upload.finish().unwrap();
        let (mut file, size) = open(root.path(), below).unwrap();
        assert_eq!((size, read_block(&mut file).unwrap()), (3, b"abc".to_vec()));
        assert_eq!(list(root.path(), Path::new("models")).unwrap()[0]["file_size"], 3);
    }
}
