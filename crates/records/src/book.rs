//! The records of a run: metrics, state, checkpoints, the result. The trainer or the driver reports to the book, which
//! writes them.

mod event_files;
mod formation;

pub use formation::{FormationEpoch, StageEntry};

use crate::error::RecordError;
use crate::evaluation::Evaluation;
use crate::events::{Event, Events};
use crate::model_state::ModelState;
use crate::params_hash::params_hash;
use crate::run_dir::{
    Best, Checkpoint, Line, MODEL, MODEL_ONNX, Manifest, RecordSizes, Records, RunDir, RunDirError, RunState,
    Status, StepRecord, ValidRecord, last_valid, newest_manifest, read_lines, recorded_steps,
    shorter_records, stamp,
};
use event_files::EventFiles;
use formation::StageMeasurements;
use phalanx_graph::{Graph, onnx, weights};
use phalanx_protocol::progress::{End, Place, Plan};
use phalanx_types::with_causes;
use phalanx_wire::train::StepReport;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const FORMATION: &str = "formation.json";

/// The progress of a run so far, apart from its position, and the directory where it is recorded.
#[derive(Debug)]
pub struct Book {
    name: String,
    /// `None` for a run in memory, which writes nothing.
    disk: Option<Disk>,
    about: About,
    /// The parameters of each stage of a replica, by name; checkpoints have a file for each stage.
    stages: Vec<BTreeSet<String>>,
    /// When this process began to train.
    began: Instant,
    started: String,
    loss: Option<f32>,
    valid: Option<(f64, Option<f64>)>,
    /// The last step after which the model was validated.
    validated: u64,
    best: Option<Best>,
    /// The pass of the last recorded step, counted from 1.
    pass: u64,
    /// Why it waits, if it does.
    waiting: Option<String>,
    /// Measurements of stages.
    measured: StageMeasurements,
    /// Seconds of training in earlier processes.
    before_s: f64,
    /// Time spent in steps, and samples, of this process.
    step_time: Duration,
    samples: u64,
    steps: u64,
}

/// The directory of a run and the records in it.
#[derive(Debug)]
struct Disk {
    dir: RunDir,
    records: Records,
    event_files: EventFiles,
}

/// What a book needs to know about its run.
#[derive(Debug, Clone)]
pub struct About {
    pub graph: Graph,
    pub plan: Plan,
    /// The names of classes, if labels have names.
    pub classes: Option<Vec<String>>,
    /// How many checkpoints are kept.
    pub keep: usize,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The run directory; `None` for a run in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_dir: Option<PathBuf>,
    pub steps: u64,
    pub loss: Option<f32>,
    pub val_loss: Option<f64>,
    pub val_acc: Option<f64>,
    pub samples_per_s: f64,
    pub wall_s: f64,
    pub params_hash: String,
    #[serde(skip)]
    pub end: End,
}

impl Summary {
    /// The result of a finished run, as recorded in its directory; `None` if there is something left to do. `validates`
    /// says whether the last step must have been validated.
    pub fn of_finished(dir: &RunDir, plan: Plan, validates: bool) -> Option<Self> {
        let state = RunState::read(dir.path()).ok()?;
        let validated = || last_valid(dir.path()).is_some_and(|last| last.step >= state.steps);
        let done = state.state == Status::Finished
            && is_done(dir, plan, state.steps)
            && dir.file(MODEL).is_file()
            && (!validates || validated());
        done.then(|| Self {
            run_dir: Some(dir.path().to_owned()),
            steps: state.steps,
            loss: state.loss,
            val_loss: state.val_loss,
            val_acc: state.val_acc,
            samples_per_s: state.samples_per_s.unwrap_or(0.0),
            wall_s: state.wall_s,
            params_hash: state.params_hash.unwrap_or_default(),
            end: End::Finished,
        })
    }
}

/// The state of a run when it is opened.
#[derive(Debug)]
pub struct Opened {
    pub book: Book,
    pub place: Place,
    /// The state in its newest checkpoint, if there is one.
    pub state: Option<ModelState>,
}

