//! Which files a run may open on this node: those that its driver lists by hash, and those in directories that the
//! node allows.
//!
//! A list has for each key of the run file that names a file: the file itself, perhaps with files beside it to which it
//! refers (the tensors of an ONNX model), or all files of the folder that the key names.

use super::data_roots::{RELATIVE, is_plain};
use super::files::{FileCache, FileHash, WantedFile};
use crate::error::{FileProblem, RankError};
use bytes::Bytes;
use phalanx_data::map_open;
use phalanx_own_files::{open_regular, plain_name};
use phalanx_train::config::{Override, RunConfig, RunFile};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Reads the run file of a peer: relative paths in it begin at a root of this node.
///
/// # Errors
/// It is no valid run file.
pub fn parse_of_peer(text: &str, said: &[Override]) -> Result<RunFile, RankError> {
    Ok(RunFile::parse(&Path::new(RELATIVE).join("run.toml"), text, said)?)
}

/// Sees that every file that a run file names is here; gives the names of those that have another one here. `own` is a
/// key whose file this node makes by itself.
///
/// # Errors
/// A key names what is neither listed nor in a root, or a listed file cannot be brought here.
pub fn bring_all<'a>(
    config: &RunConfig,
    listed: &[WantedFile<'a>],
    own: Option<&str>,
    cache: &mut FileCache,
    mut fetch: impl FnMut(usize) -> Result<Bytes, FileProblem>,
) -> Result<Vec<(&'static str, PathBuf)>, RankError> {
    let mut names = Vec::new();
    for (key, named) in config.files() {
        if own == Some(key) {
            continue;
        }
        let of_key: Vec<(usize, WantedFile<'a>)> =
            listed.iter().copied().enumerate().filter(|(_, file)| file.key == key).collect();
        let path = match of_key.as_slice() {
            [] => {
                let not_listed = || RankError::File { path: key.to_owned(), problem: FileProblem::NotListed };
                cache.unlisted(named).ok_or_else(not_listed)?
            }
            [(index, file)] if place_in(named, file).is_none_or(|place| !place.is_inside) => {
                cache.bring(*file, || fetch(*index))?
            }
            files => bring_tree(named, files, cache, &mut fetch)?,
        };
        if path != named {
            names.push((key, path));
        }
    }
    Ok(names)
}

/// Where a listed file is from the path that a key names.
struct Place<'a> {
    /// In the folder of that path, or beside that path.
    is_inside: bool,
    name: &'a Path,
}

fn place_in<'a>(named: &Path, file: &WantedFile<'a>) -> Option<Place<'a>> {
    let path = Path::new(file.path);
    let inside = path.strip_prefix(named).ok().filter(|name| !name.as_os_str().is_empty());
    let beside = || path.strip_prefix(named.parent()?).ok();
    let place = match inside {
        Some(name) => Place { is_inside: true, name },
        None => Place { is_inside: false, name: beside()? },
    };
    (is_plain(place.name) && !place.name.as_os_str().is_empty()).then_some(place)
}

