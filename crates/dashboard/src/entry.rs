//! What a run recorded, as the rows and events that the dashboard shows.

use crate::error::ApiError;
use phalanx_records::history::{self, LoggedEvent, Metrics, Position};
use phalanx_records::run_dir::Annotation;
use serde_json::Value;
use std::path::Path;

/// Values of a line, by name.
pub(crate) type Values = Vec<(String, f64)>;

/// A recorded fact.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entry {
    Event(LoggedEvent),
    /// Everything recorded after this step does not count any more.
    Cut {
        step: u64,
    },
    /// A step or a validation.
    Line {
        step: u64,
        unix_ms: Option<u64>,
        values: Values,
    },
    Annotation(u64, Annotation),
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
        history::Entry::Cut { step, .. } => Entry::Cut { step },
        history::Entry::Step(metrics) | history::Entry::Valid(metrics) => line(metrics),
        history::Entry::Annotation { unix_ms, annotation } => Entry::Annotation(unix_ms, annotation),
    }
}

fn line(metrics: Metrics) -> Entry {
    let Metrics { step, unix_ms, mut values, replicas, .. } = metrics;
    if let Some((_, Value::Array(replicas))) = replicas {
        replicas.iter().for_each(|of| node_values(of, &mut values));
    }
    Entry::Line { step, unix_ms, values }
}

/// What a node did in a step, as `node/<node>/<name>`.
fn node_values(replica: &Value, values: &mut Values) {
    let (Some(node), Value::Object(fields)) = (replica["node"].as_str(), replica) else { return };
    for (name, value) in fields {
        if let (false, Some(value)) = (matches!(name.as_str(), "replica" | "stage"), value.as_f64()) {
            values.push((format!("node/{node}/{name}"), value));
        }
    }
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
        assert_eq!(entries, [Entry::Line { step: 1, unix_ms: None, values }]);
        assert_eq!(read_from(dir.path(), &mut position).unwrap(), None);
    }
}
