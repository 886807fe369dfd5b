//! Numbers of a training run, from its events.

use phalanx_records::run_dir::StepRecord;
use phalanx_records::{Event, RunEvent};
use phalanx_telemetry::{Exposition, Kind, Sample, Source, add_process};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

/// What collectors see of a run; the observer of the run keeps it up to date.
#[derive(Debug, Default)]
pub(crate) struct RunGauges {
    run: String,
    model: String,
    total_steps: Option<u64>,
    /// Of the last step.
    last: Option<StepRecord>,
    /// Of this process.
    steps: u64,
    step_seconds: f64,
    sent_bytes: u64,
    validations: u64,
    val_loss: Option<f64>,
    val_acc: Option<f64>,
    nodes: usize,
    lost: u64,
    checkpoints: u64,
    waiting: bool,
    /// When the last step ended, or training began.
    since_unix_ms: Option<u64>,
}

impl RunGauges {
    pub(crate) fn on(&mut self, event: &RunEvent) {
        match &event.event {
            Event::Started { model, total_steps, .. } => {
                self.run.clone_from(&event.run);
                self.model.clone_from(model);
                self.total_steps = *total_steps;
                self.since_unix_ms = Some(event.unix_ms);
            }
            Event::Formed { nodes, .. } => {
                self.nodes = nodes.len();
                self.since_unix_ms = Some(event.unix_ms);
            }
            Event::Step(record) => {
                let since = self.since_unix_ms.replace(event.unix_ms).unwrap_or(event.unix_ms);
                self.step_seconds += event.unix_ms.saturating_sub(since) as f64 / 1e3;
                self.steps += 1;
                self.sent_bytes += record.replicas.as_ref().map_or(0, |replicas| replicas.sent_bytes);
                self.waiting = false;
                self.last = Some(record.clone());
            }
            Event::Validated(record) => {
                self.validations += 1;
                self.val_loss = Some(record.val_loss);
                self.val_acc = record.val_acc;
            }
            Event::Lost { .. } => self.lost += 1,
            Event::Saved { .. } => self.checkpoints += 1,
            Event::Waiting(_) => self.waiting = true,
            _ => {}
        }
    }

    fn exposition(&self) -> Exposition {
        let mut metrics = Exposition::default();
        let labels = vec![("run", self.run.as_str()), ("model", self.model.as_str())];
        metrics.add(Kind::Gauge, "phalanx_run_info", "The run", [Sample { labels, value: 1.0 }]);
        if let Some(last) = &self.last {
            metrics.gauge("phalanx_run_step", "The last step", last.step as f64);
            metrics.gauge("phalanx_run_pass", "The pass of the last step, from 1", last.pass as f64);
            metrics.gauge("phalanx_run_loss", "The loss of the last step", f64::from(last.loss));
            metrics.gauge("phalanx_run_learning_rate", "Of the last step", f64::from(last.lr));
            metrics.gauge("phalanx_run_gradient_norm", "Of the last step", f64::from(last.grad_norm));
            metrics.gauge("phalanx_run_samples_per_second", "Of the last step", last.samples_per_s);
        }
        let optional = [
            (
                "phalanx_run_total_steps",
                "Steps when it is finished",
                self.total_steps.map(|steps| steps as f64),
            ),
            ("phalanx_run_validation_loss", "Of the last validation", self.val_loss),
            ("phalanx_run_validation_accuracy", "Of the last validation", self.val_acc),
        ];
        for (name, help, value) in optional {
            if let Some(value) = value {
                metrics.gauge(name, help, value);
            }
        }
        metrics.gauge("phalanx_run_nodes", "Nodes that train", self.nodes as f64);
        metrics.gauge("phalanx_run_waiting", "1 while the run waits", f64::from(u8::from(self.waiting)));
        metrics.counter("phalanx_run_steps", "Steps of this process", self.steps as f64);
        metrics.counter("phalanx_run_step_seconds", "Time of these steps", self.step_seconds);
        metrics.counter("phalanx_run_sent_bytes", "Bytes that replicas exchanged", self.sent_bytes as f64);
        metrics.counter("phalanx_run_validations", "Validations of this process", self.validations as f64);
        metrics.counter("phalanx_run_checkpoints", "Checkpoints of this process", self.checkpoints as f64);
        metrics.counter("phalanx_run_lost_nodes", "Nodes that were lost", self.lost as f64);
        add_process(&mut metrics);
        metrics
    }
}

/// The gauges of a run, shared with its observer.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunSource(Arc<Mutex<RunGauges>>);

impl RunSource {
    pub(crate) fn on(&self, event: &RunEvent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).on(event);
    }
}

impl Source for RunSource {
    fn collect(&self) -> Pin<Box<dyn Future<Output = Exposition> + Send + '_>> {
        Box::pin(async { self.0.lock().unwrap_or_else(PoisonError::into_inner).exposition() })
    }
}