/// Brings a folder, or a file with the files beside it.
fn bring_tree(
    named: &Path,
    files: &[(usize, WantedFile<'_>)],
    cache: &mut FileCache,
    fetch: &mut impl FnMut(usize) -> Result<Bytes, FileProblem>,
) -> Result<PathBuf, RankError> {
    let has_main = files.iter().any(|(_, file)| Path::new(file.path) == named);
    let mut tree: Vec<(PathBuf, PathBuf, FileHash)> = Vec::new();
    for (index, file) in files {
        let problem = |problem| RankError::File { path: file.path.to_owned(), problem };
        let place = place_in(named, file).filter(|place| place.is_inside != has_main);
        let place = place.ok_or_else(|| problem(FileProblem::Name))?;
        let path = cache.bring(*file, || fetch(*index))?;
        tree.push((place.name.to_owned(), path, *file.sha256));
    }
    let write = |source| {
        let problem = FileProblem::Write { path: named.to_owned(), source };
        RankError::File { path: named.to_string_lossy().into_owned(), problem }
    };
    let dir = cache.tree(&tree).map_err(write)?;
    Ok(match named.file_name().filter(|_| has_main) {
        Some(name) => dir.join(name),
        None => dir,
    })
}

/// A path under a key of a run file.
pub(crate) fn at_key(key: &str, path: &Path) -> Override {
    // A text in JSON is one in TOML.
    let text = serde_json::Value::from(path.to_string_lossy()).to_string();
    Override::flag("the driver", key, text)
}

/// Files that one run lists, at most: a message names all of them.
pub const MOST_FILES: usize = 4000;
/// How deep the folders of a folder are looked into. Images are in one folder for each class.
const DEPTH: usize = 3;

/// The files that a driver lists for nodes: for each key the file itself and what it refers to, or all files of the
/// folder. The folders that have too many of them are left out: nodes need those in a directory that they allow.
#[derive(Debug, Default)]
pub struct FilesOfRun {
    pub files: Vec<(&'static str, PathBuf)>,
    pub left_out: Vec<(&'static str, PathBuf)>,
}

/// Finds the files of a run.
///
/// # Errors
/// A folder cannot be read.
pub fn files_of(config: &RunConfig) -> io::Result<FilesOfRun> {
    let mut all = FilesOfRun::default();
    for (key, path) in config.files() {
        let mut found = Vec::new();
        if path.is_dir() {
            walk(path, DEPTH, &mut found)?;
        } else if path.is_file() {
            found.push(path.to_owned());
            if key == "model.onnx" {
                found.extend(tensors_beside(path)?);
            }
        }
        match all.files.len() + found.len() <= MOST_FILES {
            true => all.files.extend(found.into_iter().map(|file| (key, file))),
            false => all.left_out.push((key, path.to_owned())),
        }
    }
    Ok(all)
}

/// The regular files below a folder that are not hidden, by name; a few more than can be listed, at most.
fn walk(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    paths.sort();
    for path in paths.into_iter().filter(|path| plain_name(path).is_some()) {
        if found.len() > MOST_FILES {
            return Ok(());
        }
        let about = std::fs::metadata(&path)?;
        if about.is_dir() && depth > 1 {
            walk(&path, depth - 1, found)?;
        } else if about.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

/// The files in the folder of an ONNX model that its tensors say they are in.
fn tensors_beside(model: &Path) -> io::Result<BTreeSet<PathBuf>> {
    // An entry of the tensor's external data in protobuf: the key, then the value with its length.
    const LOCATION: &[u8] = b"\x0a\x08location\x12";
    let bytes = map_open(&open_regular(model)?)?;
    let mut found = BTreeSet::new();
    let mut rest: &[u8] = &bytes;
    while let Some(at) = find(rest, LOCATION) {
        rest = rest.get(at + LOCATION.len()..).unwrap_or_default();
        // Names of files are shorter than what one byte can say, or a little longer.
        let (len, from) = match rest {
            [short @ 0..0x80, ..] => (usize::from(*short), 1),
            [low, high @ 0..0x80, ..] => (usize::from(*low & 0x7f) | usize::from(*high) << 7, 2),
            _ => continue,
        };
        let name = rest.get(from..from + len).and_then(|name| std::str::from_utf8(name).ok());
        let beside = |name: &str| Some(model.parent()?.join(name));
        let path = name.filter(|name| !name.is_empty() && is_plain(Path::new(name))).and_then(beside);
        found.extend(path.filter(|path| path.is_file()));
        if found.len() > MOST_FILES {
            break;
        }
    }
    Ok(found)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let (first, _) = wanted.split_first()?;
    let mut from = 0;
    while let Some(at) = bytes.get(from..)?.iter().position(|byte| byte == first) {
        from += at;
        if bytes.get(from..)?.starts_with(wanted) {
            return Some(from);
        }
        from += 1;
    }
    None
}

#[cfg(test)]
mod tests;
