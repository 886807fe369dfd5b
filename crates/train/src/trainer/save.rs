//! What a run writes besides its records, and how it is put back.

use super::{End, Stepper, Summary, Trainer, rate};
use crate::error::TrainError;
use crate::observer::{Event, Observer};
use crate::params_hash::params_hash;
use crate::progress::Place;
use crate::run_dir::{
    Best, Checkpoint, MODEL, MODEL_ONNX, Manifest, RecordSizes, RunDir, RunDirError, RunState,
    Status as State, StepRecord, ValidRecord, stamp,
};
use crate::task::Task;
use phalanx_graph::{Graph, Weights, onnx, weights};
use phalanx_types::{DType, Tensor};
use serde_json::json;
use std::time::Duration;

/// What is known of a run so far, beyond its place.
#[derive(Debug, Default)]
pub(super) struct Status {
    started: String,
    loss: Option<f32>,
    valid: Option<(f64, Option<f64>)>,
    best: Option<Best>,
    /// Seconds that processes before this one trained.
    before_s: f64,
    /// Time spent in steps, and samples, of this process.
    pub(super) step_time: Duration,
    samples: u64,
    steps: u64,
}

impl Status {
    pub(super) fn on_step(&mut self, record: &StepRecord, samples: u64) {
        self.loss = Some(record.loss);
        self.samples += samples;
        self.steps += 1;
    }

    pub(super) fn on_valid(&mut self, record: &ValidRecord) {
        // JSON has no word for the others.
        if !record.val_loss.is_finite() {
            return;
        }
        self.valid = Some((record.val_loss, record.val_acc));
        let now = Best { step: record.step, val_loss: record.val_loss, val_acc: record.val_acc };
        let better = |best: &Best| match (now.val_acc, best.val_acc) {
            (Some(now), Some(best)) => now > best,
            _ => now.val_loss < best.val_loss,
        };
        if self.best.as_ref().is_none_or(better) {
            self.best = Some(now);
        }
    }
}

/// Puts the model to where the run stands: its newest checkpoint, or the first weights.
pub(super) fn begin(
    task: &Task,
    dir: &RunDir,
    stepper: &mut Stepper,
    observer: &mut dyn Observer,
) -> Result<(Status, Place, Option<RecordSizes>), TrainError> {
    let started = RunState::read(dir.path()).map_or_else(|_new| stamp(), |state| state.started);
    let mut status = Status { started, ..Status::default() };
    let checkpoint = match dir.newest() {
        Ok((checkpoint, wrong)) => {
            for error in wrong {
                observer.on(&Event::Warning(&format!("{error}; an older checkpoint is used")));
            }
            checkpoint
        }
        Err(RunDirError::NoCheckpoint { .. }) => {
            stepper.load(&task.weights)?;
            return Ok((status, Place::default(), None));
        }
        Err(error) => return Err(error.into()),
    };
    let manifest = &checkpoint.manifest;
    stepper.load(&checkpoint.weights)?;
    stepper.restore(manifest.optimizer_steps, &checkpoint.optimizer)?;
    status.loss = manifest.loss;
    status.valid = manifest.val_loss.map(|loss| (loss, manifest.val_acc));
    status.best = manifest.best;
    status.before_s = manifest.elapsed_s;
    Ok((status, manifest.place(), Some(manifest.records)))
}

impl Stepper {
    fn load(&mut self, weights: &Weights) -> Result<(), TrainError> {
        self.start = weights.clone();
        Ok(self.model.load(weights)?)
    }

    /// The optimizer's state by name, in the user's order of elements.
    fn optimizer_state(&self) -> Result<Weights, TrainError> {
        let mut state = Weights::new();
        for (index, parameter) in self.model.parameters().iter().enumerate() {
            for name in self.optimizer.state_names() {
                let Some(flat) = self.optimizer.state(index, name) else { continue };
                let shape = parameter.shape.iter().map(|d| *d as u64).collect();
                let tensor = Tensor::from_f32(shape, &self.model.to_user(index, flat));
                let key = format!("{}.{name}", parameter.name);
                let missing = |_misfit| TrainError::MissingState { name: key.clone() };
                state.insert(key.clone(), tensor.map_err(missing)?);
            }
        }
        Ok(state)
    }

    fn restore(&mut self, steps: u64, state: &Weights) -> Result<(), TrainError> {
        for (index, parameter) in self.model.parameters().iter().enumerate() {
            for name in self.optimizer.state_names() {
                let key = format!("{}.{name}", parameter.name);
                let values = state.get(&key).and_then(|tensor| tensor.to_f32().ok());
                let values = values.filter(|values| values.len() == parameter.elements());
                let values = values.ok_or_else(|| TrainError::MissingState { name: key.clone() })?;
                self.optimizer.restore(steps, index, name, &self.model.to_engine(index, &values))?;
            }
        }
        self.optimizer.set_steps(steps);
        Ok(())
    }

    /// Parameters and buffers as they are to be saved.
    fn weights(&self, graph: &Graph) -> Weights {
        let mut weights = self.model.weights();
        count_batches(graph, &self.start, self.forwards, &mut weights);
        weights
    }
}

