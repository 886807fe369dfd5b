//! The loop over `dyn Engine`.

mod save;
mod stepper;

pub use save::count_batches;
pub use stepper::{StepInput, Stepped, Stepper, StepperOptions};

use crate::error::{NotFinite, TrainError};
use crate::evaluate::Evaluator;
use crate::observer::{Event, Observer};
use crate::progress::{End, Place, Plan, Progress};
use crate::run_dir::{Records, RunDir, StepRecord, ValidRecord, read_classes};
use crate::task::{Compute, Task, fixed_batch};
use phalanx_data::{Loaded, Loader, LoaderOptions, Position};
use phalanx_engine::{CompileOptions, Optimizer};
use phalanx_types::Time;
use save::Status;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A run that is under way.
#[derive(Debug)]
pub struct Trainer {
    task: Task,
    compute: Compute,
    dir: RunDir,
    stepper: Stepper,
    records: Records,
    progress: Progress,
    plan: Plan,
    status: Status,
    /// When this process began to train.
    began: Instant,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub run_dir: PathBuf,
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

impl Trainer {
    /// Gets a run ready: a new one, or one that goes on from its newest checkpoint.
    ///
    /// # Errors
    /// The model cannot be computed, or the run's own files cannot be read or written.
    pub fn new(
        mut task: Task,
        compute: Compute,
        dir: RunDir,
        observer: &mut dyn Observer,
    ) -> Result<Self, TrainError> {
        if let Some(classes) = read_classes(dir.path())? {
            // As they were when the run began, whatever has been added to the files since.
            task.number_classes(&classes)?;
        }
        let train = &task.config.train;
        let compile = CompileOptions { recompute: train.recompute, ..CompileOptions::default() };
        let model = compute.engine.compile(&task.graph, &compile)?;
        let sizes: Vec<usize> = model.parameters().iter().map(|p| p.elements()).collect();
        let optimizer = Optimizer::new(train.optimizer, &sizes);
        let options = StepperOptions {
            loss: train.loss,
            clip_norm: train.clip_norm,
            clip_value: train.clip_value,
            seed: train.seed.derive("dropout"),
        };
        let mut stepper = Stepper::new(model, optimizer, options, compute.threads.clone());
        let plan = task.plan();
        let (status, place, sizes) = save::begin(&task, &dir, &mut stepper, observer)?;
        let began = Instant::now();
        let records = Records::open(dir.path(), sizes)?;
        let progress = Progress::new(plan, place, Time::ZERO);
        Ok(Self { task, compute, dir, stepper, records, progress, plan, status, began })
    }

