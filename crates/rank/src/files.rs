//! Files of a run that this node does not have: they come from the driver, once, and are kept.

use crate::error::{FileProblem, RankError};
use bytes::Bytes;
use phalanx_data::map_file;
use phalanx_train::config::Override;
use phalanx_wire::train::FileRef;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Brings the bytes of a file from the driver.
pub(super) type FetchFile = Box<dyn Fn(&FileRef) -> Result<Bytes, FileProblem> + Send>;

/// Sees that every file is here, and says under which names.
pub(super) fn bring(files: &[FileRef], fetch: &FetchFile, kept: &Path) -> Result<Vec<Override>, RankError> {
    let mut said = Vec::new();
    for file in files {
        let path = match is_same(Path::new(&file.path), file) {
            true => continue,
            false => bring_one(file, fetch, kept)?,
        };
        // A text in JSON is one in TOML.
        let text = serde_json::Value::from(path.to_string_lossy()).to_string();
        said.push(Override::flag("the driver", &file.key, text));
    }
    Ok(said)
}

fn bring_one(file: &FileRef, fetch: &FetchFile, kept: &Path) -> Result<PathBuf, RankError> {
    // Only the last part of the driver's name: nothing is written outside of the directory.
    let name = Path::new(&file.path).file_name().map_or_else(|| "file".into(), ToOwned::to_owned);
    let dir = kept.join(hex(&file.sha256));
    let path = dir.join(name);
    if is_same(&path, file) {
        return Ok(path);
    }
    let failed = |problem| RankError::File { path: file.path.clone(), problem };
    let bytes = fetch(file).map_err(failed)?;
    if ring::digest::digest(&ring::digest::SHA256, &bytes).as_ref() != file.sha256 {
        return Err(failed(FileProblem::OtherBytes));
    }
    // Other nodes of this host may be at it, too.
    let beside = dir.join(format!(".{}.tmp", std::process::id()));
    let write = || {
        std::fs::create_dir_all(&dir)?;
        std::fs::write(&beside, &bytes)?;
        std::fs::rename(&beside, &path)
    };
    match write() {
        Err(source) if !is_same(&path, file) => Err(failed(FileProblem::Write { path, source })),
        _ => Ok(path),
    }
}

/// Whether a file is there and is the one that is meant.
fn is_same(path: &Path, file: &FileRef) -> bool {
    let same_size = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == file.bytes);
    same_size
        && map_file(path)
            .is_ok_and(|bytes| ring::digest::digest(&ring::digest::SHA256, &bytes).as_ref() == file.sha256)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text does not fail.
        let _written = write!(text, "{byte:02x}");
        text
    })
}

/// Where files of runs are kept.
pub(super) fn kept() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let own = set("PHALANX_CACHE_DIR").or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("phalanx")));
    let home = || set("HOME").map(|home| home.join(".cache").join("phalanx"));
    own.or_else(home).unwrap_or_else(|| std::env::temp_dir().join("phalanx-cache")).join("files")
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_wire::bulk::BlobId;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn file(path: &Path, bytes: &[u8]) -> FileRef {
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
        let path = path.to_string_lossy().into_owned();
        FileRef {
            key: "data.train.file".to_owned(),
            path,
            bytes: bytes.len() as u64,
            sha256,
            blob: BlobId(1),
        }
    }

    #[test]
    fn what_is_here_is_used_and_the_rest_comes_once() {
        let dir = tempfile::tempdir().unwrap();
        let (here, kept) = (dir.path().join("here.npz"), dir.path().join("kept"));
        std::fs::write(&here, b"here").unwrap();
        let fetched = Arc::new(AtomicUsize::new(0));
        let count = fetched.clone();
        let fetch: FetchFile = Box::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Bytes::from_static(b"there"))
        });
        let there = file(Path::new("/nowhere/../there.npz"), b"there");
        for _ in 0..2 {
            let said = bring(&[file(&here, b"here"), there.clone()], &fetch, &kept).unwrap();
            let [said] = said.as_slice() else { panic!("{said:?}") };
            assert!(said.value.contains("kept") && said.value.ends_with("there.npz\""), "{said:?}");
        }
        assert_eq!(fetched.load(Ordering::Relaxed), 1);
        // Another file of the same length is another file.
        let other = FileRef { sha256: [9; 32], ..file(&here, b"here") };
        assert!(bring(&[other], &fetch, &kept).unwrap_err().to_string().contains("other bytes"));
    }
}
