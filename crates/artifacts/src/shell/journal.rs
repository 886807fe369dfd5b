//! What a push has sent so far, beside the run: a push that was killed goes on where it was.
//!
//! It is a help and not the truth: what it says is compared with what the store lists.

use super::files::hex;
use crate::core::manifest::ManifestFile;
use crate::core::path::{FilePath, PUSHING};
use crate::core::plan::{Begun, Known, LocalFile};
use crate::error::ArtifactError;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Sent { path: String, size: u64, sha256: String, e_tag: Option<String> },
    Begun { path: String, size: u64, sha256: String, part_size: u64, upload: String },
    Part { path: String, index: u64, id: String },
    Ended { path: String },
}

impl Journal {
    /// Opens the journal of pushes of a run to a place, and adds what it says to what is known.
    pub(crate) fn open(run: &Path, to: &str, known: &mut Known) -> Result<Self, ArtifactError> {
        let folder = run.join(PUSHING);
        let made = std::fs::create_dir_all(&folder);
        made.map_err(|source| ArtifactError::Local { what: "make", path: folder.clone(), source })?;
        let name: String = hex(digest(&SHA256, to.as_bytes()).as_ref()).chars().take(16).collect();
        let path = folder.join(format!("{name}.jsonl"));
        let failed = |source| ArtifactError::Local { what: "open", path: path.clone(), source };
        let file = File::options().append(true).create(true).open(&path).map_err(failed)?;
        let text = std::fs::read(&path).map_err(failed)?;
        for line in text.split(|byte| *byte == b'\n') {
            // The last line of a killed process may be half a line.
            if let Ok(line) = serde_json::from_slice(line) {
                apply(line, known);
            }
        }
        let journal = Self { path, file: Mutex::new(file) };
        if text.last().is_some_and(|last| *last != b'\n') {
            journal.write_bytes(b"\n")?;
        }
        Ok(journal)
    }

    pub(crate) fn sent(&self, file: &ManifestFile) -> Result<(), ArtifactError> {
        let ManifestFile { path, size, sha256, e_tag } = file.clone();
        self.write(&Line::Sent { path: path.to_string(), size, sha256, e_tag })
    }

    pub(crate) fn begun(&self, file: &LocalFile, part_size: u64, upload: &str) -> Result<(), ArtifactError> {
        self.write(&Line::Begun {
            path: file.path.to_string(),
            size: file.size,
            sha256: file.sha256.clone(),
            part_size,
            upload: upload.to_owned(),
        })
    }

    pub(crate) fn part(&self, path: &FilePath, index: u64, id: &str) -> Result<(), ArtifactError> {
        self.write(&Line::Part { path: path.to_string(), index, id: id.to_owned() })
    }

    /// An upload in parts does not go on.
    pub(crate) fn ended(&self, path: &FilePath) -> Result<(), ArtifactError> {
        self.write(&Line::Ended { path: path.to_string() })
    }

    /// The push is whole: the manifest says all of it.
    pub(crate) fn remove(self) {
        let removed = std::fs::remove_file(&self.path);
        if let (Ok(()), Some(folder)) = (removed, self.path.parent()) {
            // Not empty while a push to another place is not whole.
            let _stays = std::fs::remove_dir(folder);
        }
    }

    fn write(&self, line: &Line) -> Result<(), ArtifactError> {
        let failed = |source: serde_json::Error| ArtifactError::Local {
            what: "write",
            path: self.path.clone(),
            source: source.into(),
        };
        let mut bytes = serde_json::to_vec(line).map_err(failed)?;
        bytes.push(b'\n');
        self.write_bytes(&bytes)
    }

    fn write_bytes(&self, bytes: &[u8]) -> Result<(), ArtifactError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.write_all(bytes);
        written.map_err(|source| ArtifactError::Local { what: "write", path: self.path.clone(), source })
    }
}

fn apply(line: Line, known: &mut Known) {
    match line {
        Line::Sent { path, size, sha256, e_tag } => {
            let Ok(path) = FilePath::new(&path) else { return };
            known.begun.remove(&path);
            known.sent.insert(path.clone(), ManifestFile { path, size, sha256, e_tag });
        }
        Line::Begun { path, size, sha256, part_size, upload } => {
            let Ok(path) = FilePath::new(&path) else { return };
            known.begun.insert(path, Begun { size, sha256, part_size, upload, parts: BTreeMap::new() });
        }
        Line::Part { path, index, id } => {
            let Ok(path) = FilePath::new(&path) else { return };
            if let Some(begun) = known.begun.get_mut(&path) {
                begun.parts.insert(index, id);
            }
        }
        Line::Ended { path } => {
            let Ok(path) = FilePath::new(&path) else { return };
            known.begun.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> LocalFile {
        LocalFile { path: FilePath::new(name).unwrap(), size: 20 << 20, sha256: "h".to_owned() }
    }

    #[test]
    fn a_killed_push_is_known_up_to_its_last_whole_line() {
        let run = tempfile::tempdir().unwrap();
        let mut known = Known::default();
        let journal = Journal::open(run.path(), "s3://a", &mut known).unwrap();
        journal.begun(&file("model"), 8 << 20, "u1").unwrap();
        journal.part(&file("model").path, 1, "p1").unwrap();
        let sent = ManifestFile {
            path: file("run.toml").path,
            size: 3,
            sha256: "h".to_owned(),
            e_tag: Some("t".to_owned()),
        };
        journal.sent(&sent).unwrap();
        journal.write_bytes(b"{\"part\":{\"path\":\"model\",\"ind").unwrap();
        drop(journal);
        let journal = Journal::open(run.path(), "s3://a", &mut known).unwrap();
        journal.part(&file("model").path, 0, "p0").unwrap();
        let mut known = Known::default();
        let journal = Journal::open(run.path(), "s3://a", &mut known).unwrap();
        let parts = BTreeMap::from([(0, "p0".to_owned()), (1, "p1".to_owned())]);
        assert_eq!(known.begun[&file("model").path].parts, parts);
        assert_eq!(known.sent[&sent.path], sent);
        let mut other = Known::default();
        Journal::open(run.path(), "s3://b", &mut other).unwrap().remove();
        assert!(other.sent.is_empty());
        journal.ended(&file("model").path).unwrap();
        journal.remove();
        assert!(!run.path().join(PUSHING).exists());
    }
}
