//! From records of a run to changes of rows. The same records always give the same changes.

use super::bounded;
use phalanx_records::history::{Entry, LoggedEvent};
use phalanx_records::run_dir::Annotation;

/// A change of the rows of one run, to be made in the order given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// Points whose line begins at or after this byte do not count any more.
    Cut {
        metrics_bytes: u64,
    },
    /// `at` is where its line begins: it tells points of one step apart.
    Point {
        series: String,
        step: u64,
        at: u64,
        unix_ms: Option<u64>,
        value: f64,
    },
    Event {
        seq: u64,
        unix_ms: u64,
        kind: String,
        json: String,
    },
    Formation {
        epoch: u64,
        unix_ms: u64,
        step: u64,
        json: String,
    },
    NodeJoined {
        node: String,
        unix_ms: u64,
    },
    NodeLost {
        node: String,
        unix_ms: u64,
        reason: Option<String>,
    },
    Artifact {
        path: String,
        url: Option<String>,
        size: Option<u64>,
        sha256: Option<String>,
    },
    Tag {
        name: String,
        value: String,
    },
    Untag {
        name: String,
    },
    Note {
        unix_ms: u64,
        text: String,
    },
}

/// The changes that records make, in their order.
pub(crate) fn fold(entries: Vec<Entry>) -> Vec<Change> {
    let mut changes = Vec::with_capacity(entries.len() * 4);
    for entry in entries {
        match entry {
            Entry::Event(event) => on_event(event, &mut changes),
            Entry::Cut { metrics_bytes, .. } => changes.push(Change::Cut { metrics_bytes }),
            Entry::Step(metrics) | Entry::Valid(metrics) => {
                let (step, at, unix_ms) = (metrics.step, metrics.at, metrics.unix_ms);
                let point = |(series, value)| Change::Point { series, step, at, unix_ms, value };
                changes.extend(metrics.into_values().into_iter().map(point));
            }
            Entry::Annotation { unix_ms, annotation } => on_annotation(unix_ms, annotation, &mut changes),
        }
    }
    changes
}

fn on_annotation(unix_ms: u64, annotation: Annotation, changes: &mut Vec<Change>) {
    match annotation {
        Annotation::Set(tags) => {
            changes.extend(tags.into_iter().map(|(name, value)| Change::Tag { name, value: bounded(value) }));
        }
        Annotation::Remove(name) => changes.push(Change::Untag { name }),
        Annotation::Note(text) => changes.push(Change::Note { unix_ms, text: bounded(text) }),
    }
}

fn on_event(event: LoggedEvent, changes: &mut Vec<Change>) {
    let LoggedEvent { seq, unix_ms, event: kind, value } = event;
    let text = |key: &str| value.get(key).and_then(|text| text.as_str()).map(str::to_owned);
    let number = |key: &str| value.get(key).and_then(serde_json::Value::as_u64);
    match kind.as_str() {
        "formed" => {
            let (epoch, step) = (number("epoch").unwrap_or(0), number("step").unwrap_or(0));
            changes.push(Change::Formation { epoch, unix_ms, step, json: value.to_string() });
            let nodes = value.get("nodes").and_then(|nodes| nodes.as_array()).into_iter().flatten();
            let joined = |node: &str| Change::NodeJoined { node: node.to_owned(), unix_ms };
            changes.extend(nodes.filter_map(|node| node.as_str().map(joined)));
        }
        "lost" => {
            let reason = text("reason").or_else(|| text("why"));
            if let Some(node) = text("node") {
                changes.push(Change::NodeLost { node, unix_ms, reason });
            }
        }
        "artifact" => {
            if let Some(path) = text("path") {
                let size = number("size").or_else(|| number("bytes"));
                changes.push(Change::Artifact { path, url: text("url"), size, sha256: text("sha256") });
            }
        }
        _ => {}
    }
    changes.push(Change::Event { seq, unix_ms, kind, json: value.to_string() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_records::history::Metrics;
    use serde_json::json;

    fn event(seq: u64, event: &str, value: serde_json::Value) -> Entry {
        Entry::Event(LoggedEvent { seq, unix_ms: 5, event: event.to_owned(), value })
    }

    #[test]
    fn a_formation_is_an_event_a_row_and_its_nodes() {
        let value = json!({ "epoch": 2, "nodes": ["a", "b"], "step": 7 });
        let changes = fold(vec![event(3, "formed", value.clone())]);
        let json = value.to_string();
        assert_eq!(
            changes,
            [
                Change::Formation { epoch: 2, unix_ms: 5, step: 7, json: json.clone() },
                Change::NodeJoined { node: "a".to_owned(), unix_ms: 5 },
                Change::NodeJoined { node: "b".to_owned(), unix_ms: 5 },
                Change::Event { seq: 3, unix_ms: 5, kind: "formed".to_owned(), json },
            ]
        );
    }

    #[test]
    fn events_of_any_shape_are_kept_as_they_are() {
        for value in [json!(null), json!([1]), json!({ "nodes": 3, "path": 7, "node": [] }), json!("text")] {
            for kind in ["formed", "lost", "artifact", "opened", "", "anything"] {
                let changes = fold(vec![event(1, kind, value.clone())]);
                let kept = changes.last().unwrap();
                let expected = (value.to_string(), kind);
                assert!(
                    matches!(kept, Change::Event { json, kind, .. } if (json.clone(), kind.as_str()) == expected)
                );
            }
        }
    }

    #[test]
    fn what_a_node_did_in_a_step_is_a_series_of_its_own() {
        let replicas = json!([{ "node": "a", "compute_ms": 2.0, "stage": 0 }, { "node": 7 }, null]);
        let replicas = Some((1, replicas));
        let values = vec![("loss".to_owned(), 1.0)];
        let metrics = Metrics { at: 0, unix_ms: None, step: 1, pass: 1, values, replicas };
        let changes = fold(vec![Entry::Step(metrics)]);
        let point = |series: &str, value| {
            let series = series.to_owned();
            Change::Point { series, step: 1, at: 0, unix_ms: None, value }
        };
        assert_eq!(changes, [point("loss", 1.0), point("node/a/compute_ms", 2.0)]);
    }

    #[test]
    fn steps_become_points_in_order_around_cuts() {
        let values = vec![("loss".to_owned(), 1.0), ("lr".to_owned(), 2.0)];
        let metrics = Metrics { at: 7, unix_ms: None, step: 1, pass: 1, values, replicas: None };
        let cut = Entry::Cut { step: 0, metrics_bytes: 0 };
        let changes = fold(vec![Entry::Step(metrics.clone()), cut, Entry::Valid(metrics)]);
        assert_eq!((changes.len(), &changes[2]), (5, &Change::Cut { metrics_bytes: 0 }));
        let lr = Change::Point { series: "lr".to_owned(), step: 1, at: 7, unix_ms: None, value: 2.0 };
        assert_eq!((&changes[1], &changes[4]), (&lr, &lr));
    }
}