    /// Trains to the end, or until `stop` is set; then everything is saved.
    ///
    /// # Errors
    /// Something failed; the run directory says so, and its last checkpoint is still there.
    pub fn run(mut self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Summary, TrainError> {
        observer.on(&Event::Started {
            run_dir: self.dir.path(),
            model: &self.task.graph.name,
            parameters: self.stepper.model.parameters().iter().map(|p| p.elements()).sum(),
            samples: self.task.train.len(),
            batches_per_pass: self.plan.batches_per_pass,
            total_steps: self.plan.steps(),
            done: self.progress.place().step,
        });
        for note in &self.task.notes {
            observer.on(&Event::Warning(note));
        }
        let result = self.train(stop, observer);
        if let Err(error) = &result {
            self.record_failure(error);
        }
        result
    }

    fn train(&mut self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Summary, TrainError> {
        self.record_start()?;
        let end = if self.progress.is_done() { End::Finished } else { self.steps(stop, observer)? };
        self.finish(end, observer)
    }

    /// Does steps until there is a reason to end.
    fn steps(&mut self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<End, TrainError> {
        let options = loader_options(&self.task, self.progress.place());
        let mut loader = Loader::new(self.task.train.clone(), &self.task.config.data.transform, options)?;
        let mut last = Instant::now();
        loop {
            // There are as many passes as anybody can wait for.
            let Some(loaded) = loader.next() else { return Ok(End::Finished) };
            let loaded = loaded?;
            let record = self.step(&loaded, &mut last)?;
            let samples = loaded.batch.len as u64;
            loader.recycle(loaded.batch);
            self.records.step(&record)?;
            self.status.on_step(&record, samples);
            observer.on(&Event::Step(&record));
            let due = self.progress.on_step(self.now(), stop.load(Ordering::Relaxed));
            if due.validate {
                self.validate(&record, observer)?;
            }
            if due.checkpoint {
                self.checkpoint(observer)?;
            }
            if let Some(end) = due.end {
                return Ok(end);
            }
            if due.validate || due.checkpoint {
                last = Instant::now();
            }
        }
    }

    fn step(&mut self, loaded: &Loaded, last: &mut Instant) -> Result<StepRecord, TrainError> {
        let train = &self.task.config.train;
        let step = self.progress.place().step;
        let lr = train.schedule.lr(train.optimizer.lr(), step, self.plan.steps());
        let batch = &loaded.batch;
        let input = StepInput {
            x: &batch.x,
            y: &batch.y,
            y_shape: &self.task.y_shape,
            len: batch.len,
            whole: batch.len,
            batch: train.batch,
            step,
            lr,
        };
        let stepped = self.stepper.step(&input)?;
        if let Some((what, value)) = stepped.not_finite() {
            let found = self.stepper.diagnose(&input).map(|(first, mut report)| {
                report.sample = report.sample.map(|sample| first + sample);
                report
            });
            return Err(TrainError::NotFinite(Box::new(NotFinite {
                what,
                value,
                step: step + 1,
                pass: loaded.pass + 1,
                batch: loaded.index,
                samples: batch.indices.clone(),
                found,
            })));
        }
        let now = Instant::now();
        let took = now.duration_since(*last);
        *last = now;
        self.status.step_time += took;
        Ok(StepRecord {
            step: step + 1,
            pass: loaded.pass + 1,
            loss: stepped.loss as f32,
            lr,
            grad_norm: stepped.grad_norm as f32,
            samples_per_s: rate(batch.len as u64, took),
        })
    }

    fn validate(&mut self, record: &StepRecord, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let Some(valid) = &self.task.valid else { return Ok(()) };
        let config = &self.task.config;
        let evaluator = Evaluator {
            loss: config.train.loss,
            metrics: &self.task.metrics,
            transform: &config.data.transform,
            batch: config.train.batch,
            fixed: fixed_batch(&self.task.graph),
            threads: &self.compute.threads,
        };
        let evaluation = evaluator.run(self.stepper.model.as_mut(), valid)?;
        if !evaluation.loss.is_finite() {
            return Err(TrainError::NotFinite(Box::new(NotFinite {
                what: "validation loss",
                value: evaluation.loss,
                step: record.step,
                pass: record.pass,
                batch: 0,
                samples: Vec::new(),
                found: None,
            })));
        }
        let shown = evaluation.accuracy_name;
        let others = evaluation.metrics.into_iter().filter(|(name, _)| Some(name) != shown.as_ref());
        let valid = ValidRecord {
            step: record.step,
            pass: record.pass,
            val_loss: evaluation.loss,
            val_acc: evaluation.accuracy,
            metrics: others.map(|(name, value)| (format!("val_{name}"), value)).collect(),
        };
        self.records.valid(&valid)?;
        self.status.on_valid(&valid);
        observer.on(&Event::Validated(&valid));
        Ok(())
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }
}

/// Which batches a run takes from a place on: a step is one, whatever it is computed in.
pub(crate) fn loader_options(task: &Task, place: Place) -> LoaderOptions {
    let train = &task.config.train;
    LoaderOptions {
        batch: train.batch * train.accumulate,
        seed: train.seed.derive("data").0,
        shuffle: task.config.data.shuffle,
        drop_last: task.config.data.drop_last,
        start: Position { pass: place.pass, batch: place.batch },
        passes: u64::MAX - place.pass,
        train: true,
        prefetch: 2,
        shard: None,
    }
}

fn rate(samples: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { samples as f64 / seconds } else { 0.0 }
}
