//! `inputs.json`: the files that a run learned from, as they were.
//!
//! A run that goes on, and whatever uses its data again, compares them: size and time first, and the hash when the time
//! differs. Folders are one input: the hash is over the names, sizes and contents of their files.

use super::error::{RunDirError, io};
use super::replace;
use crate::params_hash::hex;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The name of the file.
pub const INPUTS: &str = "inputs.json";
/// What is read at a time.
const BLOCK: usize = 1 << 20;
/// The deepest folder that is looked into.
const DEEPEST: usize = 16;

/// The files that a run learned from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    pub files: Vec<Input>,
}

/// A file or a folder as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The key of the run file that names it, such as `data.train.file`.
    pub key: String,
    pub path: PathBuf,
    #[serde(flatten)]
    pub look: Look,
    /// Of a large file it is missing until it was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// What can be seen of a file or a folder without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// Of all files together.
    pub bytes: u64,
    /// How many files there are: 1, or those of a folder.
    pub files: u64,
    /// When the last of them was changed, in nanoseconds since 1970.
    pub modified_ns: u64,
}

/// How an input differs from what the run had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputChange {
    #[error("it cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    #[error("it has {now} bytes, and had {then}")]
    Size { then: u64, now: u64 },
    #[error("it has {now} files, and had {then}")]
    Files { then: u64, now: u64 },
    #[error("it has other contents of the same size")]
    Contents,
    #[error("it was written to later, and the run has no hash of it")]
    Unknown,
}

/// An input that is not what the run had.
#[derive(Debug)]
pub struct ChangedInput {
    pub key: String,
    pub path: PathBuf,
    pub change: InputChange,
}

impl Inputs {
    /// Looks at files and folders, each with the key that names it. Only `hash` computes hashes.
    ///
    /// # Errors
    /// One cannot be looked at.
    pub fn look(files: &[(&str, &Path)]) -> Result<Self, RunDirError> {
        let input = |(key, path): &(&str, &Path)| {
            let look = look(path).map_err(io("read", path))?;
            Ok(Input { key: (*key).to_owned(), path: path.to_path_buf(), look, sha256: None })
        };
        Ok(Self { files: files.iter().map(input).collect::<Result<_, RunDirError>>()? })
    }

    /// The bytes of all inputs without a hash.
    pub fn unhashed(&self) -> u64 {
        self.files.iter().filter(|input| input.sha256.is_none()).map(|input| input.look.bytes).sum()
    }

    /// Computes missing hashes. A file that changes meanwhile keeps none.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn hash(&mut self) -> Result<(), RunDirError> {
        for input in self.files.iter_mut().filter(|input| input.sha256.is_none()) {
            let hash = sha256_of(&input.path).map_err(io("read", &input.path))?;
            let now = look(&input.path).map_err(io("read", &input.path))?;
            input.sha256 = (now == input.look).then_some(hash);
        }
        Ok(())
    }

    /// Reads the inputs of a run; `None` for a run that has not recorded them.
    ///
    /// # Errors
    /// They exist and cannot be read.
    pub fn read(run: &Path) -> Result<Option<Self>, RunDirError> {
        let path = run.join(INPUTS);
        match std::fs::read(&path) {
            Ok(text) => {
                let inputs = serde_json::from_slice(&text);
                inputs.map(Some).map_err(|source| RunDirError::Json { path, source })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io("read", &path)(error)),
        }
    }

    /// Writes them into the directory of a run.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&self, run: &Path) -> Result<(), RunDirError> {
        let path = run.join(INPUTS);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| RunDirError::Json { path: path.clone(), source })?;
        replace(&path, &text).map_err(io("write", &path))
    }

    /// The inputs under these keys that are not what they were.
    pub fn changed(&self, keys: impl Fn(&str) -> bool) -> Vec<ChangedInput> {
        let changed = |input: &Input| {
            let change = input.change()?;
            Some(ChangedInput { key: input.key.clone(), path: input.path.clone(), change })
        };
        self.files.iter().filter(|input| keys(&input.key)).filter_map(changed).collect()
    }
}

impl Input {
    fn change(&self) -> Option<InputChange> {
        let now = match look(&self.path) {
            Ok(now) => now,
            Err(error) => return Some(InputChange::Unreadable(error)),
        };
        let hash = || sha256_of(&self.path);
        compare(&self.look, self.sha256.as_deref(), &now, hash)
    }
}

/// Compares what a file was with what it is. The hash is only asked for in doubt.
fn compare(
    then: &Look,
    sha256: Option<&str>,
    now: &Look,
    hash: impl FnOnce() -> io::Result<String>,
) -> Option<InputChange> {
    if now.files != then.files {
        return Some(InputChange::Files { then: then.files, now: now.files });
    }
    if now.bytes != then.bytes {
        return Some(InputChange::Size { then: then.bytes, now: now.bytes });
    }
    if now.modified_ns == then.modified_ns {
        return None;
    }
    let Some(sha256) = sha256 else { return Some(InputChange::Unknown) };
    match hash() {
        Ok(found) if found == sha256 => None,
        Ok(_) => Some(InputChange::Contents),
        Err(error) => Some(InputChange::Unreadable(error)),
    }
}