/// Sets the buffers in which batch normalisation counts the batches it has seen: engines do not need them, but
/// whoever loads the weights may.
pub fn count_batches(graph: &Graph, start: &Weights, batches: u64, weights: &mut Weights) {
    let counters = graph.buffers().map(|(_, value)| value);
    for value in counters.filter(|v| v.dtype == DType::I64 && v.name.ends_with("num_batches_tracked")) {
        let before = start.get(&value.name).and_then(|tensor| tensor.data().as_chunks::<8>().0.first());
        let count = before.map_or(0, |bytes| i64::from_le_bytes(*bytes)) + batches as i64;
        if let Ok(tensor) = Tensor::new(DType::I64, Vec::new(), count.to_le_bytes().to_vec().into()) {
            weights.insert(value.name.clone(), tensor);
        }
    }
}

impl Trainer {
    fn elapsed_s(&self) -> f64 {
        self.status.before_s + self.began.elapsed().as_secs_f64()
    }

    pub(super) fn checkpoint(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let weights = self.stepper.weights(&self.task.graph);
        let manifest = Manifest {
            optimizer_steps: self.stepper.optimizer.steps(),
            elapsed_s: self.elapsed_s(),
            loss: self.status.loss,
            val_loss: self.status.valid.map(|(loss, _)| loss),
            val_acc: self.status.valid.and_then(|(_, accuracy)| accuracy),
            best: self.status.best,
            params_hash: params_hash(&weights),
            records: self.records.sync()?,
            ..Manifest::at(self.progress.place())
        };
        let optimizer = self.stepper.optimizer_state()?;
        let checkpoint = Checkpoint { manifest, weights, optimizer };
        let path = self.dir.save(&checkpoint, self.task.config.train.keep)?;
        self.progress.on_saved(self.now());
        observer.on(&Event::Saved { step: checkpoint.manifest.step, path: &path });
        Ok(())
    }

    /// Writes the result, or how far it got.
    pub(super) fn finish(&mut self, end: End, observer: &mut dyn Observer) -> Result<Summary, TrainError> {
        let weights = self.stepper.weights(&self.task.graph);
        if end == End::Finished {
            let path = self.dir.file(MODEL);
            let named = self.task.graph.with_aliases(weights.clone());
            weights::save(&path, &named).map_err(|source| RunDirError::Weights { path, source })?;
            let exported = onnx::export(&self.task.graph, &weights, &self.dir.file(MODEL_ONNX));
            if let Err(error) = exported {
                observer.on(&Event::Warning(&format!("no model.onnx was written: {error}")));
            }
        }
        let (steps, time) = (self.status.steps, self.status.step_time);
        let step_ms = (steps > 0).then(|| time.as_secs_f64() * 1e3 / steps as f64);
        self.write_formation(step_ms)?;
        let hash = params_hash(&weights);
        let mut state = self.state(match end {
            End::Finished => State::Finished,
            End::Interrupted => State::Interrupted,
        });
        state.params_hash = Some(hash.clone());
        state.write(self.dir.path())?;
        Ok(Summary {
            run_dir: self.dir.path().to_owned(),
            steps: state.steps,
            loss: state.loss,
            val_loss: state.val_loss,
            val_acc: state.val_acc,
            samples_per_s: rate(self.status.samples, time),
            wall_s: state.wall_s,
            params_hash: hash,
            end,
        })
    }

    fn state(&self, state: State) -> RunState {
        RunState {
            state,
            reason: None,
            started: self.status.started.clone(),
            ended: (state != State::Running).then(stamp),
            model: self.task.graph.name.clone(),
            total_steps: self.plan.steps(),
            steps: self.progress.place().step,
            loss: self.status.loss,
            val_loss: self.status.valid.map(|(loss, _)| loss),
            val_acc: self.status.valid.and_then(|(_, accuracy)| accuracy),
            samples_per_s: Some(rate(self.status.samples, self.status.step_time)),
            wall_s: self.elapsed_s(),
            params_hash: None,
        }
    }

    /// Says that the run goes on.
    pub(super) fn record_start(&mut self) -> Result<(), TrainError> {
        self.write_formation(None)?;
        if let Some(classes) = self.task.train.classes() {
            self.dir.write_classes(classes)?;
        }
        if !self.progress.is_done() {
            self.dir.remove_model()?;
        }
        Ok(self.state(State::Running).write(self.dir.path())?)
    }

    /// Says why the run failed, as well as that is possible.
    pub(super) fn record_failure(&mut self, error: &TrainError) {
        let mut state = self.state(State::Failed);
        let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
        let reason = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
        state.reason = Some(reason);
        // The error itself says more than that it could not be written down.
        let _written = state.write(self.dir.path());
    }

    /// Who holds what: one replica of one stage, here.
    fn write_formation(&self, step_ms: Option<f64>) -> Result<(), TrainError> {
        let graph = &self.task.graph;
        let parameters: usize = self.stepper.model.parameters().iter().map(|p| p.elements()).sum();
        let operators = graph.nodes.len();
        let stage = json!({ "stage": 0, "node": "local", "operators": operators, "parameters": parameters });
        let replica = json!({ "replica": 0, "stages": [stage] });
        let formation = json!({
            "epochs": [{ "epoch": 0, "replicas": [replica], "predicted_step_ms": null, "measured_step_ms": step_ms }],
        });
        Ok(self.dir.write("formation.json", format!("{formation:#}\n").as_bytes())?)
    }
}
