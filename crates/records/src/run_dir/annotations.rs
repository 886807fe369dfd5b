//! `annotations.jsonl`: tags and notes that users give a run, also while it is trained. Append-only; every process may
//! add a line.

use super::error::{RunDirError, io};
use super::{is_run, unix_ms};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Tags and notes of users, a line each.
pub const ANNOTATIONS: &str = "annotations.jsonl";

/// A change of a run's tags, or a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Annotation {
    /// Sets tags.
    Set(BTreeMap<String, String>),
    /// Removes a tag.
    Remove(String),
    Note(String),
}

#[derive(Serialize)]
struct Written<'a> {
    unix_ms: u64,
    #[serde(flatten)]
    annotation: &'a Annotation,
}

/// Adds an annotation to a run.
///
/// # Errors
/// There is no run, or its files cannot be written.
pub fn annotate(run: &Path, annotation: &Annotation) -> Result<(), RunDirError> {
    if !is_run(run) {
        return Err(RunDirError::NotARun { path: run.to_owned() });
    }
    let path = run.join(ANNOTATIONS);
    let mut line = serde_json::to_vec(&Written { unix_ms: unix_ms(), annotation })
        .map_err(|source| RunDirError::Json { path: path.clone(), source })?;
    line.push(b'\n');
    let file = File::options().append(true).create(true).open(&path);
    // One write, so that lines of several processes do not mix.
    file.and_then(|mut file| file.write_all(&line)).map_err(io("write", &path))
}