fn look(path: &Path) -> io::Result<Look> {
    let mut look = Look { bytes: 0, files: 0, modified_ns: 0 };
    for (_, path) in files(path)? {
        let meta = std::fs::metadata(&path)?;
        let since = meta.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let modified_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        look.bytes = look.bytes.saturating_add(meta.len());
        look.files += 1;
        look.modified_ns = look.modified_ns.max(modified_ns);
    }
    Ok(look)
}

/// The hash of a file's bytes, or of the names, sizes and bytes of a folder's files.
fn sha256_of(path: &Path) -> io::Result<String> {
    let mut context = Context::new(&SHA256);
    let mut block = vec![0; BLOCK];
    let is_folder = path.is_dir();
    for (name, path) in files(path)? {
        let mut file = File::open(&path)?;
        if is_folder {
            context.update(name.as_os_str().as_encoded_bytes());
            context.update(&[0]);
            context.update(&file.metadata()?.len().to_le_bytes());
        }
        loop {
            match file.read(&mut block) {
                Ok(0) => break,
                Ok(read) => context.update(block.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(hex(context.finish().as_ref()))
}

/// The file itself, or the regular files of a folder by their names. Whatever begins with a dot is left out.
fn files(path: &Path) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let meta = std::fs::metadata(path)?;
    if meta.is_file() {
        return Ok(vec![(PathBuf::new(), path.to_owned())]);
    }
    if !meta.is_dir() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut found = Vec::new();
    let mut folders = vec![(PathBuf::new(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in std::fs::read_dir(path.join(&folder))? {
            let name = entry?.file_name();
            if name.to_string_lossy().starts_with('.') {
                continue;
            }
            let name = folder.join(name);
            let place = path.join(&name);
            match std::fs::metadata(&place) {
                Ok(meta) if meta.is_file() => found.push((name, place)),
                Ok(meta) if meta.is_dir() && depth < DEEPEST => folders.push((name, depth + 1)),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(path: &Path) -> Inputs {
        let mut inputs = Inputs::look(&[("data.train.file", path)]).unwrap();
        inputs.hash().unwrap();
        inputs
    }

    fn touch(path: &Path) {
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
    }

    #[test]
    fn a_file_is_the_same_until_its_size_or_its_contents_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        std::fs::write(&path, "abc").unwrap();
        let then = inputs(&path);
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(then.files[0].sha256.as_deref(), Some(hash));
        then.write(dir.path()).unwrap();
        assert_eq!(Inputs::read(dir.path()).unwrap(), Some(then.clone()));
        let change = |inputs: &Inputs| inputs.changed(|_| true).pop().map(|changed| changed.change);
        assert!(change(&then).is_none());
        touch(&path);
        assert!(change(&then).is_none());
        let unhashed = Inputs { files: vec![Input { sha256: None, ..then.files[0].clone() }] };
        assert!(matches!(change(&unhashed), Some(InputChange::Unknown)));
        std::fs::write(&path, "abd").unwrap();
        touch(&path);
        assert!(matches!(change(&then), Some(InputChange::Contents)));
        assert!(then.changed(|key| key == "model.onnx").is_empty());
        std::fs::write(&path, "abcd").unwrap();
        assert!(matches!(change(&then), Some(InputChange::Size { then: 3, now: 4 })));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(change(&then), Some(InputChange::Unreadable(_))));
    }

    #[test]
    fn a_folder_is_one_input() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("images");
        for (name, text) in [("cat/1.png", "a"), ("dog/1.png", "b"), (".hidden", "c")] {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let then = inputs(&folder);
        assert_eq!((then.files[0].look.files, then.files[0].look.bytes), (2, 2));
        std::fs::rename(folder.join("cat/1.png"), folder.join("dog/2.png")).unwrap();
        touch(&folder.join("dog/1.png"));
        let changed = then.changed(|_| true);
        assert!(matches!(changed[0].change, InputChange::Contents), "{changed:?}");
        std::fs::write(folder.join("dog/3.png"), "").unwrap();
        let changed = then.changed(|_| true);
        assert!(matches!(changed[0].change, InputChange::Files { then: 2, now: 3 }), "{changed:?}");
    }

    #[test]
    fn the_hash_is_only_computed_in_doubt() {
        let look = Look { bytes: 3, files: 1, modified_ns: 5 };
        let never = || panic!("nothing is in doubt");
        assert!(compare(&look, Some("x"), &look, never).is_none());
        assert!(compare(&look, Some("x"), &Look { bytes: 4, ..look }, never).is_some());
        let later = Look { modified_ns: 6, ..look };
        assert!(compare(&look, Some("x"), &later, || Ok("x".to_owned())).is_none());
    }
}