impl Book {
    /// Opens a run: a new one, or one that continues from its newest checkpoint.
    pub fn open(dir: RunDir, about: About, events: &mut Events<'_>) -> Result<Opened, RecordError> {
        let name = dir.name();
        let checkpoint = newest(&dir, events)?;
        if checkpoint.is_none() {
            tell_what_is_lost(recorded_steps(dir.path()), events);
        }
        let manifest = checkpoint.as_ref().map(|checkpoint| &checkpoint.manifest);
        let sizes: Option<RecordSizes> = manifest.map(|manifest| manifest.records);
        let place = manifest.map_or_else(Place::default, Manifest::place);
        tell_what_is_missing(dir.path(), place.step, sizes.unwrap_or_default(), events);
        let records = Records::open(dir.path(), sizes)?;
        events.on_opened(place.step, sizes.unwrap_or_default().metrics)?;
        let event_files = EventFiles::begin(dir.path(), place.step + 1, events);
        let book = Self {
            started: RunState::read(dir.path()).map_or_else(|_new| stamp(), |state| state.started),
            loss: manifest.and_then(|manifest| manifest.loss),
            valid: manifest.and_then(|manifest| Some((manifest.val_loss?, manifest.val_acc))),
            validated: manifest.map_or(0, validated),
            best: manifest.and_then(|manifest| manifest.best),
            pass: manifest.map_or(0, last_pass),
            before_s: manifest.map_or(0.0, |manifest| manifest.elapsed_s),
            disk: Some(Disk { records, event_files, dir }),
            ..Self::in_memory(name, about)
        };
        Ok(Opened { book, place, state: checkpoint.map(Checkpoint::into_state) })
    }

    /// The book of a run without a directory: it counts and keeps the last values, and writes nothing.
    pub fn in_memory(name: impl Into<String>, about: About) -> Self {
        Self {
            name: name.into(),
            disk: None,
            about,
            stages: Vec::new(),
            began: Instant::now(),
            started: stamp(),
            loss: None,
            valid: None,
            validated: 0,
            best: None,
            pass: 0,
            waiting: None,
            measured: StageMeasurements::default(),
            before_s: 0.0,
            step_time: Duration::ZERO,
            samples: 0,
            steps: 0,
        }
    }

    /// Goes back to the newest checkpoint, or to the beginning; everything since then is lost. A run in memory has no
    /// checkpoints.
    pub fn rewind(&mut self, events: &mut Events<'_>) -> Result<(Place, Option<ModelState>), RecordError> {
        let checkpoint = match &self.disk {
            Some(disk) => newest(&disk.dir, events)?,
            None => None,
        };
        let manifest = checkpoint.as_ref().map(|checkpoint| &checkpoint.manifest);
        if let Some(disk) = &mut self.disk {
            let sizes = manifest.map(|manifest| manifest.records);
            disk.records = Records::open(disk.dir.path(), sizes)?;
            let step = manifest.map_or(0, |manifest| manifest.step);
            events.on_opened(step, sizes.unwrap_or_default().metrics)?;
            disk.event_files.restart(step + 1, events);
        }
        self.loss = manifest.and_then(|manifest| manifest.loss);
        self.valid = manifest.and_then(|manifest| Some((manifest.val_loss?, manifest.val_acc)));
        self.validated = manifest.map_or(0, validated);
        self.best = manifest.and_then(|manifest| manifest.best);
        self.pass = manifest.map_or(0, last_pass);
        let place = manifest.map_or_else(Place::default, Manifest::place);
        Ok((place, checkpoint.map(Checkpoint::into_state)))
    }

    /// Removes the records after a step.
    pub fn cut_after(&mut self, step: u64, events: &mut Events<'_>) -> Result<(), RecordError> {
        if let Some(disk) = &mut self.disk {
            let sizes = disk.records.sizes_after(step)?;
            disk.records = Records::open(disk.dir.path(), Some(sizes))?;
            events.on_opened(step, sizes.metrics)?;
            disk.event_files.restart(step + 1, events);
        }
        self.recall(step)
    }

