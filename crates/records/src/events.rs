//! Events of a run, as values that can be kept and sent.

use crate::run_dir::{StepRecord, ValidRecord};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event", content = "value")]
#[non_exhaustive]
pub enum Event {
    Started {
        /// The run directory; `None` for a run in memory.
        run_dir: Option<PathBuf>,
        model: String,
        parameters: usize,
        /// The number of samples in a pass, if all passes have the same.
        samples: Option<usize>,
        batches_per_pass: Option<u64>,
        /// The number of steps when it is finished, if that is known.
        total_steps: Option<u64>,
        /// The steps done before, if it was resumed.
        done: u64,
    },
    /// A group of nodes begins to train.
    Formed {
        epoch: u64,
        nodes: Vec<String>,
        /// The steps done so far.
        step: u64,
        /// How many nodes each replica is cut over, if replicas are cut.
        stages: Vec<usize>,
        /// The predicted time of a step, if there is one.
        predicted_ms: Option<f64>,
    },
    /// The run waits, and why.
    Waiting(String),
    Step(StepRecord),
    Validated(ValidRecord),
    Saved {
        step: u64,
        path: PathBuf,
    },
    /// Information for the user.
    Note(String),
    /// A problem that does not stop the run.
    Warning(String),
}

/// An event with the run it belongs to and its time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunEvent {
    /// The name of the run: that of its directory, if it has one.
    pub run: String,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    #[serde(flatten)]
    pub event: Event,
}

/// Receives the events of a run. Closures over [`RunEvent`] are observers, and so is `()`, which ignores everything.
pub trait Observer {
    fn on(&mut self, event: RunEvent);
}

impl Observer for () {
    fn on(&mut self, _event: RunEvent) {}
}

impl<F: FnMut(RunEvent)> Observer for F {
    fn on(&mut self, event: RunEvent) {
        self(event);
    }
}

/// Adds run and time to events for an observer.
pub struct Events<'a> {
    run: String,
    observer: &'a mut dyn Observer,
}

impl std::fmt::Debug for Events<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("run", &self.run).finish_non_exhaustive()
    }
}

impl<'a> Events<'a> {
    pub fn new(run: impl Into<String>, observer: &'a mut dyn Observer) -> Self {
        Self { run: run.into(), observer }
    }

    pub fn on(&mut self, event: Event) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.observer.on(RunEvent { run: self.run.clone(), unix_ms, event });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_kept_with_run_and_time_and_can_be_sent() {
        let mut kept = Vec::new();
        let mut keep = |event: RunEvent| kept.push(event);
        Events::new("first", &mut keep).on(Event::Saved { step: 7, path: "a/b".into() });
        let json = serde_json::to_value(&kept[0]).unwrap();
        assert!(kept[0].unix_ms > 1_700_000_000_000);
        assert_eq!(json["run"], "first");
        assert_eq!((&json["event"], &json["value"]["step"]), (&"saved".into(), &7.into()));
    }
}
