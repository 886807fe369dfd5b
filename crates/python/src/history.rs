//! What a run has told so far, for metrics and progress.

use phalanx::records::{Event, RunEvent};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a run has told so far; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    shared: Arc<Mutex<Told>>,
}

#[derive(Debug, Default)]
struct Told {
    /// By name, in the order of steps.
    series: BTreeMap<String, Vec<f64>>,
    progress: Progress,
    changed: bool,
}

/// How far a run is.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Progress {
    step: u64,
    steps: Option<u64>,
    batches_per_pass: Option<u64>,
    pass: u64,
    loss: Option<f32>,
    samples_per_s: f64,
    val_loss: Option<f64>,
    val_acc: Option<f64>,
    nodes: Vec<String>,
    /// Why nothing moves.
    waiting: Option<String>,
}

impl History {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event.
    pub(crate) fn add(&self, event: RunEvent) {
        match event.event {
            Event::Warning(text) | Event::Lost { why: text, .. } => {
                tracing::warn!(target: "phalanx_run", "{text}")
            }
            Event::Note(text) => tracing::info!(target: "phalanx_run", "{text}"),
            event => self.told().add(event),
        }
    }

    /// How far the run is, if that is not what it was when this was asked last.
    pub(crate) fn news(&self) -> Option<Progress> {
        let mut told = self.told();
        std::mem::take(&mut told.changed).then(|| told.progress.clone())
    }

    /// All numbers, by name.
    pub(crate) fn series(&self) -> BTreeMap<String, Vec<f64>> {
        self.told().series.clone()
    }
}

impl Told {
    fn push(&mut self, name: &str, value: f64) {
        self.series.entry(name.to_owned()).or_default().push(value);
    }

    fn add(&mut self, event: Event) {
        self.changed = true;
        match event {
            Event::Started { total_steps, batches_per_pass, done, .. } => {
                self.progress.steps = total_steps;
                self.progress.batches_per_pass = batches_per_pass;
                self.progress.step = done;
            }
            Event::Formed { nodes, .. } => {
                self.progress.nodes = nodes;
                self.progress.waiting = None;
            }
            Event::Waiting(why) => self.progress.waiting = Some(why),
            Event::Step(step) => {
                self.progress.step = step.step;
                self.progress.pass = step.pass;
                self.progress.loss = Some(step.loss);
                self.progress.samples_per_s = step.samples_per_s;
                self.progress.waiting = None;
                for (name, value) in [
                    ("step", step.step as f64),
                    ("pass", step.pass as f64),
                    ("loss", f64::from(step.loss)),
                    ("lr", f64::from(step.lr)),
                    ("grad_norm", f64::from(step.grad_norm)),
                    ("samples_per_s", step.samples_per_s),
                ] {
                    self.push(name, value);
                }
            }
            Event::Validated(valid) => {
                self.progress.val_loss = Some(valid.val_loss);
                self.progress.val_acc = valid.val_acc;
                self.push("val_step", valid.step as f64);
                self.push("val_pass", valid.pass as f64);
                self.push("val_loss", valid.val_loss);
                if let Some(accuracy) = valid.val_acc {
                    self.push("val_acc", accuracy);
                }
                for (name, value) in &valid.metrics {
                    self.push(name, *value);
                }
            }
            _ => {}
        }
    }
}
