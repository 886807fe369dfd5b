//! The files of a run directory as tensors of a job or solution, and back.
//!
//! A peer may have made it: names stay below the directory, count and size have limits, and a directory is written whole
//! or not at all.

use bytes::Bytes;
use phalanx_data::map_open;
use phalanx_records::run_dir::checkpoints;
use phalanx_types::{DType, Parcel, ParcelHead, Tensor};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Begins the names of tensors that are files.
const PREFIX: &str = "run/";
/// The most files. Their names and shapes must fit the head of a parcel.
const MAX_FILES: usize = 4096;
/// The most bytes of all files.
const MAX_BYTES: u64 = 16 << 30;
const MAX_PATH: usize = 1024;
/// The most directories in each other.
const MAX_DEPTH: usize = 16;
/// Files of the process that writes a run; they mean nothing elsewhere.
const OF_A_PROCESS: [&str; 2] = ["lock", "live.json"];

/// Why the files of a run directory cannot be sent or taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    #[error("{name:?} is no name of a file in a run directory")]
    Name { name: String },
    #[error("the file {name:?} comes twice")]
    Twice { name: String },
    #[error("{files} files are more than {MAX_FILES}")]
    TooMany { files: usize },
    #[error("its files have more than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("could not {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
}

/// The files of a directory, by their names below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bundle(BTreeMap<String, Bytes>);

impl Bundle {
    /// The files of a run directory; of its checkpoints only the newest. They are mapped, not read.
    pub(crate) fn of_dir(dir: &Path) -> Result<Self, BundleError> {
        let mut bundle = Self::default();
        let all = checkpoints(dir);
        let (_, older) = all.split_last().unzip();
        let older: Vec<PathBuf> = older.unwrap_or_default().iter().map(|(_, path)| path.clone()).collect();
        bundle.add_dir(dir, "", &older)?;
        bundle.check()?;
        Ok(bundle)
    }

    fn add_dir(&mut self, dir: &Path, below: &str, leave_out: &[PathBuf]) -> Result<(), BundleError> {
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| BundleError::Io { what, path, source }
        };
        for entry in std::fs::read_dir(dir).map_err(io("list", dir))? {
            let entry = entry.map_err(io("list", dir))?;
            let (path, name) = (entry.path(), entry.file_name());
            let Some(name) = name.to_str() else {
                return Err(BundleError::Name { name: name.to_string_lossy().into_owned() });
            };
            if leave_out.contains(&path) || (below.is_empty() && OF_A_PROCESS.contains(&name)) {
                continue;
            }
            let name = format!("{below}{name}");
            let kind = entry.file_type().map_err(io("look at", &path))?;
            if kind.is_dir() {
                check_name(&name)?;
                self.add_dir(&path, &format!("{name}/"), leave_out)?;
            } else if kind.is_file() {
                // Links are not followed: they may lead out of the directory.
                let bytes = File::open(&path).and_then(|file| map_open(&file));
                self.0.insert(name, bytes.map_err(io("read", &path))?);
            }
        }
        Ok(())
    }

    /// The files among the tensors of a parcel.
    pub(crate) fn of_parcel(parcel: &Parcel) -> Result<Self, BundleError> {
        let mut bundle = Self::default();
        for (name, tensor) in &parcel.tensors {
            let Some(name) = name.strip_prefix(PREFIX).filter(|_| tensor.dtype() == DType::U8) else {
                return Err(BundleError::Name { name: name.clone() });
            };
            if bundle.0.insert(name.to_owned(), tensor.data().clone()).is_some() {
                return Err(BundleError::Twice { name: name.to_owned() });
            }
        }
        bundle.check()?;
        Ok(bundle)
    }

    fn check(&self) -> Result<(), BundleError> {
        self.0.keys().try_for_each(|name| check_name(name))?;
        if self.0.len() > MAX_FILES {
            return Err(BundleError::TooMany { files: self.0.len() });
        }
        match self.0.values().map(|bytes| bytes.len() as u64).sum::<u64>() > MAX_BYTES {
            true => Err(BundleError::TooLarge),
            false => Ok(()),
        }
    }

    /// Puts them into a parcel.
    pub(crate) fn add_to(self, mut parcel: Parcel) -> Result<Parcel, BundleError> {
        for (name, bytes) in self.0 {
            let tensor = Tensor::new(DType::U8, vec![bytes.len() as u64], bytes);
            let tensor = tensor.map_err(|_misfit| BundleError::Name { name: name.clone() })?;
            parcel = parcel.with_tensor(format!("{PREFIX}{name}"), tensor);
        }
        Ok(parcel)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn file(&self, name: &str) -> Option<&Bytes> {
        self.0.get(name)
    }

    /// Adds a file, in the place of one of the same name.
    pub(crate) fn set(&mut self, name: &str, bytes: impl Into<Bytes>) {
        self.0.insert(name.to_owned(), bytes.into());
    }

    /// Writes the files into a directory that has none of them.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), BundleError> {
        for (name, bytes) in &self.0 {
            let path = dir.join(name);
            let write = || {
                std::fs::create_dir_all(path.parent().unwrap_or(dir))?;
                let mut file = File::create_new(&path)?;
                file.write_all(bytes)?;
                file.sync_all()
            };
            write().map_err(|source| BundleError::Io { what: "write", path: path.clone(), source })?;
        }
        Ok(())
    }

    /// Makes a directory of the files, in the place of one that may be there. On an error nothing has changed.
    pub(crate) fn replace(&self, dir: &Path) -> Result<(), BundleError> {
        let io = |what| move |source| BundleError::Io { what, path: dir.to_owned(), source };
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent).map_err(io("make"))?;
        let beside = tempfile::Builder::new().prefix(".trial-").tempdir_in(parent).map_err(io("make"))?;
        let new = beside.path().join("new");
        std::fs::create_dir(&new).map_err(io("make"))?;
        self.write(&new)?;
        if !dir.exists() {
            return std::fs::rename(&new, dir).map_err(io("write"));
        }
        // Both at once; where the file system cannot do that, a crash in between leaves the new one beside.
        if renameat_with(CWD, &new, CWD, dir, RenameFlags::EXCHANGE).is_ok() {
            return Ok(());
        }
        let old = beside.path().join("old");
        std::fs::rename(dir, &old).map_err(io("replace"))?;
        std::fs::rename(&new, dir).map_err(|source| {
            // The old one is better than none.
            let _back = std::fs::rename(&old, dir);
            io("replace")(source)
        })
    }
}

