//! What was recorded about a run, each entry once and in order, while it is written and after: the ledger, the dashboard
//! and plots read runs with it.
//!
//! A reader keeps a [`Position`] and asks [`read_from`] what is new. No lock is needed. Metrics are read before events:
//! when they are cut, a process cuts `metrics.jsonl`, then writes `opened` to `events.jsonl`, then adds new lines. So
//! metrics that belong to a later life of the run come with an `opened` event, and are then read again from where the
//! cut was.

mod chunk;
mod line;

use crate::run_dir::{ANNOTATIONS, Annotation, EVENTS, METRICS, RunDirError};
use chunk::{Chunk, end_of_lines, read_chunk};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// How much of a run's records was read, in bytes of each file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub events: u64,
    pub metrics: u64,
    pub annotations: u64,
}

/// Entries that follow a position.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Events first, then steps and validations, then annotations, each in the order in which they were written.
    pub entries: Vec<Entry>,
    /// The position after them.
    pub position: Position,
    /// Lines that cannot be understood; they are left out.
    pub unreadable: usize,
    /// Whether this is everything that was recorded when it was read.
    pub is_all: bool,
}

/// Something that was recorded.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    Event(LoggedEvent),
    /// Steps and validations at or after this place in the file, all of later steps than `step`, do not count any more.
    Cut {
        step: u64,
        metrics_bytes: u64,
    },
    Step(Metrics),
    Valid(Metrics),
    Annotation {
        unix_ms: u64,
        annotation: Annotation,
    },
}

/// A line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoggedEvent {
    /// Events of a run are numbered from 0.
    pub seq: u64,
    pub unix_ms: u64,
    /// Which: `opened`, `formed`, `waiting` …
    pub event: String,
    #[serde(default)]
    pub value: Value,
}

/// A line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// Where the line begins in the file.
    pub at: u64,
    /// `None` in records of versions that did not write it.
    pub unix_ms: Option<u64>,
    pub step: u64,
    pub pass: u64,
    /// By name; may be NaN or infinite.
    pub values: Vec<(String, f64)>,
    /// The version of the formation, and what each replica did.
    pub replicas: Option<(u64, Value)>,
}

impl Metrics {
    /// All values by name, also what each node did in a step, as `node/NODE/NAME`.
    pub fn into_values(self) -> Vec<(String, f64)> {
        let Self { mut values, replicas, .. } = self;
        let Some((_, Value::Array(replicas))) = replicas else { return values };
        for replica in &replicas {
            let (Some(node), Value::Object(fields)) = (replica["node"].as_str(), replica) else { continue };
            for (name, value) in fields {
                if let (false, Some(value)) = (matches!(name.as_str(), "replica" | "stage"), value.as_f64()) {
                    values.push((format!("node/{node}/{name}"), value));
                }
            }
        }
        values
    }
}

/// The position after everything that was recorded so far, without reading it.
///
/// # Errors
/// The files exist and cannot be read.
pub fn end_of(run: &Path) -> Result<Position, RunDirError> {
    // In this order, as in `read_from`.
    let metrics = end_of_lines(&run.join(METRICS))?;
    let events = end_of_lines(&run.join(EVENTS))?;
    Ok(Position { events, metrics, annotations: end_of_lines(&run.join(ANNOTATIONS))? })
}

/// What was recorded after a position, up to about 3 MiB of it; nothing if there is nothing new.
///
/// # Errors
/// The files exist and cannot be read.
pub fn read_from(run: &Path, position: &Position) -> Result<Batch, RunDirError> {
    // In this order: see above.
    let metrics = read_chunk(&run.join(METRICS), position.metrics)?;
    let events = read_chunk(&run.join(EVENTS), position.events)?;
    let annotations = read_chunk(&run.join(ANNOTATIONS), position.annotations)?;
    let mut batch = Batch { position: *position, ..Batch::default() };
    let cut_to = batch.add_events(&events);
    batch.position.events = events.end;
    match cut_to {
        Some(cut_to) => batch.position.metrics = position.metrics.min(cut_to),
        // Events that were not read yet may say that metrics were cut.
        None if events.is_all => {
            batch.add_metrics(&metrics);
            batch.position.metrics = metrics.end;
        }
        None => {}
    }
    batch.add_annotations(&annotations);
    batch.position.annotations = annotations.end;
    batch.is_all = cut_to.is_none() && metrics.is_all && events.is_all && annotations.is_all;
    Ok(batch)
}

impl Batch {
    /// Adds events; returns the least length to which one of them says that metrics were cut.
    fn add_events(&mut self, events: &Chunk) -> Option<u64> {
        let mut cut_to: Option<u64> = None;
        for (_, line) in events.lines() {
            let Ok(event) = serde_json::from_slice::<LoggedEvent>(line) else {
                self.unreadable += 1;
                continue;
            };
            let cut = line::cut_of(&event);
            self.entries.push(Entry::Event(event));
            if let Some((step, metrics_bytes)) = cut {
                self.entries.push(Entry::Cut { step, metrics_bytes });
                cut_to = Some(cut_to.map_or(metrics_bytes, |least| least.min(metrics_bytes)));
            }
        }
        cut_to
    }

    fn add_metrics(&mut self, metrics: &Chunk) {
        for (at, line) in metrics.lines() {
            match line::metrics_of(at, line) {
                Some(entry) => self.entries.push(entry),
                None => self.unreadable += 1,
            }
        }
    }

    fn add_annotations(&mut self, annotations: &Chunk) {
        for (_, line) in annotations.lines() {
            match line::annotation_of(line) {
                Some(entry) => self.entries.push(entry),
                None => self.unreadable += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests;