    /// Restores the state after a step from the records; in memory the last values stay.
    fn recall(&mut self, upto: u64) -> Result<(), RecordError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let lines = read_lines(disk.dir.path())?;
        (self.loss, self.valid, self.best, self.validated) = (None, None, None, 0);
        for line in lines {
            match line {
                Line::Step { step, loss } if step <= upto => self.loss = Some(loss),
                Line::Valid(now) if now.step <= upto => self.note_valid(now),
                Line::Step { .. } | Line::Valid(_) => {}
            }
        }
        Ok(())
    }

    /// From now on checkpoints have a file for each of these parts of the model.
    pub fn set_stages(&mut self, stages: Vec<BTreeSet<String>>) {
        self.stages = stages;
    }

    /// The run directory; `None` for a run in memory.
    pub fn dir(&self) -> Option<&RunDir> {
        self.disk.as_ref().map(|disk| &disk.dir)
    }

    /// The name of the run.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The last step after which the model was validated.
    pub fn validated(&self) -> u64 {
        self.validated
    }

    /// The time since this process opened the run.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Records a step and tells the observer. `nodes` names the node of each rank, where the run has several.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn record_step(
        &mut self,
        report: &StepReport,
        nodes: Option<&[String]>,
        events: &mut Events<'_>,
    ) -> Result<(), RecordError> {
        if self.waiting.take().is_some()
            && let Some(disk) = &self.disk
        {
            let place = Place { step: report.step, ..Place::default() };
            self.state(place, Status::Running).write(disk.dir.path())?;
        }
        let record = StepRecord::new(report, nodes);
        if let Some(disk) = &mut self.disk {
            disk.records.step(&record)?;
            disk.event_files.step(&record, events);
        }
        self.measured.on_step(&record);
        self.loss = Some(record.loss);
        self.pass = record.pass;
        self.samples += report.samples();
        self.steps += 1;
        self.step_time += report.took();
        events.on(Event::Step(record));
        Ok(())
    }

    /// Records the validation after a step and tells the observer.
    ///
    /// # Errors
    /// The loss is not finite, or the disk does not take it.
    pub fn record_validation(
        &mut self,
        step: u64,
        evaluation: Evaluation,
        events: &mut Events<'_>,
    ) -> Result<(), RecordError> {
        // Validations that were given up may come later: their pass is known where all have the same length.
        let pass = match self.about.plan.batches_per_pass() {
            Some(batches) => step.saturating_sub(1) / batches.max(1) + 1,
            None => self.pass,
        };
        let record = ValidRecord::new(step, pass, evaluation);
        self.on_valid(&record)?;
        if let Some(disk) = &mut self.disk {
            disk.event_files.validation(&record, events);
        }
        events.on(Event::Validated(record));
        Ok(())
    }

    fn on_valid(&mut self, record: &ValidRecord) -> Result<(), RecordError> {
        if !record.val_loss.is_finite() {
            let ValidRecord { val_loss: value, step, pass, .. } = *record;
            return Err(RecordError::ValidationNotFinite { value, step, pass });
        }
        if let Some(disk) = &mut self.disk {
            disk.records.valid(record)?;
        }
        self.note_valid(Best { step: record.step, val_loss: record.val_loss, val_acc: record.val_acc });
        Ok(())
    }

    fn note_valid(&mut self, now: Best) {
        self.valid = Some((now.val_loss, now.val_acc));
        self.validated = now.step;
        let better = |best: &Best| match (now.val_acc, best.val_acc) {
            (Some(now), Some(best)) => now > best,
            _ => now.val_loss < best.val_loss,
        };
        if self.best.as_ref().is_none_or(better) {
            self.best = Some(now);
        }
    }

    fn elapsed_s(&self) -> f64 {
        self.before_s + self.began.elapsed().as_secs_f64()
    }

    /// The manifest of a checkpoint of the current state.
    pub fn draft(&mut self, place: Place) -> Result<Manifest, RecordError> {
        Ok(Manifest {
            elapsed_s: self.elapsed_s(),
            loss: self.loss,
            val_loss: self.valid.map(|(loss, _)| loss),
            val_acc: self.valid.and_then(|(_, accuracy)| accuracy),
            validated: Some(self.validated),
            best: self.best,
            records: self.disk.as_mut().map(|disk| disk.records.sync()).transpose()?.unwrap_or_default(),
            ..Manifest::at(place)
        })
    }

    /// The manifest of a checkpoint of an earlier step; records since then stay.
    pub fn draft_after(&mut self, place: Place) -> Result<Manifest, RecordError> {
        let now = (self.loss, self.valid, self.best, self.validated);
        self.recall(place.step)?;
        let draft = self.draft(place);
        (self.loss, self.valid, self.best, self.validated) = now;
        let sizes = self.disk.as_ref().map(|disk| disk.records.sizes_after(place.step)).transpose()?;
        Ok(Manifest { records: sizes.unwrap_or_default(), ..draft? })
    }

    /// Writes a checkpoint of a state with its manifest. A run in memory writes none.
    pub fn save(
        &mut self,
        draft: Manifest,
        state: ModelState,
        events: &mut Events<'_>,
    ) -> Result<(), RecordError> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        // A process that goes on from here does not write them again.
        disk.event_files.flush(events);
        let (optimizer_steps, params_hash) = (state.optimizer_steps, params_hash(&state.weights));
        let manifest = Manifest { optimizer_steps, params_hash, ..draft };
        let checkpoint = Checkpoint { manifest, weights: state.weights, optimizer: state.optimizer };
        let path = disk.dir.save(&checkpoint, &self.stages, self.about.keep)?;
        events.on(Event::Saved { step: checkpoint.manifest.step, path });
        Ok(())
    }

    /// Records that the run is running.
    pub fn begin(&mut self, place: Place) -> Result<(), RecordError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        if let Some(classes) = &self.about.classes {
            disk.dir.write_classes(classes)?;
        }
        if !self.about.plan.is_done(place) {
            disk.dir.remove_model()?;
        }
        Ok(self.state(place, Status::Running).write(disk.dir.path())?)
    }

    /// Records why a running run waits; the next step ends the wait.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn note_waiting(&mut self, place: Place, why: &str) -> Result<(), RecordError> {
        self.waiting = Some(why.to_owned());
        match &self.disk {
            Some(disk) => Ok(self.state(place, Status::Running).write(disk.dir.path())?),
            None => Ok(()),
        }
    }

    /// Writes the result, or how far the run got.
    pub fn finish(
        &mut self,
        place: Place,
        end: End,
        weights: &phalanx_graph::Weights,
        events: &mut Events<'_>,
    ) -> Result<Summary, RecordError> {
        if let (End::Finished, Some(disk)) = (end, &self.disk) {
            let path = disk.dir.file(MODEL);
            let named = self.about.graph.with_aliases(weights.clone());
            weights::save(&path, &named).map_err(|source| RunDirError::Weights { path, source })?;
            let exported = onnx::export(&self.about.graph, weights, &disk.dir.file(MODEL_ONNX));
            if let Err(error) = exported {
                events.on(Event::Warning(format!("no model.onnx was written: {error}")));
            }
        }
        let hash = params_hash(weights);
        let mut state = self.state(
            place,
            match end {
                End::Finished => Status::Finished,
                End::Interrupted => Status::Interrupted,
            },
        );
        state.params_hash = Some(hash.clone());
        if let Some(disk) = &self.disk {
            state.write(disk.dir.path())?;
        }
        events.on(Event::Ended { state: state.state, steps: state.steps, reason: None });
        Ok(Summary {
            run_dir: self.dir().map(|dir| dir.path().to_owned()),
            steps: state.steps,
            loss: state.loss,
            val_loss: state.val_loss,
            val_acc: state.val_acc,
            samples_per_s: self.rate(),
            wall_s: state.wall_s,
            params_hash: hash,
            end,
        })
    }

    /// Records why the run failed, if possible.
    pub fn fail(&mut self, place: Place, error: &dyn std::error::Error, events: &mut Events<'_>) {
        let mut state = self.state(place, Status::Failed);
        state.reason = Some(with_causes(error));
        if let Some(disk) = &self.disk {
            // The error itself matters more than a failure to record it.
            let _written = state.write(disk.dir.path());
        }
        events.on(Event::Ended { state: Status::Failed, steps: state.steps, reason: state.reason });
    }

    /// The mean milliseconds of a step.
    pub fn step_ms(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.step_time.as_secs_f64() * 1e3 / self.steps as f64)
    }

    fn rate(&self) -> f64 {
        samples_per_second(self.samples, self.step_time)
    }

    fn state(&self, place: Place, state: Status) -> RunState {
        RunState {
            state,
            reason: None,
            waiting: self.waiting.clone().filter(|_| state == Status::Running),
            started: self.started.clone(),
            ended: (state != Status::Running).then(stamp),
            model: self.about.graph.name.clone(),
            total_steps: self.about.plan.steps(),
            steps: place.step,
            loss: self.loss,
            val_loss: self.valid.map(|(loss, _)| loss),
            val_acc: self.valid.and_then(|(_, accuracy)| accuracy),
            samples_per_s: (self.steps > 0).then(|| self.rate()),
            wall_s: self.elapsed_s(),
            params_hash: None,
        }
    }

    /// The formations of earlier processes.
    pub fn read_formation(&self) -> Vec<serde_json::Value> {
        let Some(dir) = self.dir() else { return Vec::new() };
        let text = std::fs::read_to_string(dir.file(FORMATION)).unwrap_or_default();
        let mut formation: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        formation["epochs"].as_array_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Writes the formations: one entry for every epoch, after those of earlier processes.
    pub fn write_formation(
        &self,
        before: &[serde_json::Value],
        epochs: &[FormationEpoch],
    ) -> Result<(), RecordError> {
        let Some(dir) = self.dir() else { return Ok(()) };
        let own = epochs.iter().map(|epoch| epoch.to_json(&self.measured));
        let epochs: Vec<_> = before.iter().cloned().chain(own).collect();
        let formation = json!({ "epochs": epochs });
        Ok(dir.write(FORMATION, format!("{formation:#}\n").as_bytes())?)
    }
}

