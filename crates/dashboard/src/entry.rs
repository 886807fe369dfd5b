//! What a run recorded, as the rows and events that the dashboard shows.

use crate::error::ApiError;
use phalanx_records::history::{self, LoggedEvent, Metrics, Position};
use phalanx_records::run_dir::Annotation;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Values of a line, by name.
pub(crate) type Values = Vec<(String, f64)>;

/// A recorded step or validation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    /// Where it begins in the file.
    pub(crate) at: u64,
    pub(crate) step: u64,
    pub(crate) unix_ms: Option<u64>,
    pub(crate) values: Values,
}

/// A recorded fact.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entry {
    Event(LoggedEvent),
    /// Everything recorded after this step does not count any more: lines that begin at this byte or later.
    Cut {
        step: u64,
        metrics_bytes: u64,
    },
    Line(Line),
    Annotation(u64, Annotation),
}

/// A note that a user made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Note {
    pub(crate) unix_ms: u64,
    pub(crate) text: String,
}

/// The next entries after a position, which is moved; `None` when all is read.
pub(crate) fn read_from(run: &Path, position: &mut Position) -> Result<Option<Vec<Entry>>, ApiError> {
    let batch = history::read_from(run, position)?;
    if batch.entries.is_empty() && batch.position == *position {
        return Ok(None);
    }
    *position = batch.position;
    Ok(Some(batch.entries.into_iter().map(entry).collect()))
}

fn entry(entry: history::Entry) -> Entry {
    match entry {
        history::Entry::Event(event) => Entry::Event(event),
        history::Entry::Cut { step, metrics_bytes } => Entry::Cut { step, metrics_bytes },
        history::Entry::Step(metrics) | history::Entry::Valid(metrics) => line(metrics),
        history::Entry::Annotation { unix_ms, annotation } => Entry::Annotation(unix_ms, annotation),
    }
}

fn line(metrics: Metrics) -> Entry {
    let Metrics { at, step, unix_ms, .. } = metrics;
    Entry::Line(Line { at, step, unix_ms, values: metrics.into_values() })
}

/// What users said about a run: tags, and notes from the oldest on.
pub(crate) fn annotations(run: &Path) -> (BTreeMap<String, String>, Vec<Note>) {
    let (mut tags, mut notes) = (BTreeMap::new(), Vec::new());
    // Only annotations: the other files count as read.
    let Ok(end) = history::end_of(run) else { return (tags, notes) };
    let mut position = Position { annotations: 0, ..end };
    while let Ok(Some(entries)) = read_from(run, &mut position) {
        for entry in entries {
            match entry {
                Entry::Annotation(_, Annotation::Set(set)) => tags.extend(set),
                Entry::Annotation(_, Annotation::Remove(key)) => drop(tags.remove(&key)),
                Entry::Annotation(unix_ms, Annotation::Note(text)) => notes.push(Note { unix_ms, text }),
                _ => {}
            }
        }
    }
    (tags, notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_nodes_did_in_a_step_are_values_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let line = r#"{"step":1,"loss":0.5,"epoch":3,"replicas":[{"node":"a","compute_ms":2.0,"stage":0}]}"#;
        fs::write(dir.path().join("metrics.jsonl"), format!("{line}\n")).unwrap();
        let mut position = Position::default();
        let entries = read_from(dir.path(), &mut position).unwrap().unwrap();
        let values = vec![("loss".to_owned(), 0.5), ("node/a/compute_ms".to_owned(), 2.0)];
        assert_eq!(entries, [Entry::Line(Line { at: 0, step: 1, unix_ms: None, values })]);
        assert_eq!(read_from(dir.path(), &mut position).unwrap(), None);
    }

    #[test]
    fn tags_and_notes_are_read_without_the_other_records() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("metrics.jsonl"), "{\"step\":1}\n{\"step\":2}\nhalf").unwrap();
        let lines = "{\"unix_ms\":1,\"set\":{\"a\":\"1\",\"b\":\"2\"}}\n{\"unix_ms\":2,\"note\":\"well\"}\n\
                     {\"unix_ms\":3,\"remove\":\"a\"}\n";
        fs::write(dir.path().join("annotations.jsonl"), lines).unwrap();
        let (tags, notes) = annotations(dir.path());
        assert_eq!(tags, BTreeMap::from([("b".to_owned(), "2".to_owned())]));
        assert_eq!(notes, [Note { unix_ms: 2, text: "well".to_owned() }]);
    }
}