/// The bytes of files that a peer holds, unless they are too many or too large.
pub(crate) fn bytes_of(head: &ParcelHead) -> Option<u64> {
    let bytes = head.body_len().filter(|bytes| *bytes <= MAX_BYTES);
    bytes.filter(|_| head.tensors.len() <= MAX_FILES)
}

/// Whether a name stays below the directory.
fn check_name(name: &str) -> Result<(), BundleError> {
    let part =
        |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\0', '\\']) && part.len() <= 255;
    let sound = name.len() <= MAX_PATH && name.split('/').count() <= MAX_DEPTH && name.split('/').all(part);
    match sound {
        true => Ok(()),
        false => Err(BundleError::Name { name: name.chars().take(MAX_PATH).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel(names: &[&str]) -> Parcel {
        let tensor = || Tensor::new(DType::U8, vec![3], Bytes::from_static(b"abc")).unwrap();
        names.iter().fold(Parcel::default(), |parcel, name| parcel.with_tensor(*name, tensor()))
    }

    fn files(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = Bundle::of_dir(dir).unwrap().0.into_keys().collect();
        names.sort();
        names
    }

    fn put(dir: &Path, name: &str, text: &str) {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_directory_comes_out_as_it_went_in_with_its_newest_checkpoint() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        for (name, text) in [
            ("run.toml", "a"),
            ("empty", ""),
            ("lock", "1"),
            ("checkpoints/step-000001/manifest.json", "old"),
            ("checkpoints/step-000012/manifest.json", "new"),
        ] {
            put(&from, name, text);
        }
        std::os::unix::fs::symlink("/etc/passwd", from.join("link")).unwrap();
        let sent = Bundle::of_dir(&from).unwrap().add_to(Parcel::from_bytes("head")).unwrap();
        let came = Bundle::of_parcel(&sent).unwrap();
        came.replace(&to).unwrap();
        assert_eq!(files(&to), ["checkpoints/step-000012/manifest.json", "empty", "run.toml"]);
        assert_eq!(std::fs::read_to_string(to.join("run.toml")).unwrap(), "a");
        // A second one takes its place, and nothing is left beside it.
        put(&to, "more", "x");
        came.replace(&to).unwrap();
        assert!(!to.join("more").exists());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn names_that_lead_out_of_the_directory_are_refused() {
        let long = "a/".repeat(MAX_DEPTH) + "a";
        for name in ["../a", "a/../b", "/etc/passwd", "", ".", "a//b", "a/", "a\\b", "a\0b", &long] {
            let parcel = parcel(&[&format!("run/{name}")]);
            assert!(matches!(Bundle::of_parcel(&parcel), Err(BundleError::Name { .. })), "{name:?}");
        }
        assert!(matches!(Bundle::of_parcel(&parcel(&["weights"])), Err(BundleError::Name { .. })));
        assert!(matches!(Bundle::of_parcel(&parcel(&["run/a", "run/a"])), Err(BundleError::Twice { .. })));
        let floats = Parcel::default().with_tensor("run/a", Tensor::from_f32(vec![1], &[1.0]).unwrap());
        assert!(Bundle::of_parcel(&floats).is_err());
    }

    #[test]
    fn there_are_not_too_many_files() {
        let names: Vec<String> = (0..=MAX_FILES).map(|i| format!("run/{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(matches!(Bundle::of_parcel(&parcel(&names)), Err(BundleError::TooMany { files: 4097 })));
    }

    #[test]
    fn a_directory_that_cannot_be_written_whole_changes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let to = place.path().join("to");
        put(&to, "old", "old");
        // A file cannot be a directory, too.
        let clash = Bundle::of_parcel(&parcel(&["run/a", "run/a/b"])).unwrap();
        assert!(matches!(clash.replace(&to), Err(BundleError::Io { .. })));
        assert_eq!(files(&to), ["old"]);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