/// Whether a finished run has done all that it is asked for now, which may be more than before.
fn is_done(dir: &RunDir, plan: Plan, steps: u64) -> bool {
    match plan.batches_per_pass() {
        Some(_) => plan.steps().is_none_or(|asked| steps >= asked),
        // How many steps its passes have, only its checkpoints say.
        None => newest_manifest(dir.path()).is_some_and(|last| plan.is_done(last.place())),
    }
}

/// The pass of the last step before a checkpoint, counted from 1.
fn last_pass(manifest: &Manifest) -> u64 {
    manifest.pass + u64::from(manifest.batch > 0)
}

/// In a checkpoint that does not say, the due validation counts as done.
fn validated(manifest: &Manifest) -> u64 {
    manifest.validated.unwrap_or(manifest.step)
}

/// Without a checkpoint a run begins again, whatever it has recorded.
fn tell_what_is_lost(recorded: u64, events: &mut Events<'_>) {
    let steps = match recorded {
        0 => return,
        1 => "1 step that was recorded is".to_owned(),
        many => format!("{many} steps that were recorded are"),
    };
    events.on(Event::Warning(format!("there is no checkpoint: {steps} done again")));
}

/// Records that are shorter than when the checkpoint was written have lost lines, which nothing brings back.
fn tell_what_is_missing(dir: &Path, step: u64, sizes: RecordSizes, events: &mut Events<'_>) {
    for (name, have, counted) in shorter_records(dir, sizes) {
        let text = format!(
            "{name} has {have} bytes, but had {counted} when the checkpoint of step {step} was written: some records \
             are lost"
        );
        events.on(Event::Warning(text));
    }
}

fn newest(dir: &RunDir, events: &mut Events<'_>) -> Result<Option<Checkpoint>, RecordError> {
    match dir.newest() {
        Ok((checkpoint, wrong)) => {
            for error in wrong {
                events.on(Event::Warning(format!("{}; an older checkpoint is used", with_causes(&error))));
            }
            Ok(Some(checkpoint))
        }
        Err(RunDirError::NoCheckpoint { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Checkpoint {
    fn into_state(self) -> ModelState {
        let optimizer_steps = self.manifest.optimizer_steps;
        ModelState { optimizer_steps, weights: self.weights, optimizer: self.optimizer }
    }
}

pub(crate) fn samples_per_second(samples: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { samples as f64 / seconds } else { 0.0 }
}
