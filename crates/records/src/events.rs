//! Events of a run, as values that can be kept and sent. All but steps and validations are also lines of `events.jsonl`.

use crate::run_dir::{EventLog, RunDir, RunDirError, Status, StepRecord, ValidRecord, unix_ms};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event", content = "value")]
#[non_exhaustive]
pub enum Event {
    /// A process opened the run, or went back to an earlier step: what was recorded after it does not count any more.
    Opened(Opening),
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
    /// A node that trained is lost.
    Lost {
        node: String,
        /// The whole sentence.
        why: String,
    },
    /// The run waits, and why.
    Waiting(String),
    Step(StepRecord),
    Validated(ValidRecord),
    Saved {
        step: u64,
        path: PathBuf,
    },
    /// A file of the run is somewhere else, too.
    Artifact(Artifact),
    /// Information for the user.
    Note(String),
    /// A problem that does not stop the run.
    Warning(String),
    /// The process ends the run, or ends with it.
    Ended {
        state: Status,
        steps: u64,
        /// Why it failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// How a process opened a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Opening {
    /// Identifies the run wherever its directory is: 32 hexadecimal digits.
    pub uid: String,
    /// The step from which it goes on.
    pub step: u64,
    /// The length to which `metrics.jsonl` was cut before this was written.
    pub metrics_bytes: u64,
    pub host: String,
    pub pid: u32,
    pub version: &'static str,
}

/// A file of a run that was pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// In the run directory.
    pub path: String,
    pub url: String,
    pub size: u64,
    pub sha256: String,
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

/// Adds run and time to events, writes them to `events.jsonl` and tells an observer.
pub struct Events<'a> {
    run: String,
    observer: &'a mut dyn Observer,
    /// `None` for a run in memory.
    log: Option<EventLog>,
}

impl std::fmt::Debug for Events<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("run", &self.run).field("log", &self.log).finish_non_exhaustive()
    }
}

impl<'a> Events<'a> {
    /// The events of a run in memory.
    pub fn in_memory(run: impl Into<String>, observer: &'a mut dyn Observer) -> Self {
        Self { run: run.into(), observer, log: None }
    }

    /// The events of a run with a directory.
    ///
    /// # Errors
    /// `events.jsonl` cannot be read or written.
    pub fn of_run(dir: &RunDir, observer: &'a mut dyn Observer) -> Result<Self, RunDirError> {
        Ok(Self { run: dir.name(), observer, log: Some(EventLog::open(dir.path())?) })
    }

    pub fn on(&mut self, event: Event) {
        let unix_ms = unix_ms();
        // Steps and validations are lines of metrics.jsonl.
        if let (Some(log), false) = (&mut self.log, matches!(event, Event::Step(_) | Event::Validated(_))) {
            log.write_if_possible(unix_ms, &event);
        }
        self.tell(unix_ms, event);
    }

    /// The same for events that have to be recorded.
    ///
    /// # Errors
    /// It cannot be written; then nothing of it is there.
    pub fn write(&mut self, event: Event) -> Result<(), RunDirError> {
        let unix_ms = unix_ms();
        if let Some(log) = &mut self.log {
            log.write(unix_ms, &event)?;
        }
        self.tell(unix_ms, event);
        Ok(())
    }

    /// Records that metrics were cut to a length and the run goes on from a step.
    ///
    /// # Errors
    /// It cannot be written: readers would take later steps for earlier ones.
    pub(crate) fn on_opened(&mut self, step: u64, metrics_bytes: u64) -> Result<(), RunDirError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let event = Event::Opened(log.opening(step, metrics_bytes));
        let unix_ms = unix_ms();
        log.write(unix_ms, &event)?;
        self.tell(unix_ms, event);
        Ok(())
    }

    fn tell(&mut self, unix_ms: u64, event: Event) {
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
        Events::in_memory("first", &mut keep).on(Event::Saved { step: 7, path: "a/b".into() });
        let json = serde_json::to_value(&kept[0]).unwrap();
        assert!(kept[0].unix_ms > 1_700_000_000_000);
        assert_eq!(json["run"], "first");
        assert_eq!((&json["event"], &json["value"]["step"]), (&"saved".into(), &7.into()));
    }
}
