//! The loop over `dyn Engine`.

mod stepper;

pub(crate) use stepper::OutputGradients;
pub use stepper::{Cut, Ready, StepInput, Stepped, Stepper, StepperOptions};

use crate::book::{Book, FormationEpoch, Opened, StageEntry, rate};
use crate::config::Every;
use crate::error::{NotFinite, TrainError};
use crate::observer::{Event, Observer};
use crate::progress::{End, Place, Plan, Progress};
use crate::run_dir::{MODEL, RunDir, RunState, Status, StepRecord, ValidRecord, last_valid, read_classes};
use crate::task::{Compute, Task};
use phalanx_data::{Loaded, Loader, LoaderOptions, Position};
use phalanx_types::Time;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A run that is under way.
#[derive(Debug)]
pub struct Trainer {
    task: Task,
    compute: Compute,
    book: Book,
    stepper: Stepper,
    progress: Progress,
    plan: Plan,
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

impl Summary {
    /// What a run came to that has nothing left to do, as its directory has it.
    pub fn of_finished(dir: &RunDir, task: &Task) -> Option<Self> {
        let state = RunState::read(dir.path()).ok()?;
        let plan = task.plan();
        let validates = task.valid.is_some() && plan.validate != Every::Never;
        let validated = || last_valid(dir.path()).is_some_and(|last| last.step >= state.steps);
        let done = state.state == Status::Finished
            && state.steps >= plan.steps()
            && dir.file(MODEL).is_file()
            && (!validates || validated());
        done.then(|| Self {
            run_dir: dir.path().to_owned(),
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
        let mut stepper = task.stepper(&compute)?;
        let Opened { book, place, state } = Book::open(dir, &task, observer)?;
        match &state {
            Some(state) => stepper.set_state(state)?,
            None => stepper.load(&task.weights)?,
        }
        let plan = task.plan();
        let progress = Progress::new(plan, place, Time::ZERO);
        Ok(Self { task, compute, book, stepper, progress, plan })
    }

    /// Trains to the end, or until `stop` is set; then everything is saved.
    ///
    /// # Errors
    /// Something failed; the run directory says so, and its last checkpoint is still there.
    pub fn run(mut self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Summary, TrainError> {
        observer.on(&Event::Started {
            run_dir: self.book.dir().path(),
            model: &self.task.graph.name,
            parameters: self.stepper.model.parameters().iter().map(|p| p.elements()).sum(),
            samples: self.task.samples,
            batches_per_pass: self.plan.batches_per_pass,
            total_steps: self.plan.steps(),
            done: self.progress.place().step,
        });
        for note in &self.task.notes {
            observer.on(&Event::Warning(note));
        }
        let result = self.train(stop, observer);
        if let Err(error) = &result {
            self.book.fail(&self.task, self.progress.place(), error);
        }
        result
    }

    fn train(&mut self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Summary, TrainError> {
        self.write_formation()?;
        self.book.begin(&self.task, self.progress.place())?;
        self.make_up(observer)?;
        let end = if self.progress.is_done() { End::Finished } else { self.steps(stop, observer)? };
        self.write_formation()?;
        let weights = self.stepper.weights(&self.task.graph);
        self.book.finish(&self.task, self.progress.place(), end, &weights, observer)
    }

    /// One replica of one stage, here.
    fn write_formation(&self) -> Result<(), TrainError> {
        self.book.write_formation(
            &[],
            &[FormationEpoch {
                epoch: 0,
                replicas: vec![vec![StageEntry::whole("local".to_owned(), &self.task.graph)]],
                from_step: 0,
                predicted_ms: None,
                micro_batches: None,
                step_ms: self.book.step_ms(),
                ended: None,
            }],
        )
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
            let record = self.step(&loaded)?;
            let took = last.elapsed();
            last = Instant::now();
            let samples = loaded.batch.len as u64;
            loader.recycle(loaded.batch);
            let record = StepRecord { samples_per_s: rate(samples, took), ..record };
            self.book.on_step(&record, samples, took)?;
            observer.on(&Event::Step(&record));
            let due = self.progress.on_step(self.now(), stop.load(Ordering::Relaxed));
            if due.validate {
                self.validate((record.step, record.pass), observer)?;
            }
            if due.checkpoint {
                let state = self.stepper.state(&self.task.graph)?;
                let draft = self.book.draft(self.progress.place())?;
                self.book.save(draft, state, observer)?;
                self.progress.on_saved(self.now());
            }
            if let Some(end) = due.end {
                return Ok(end);
            }
            if due.validate || due.checkpoint {
                last = Instant::now();
            }
        }
    }

    fn step(&mut self, loaded: &Loaded) -> Result<StepRecord, TrainError> {
        let step = self.progress.place().step;
        let lr = self.task.config.lr(step, self.plan.steps());
        let batch = &loaded.batch;
        let input = StepInput {
            x: &batch.x,
            y: &batch.y,
            y_shape: &self.task.y_shape,
            len: batch.len,
            whole: batch.len,
            first: 0,
            cut: Cut::Size(self.task.config.train.batch),
            step,
        };
        let stepped = self.stepper.step(&input, lr)?;
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
                found: found.into(),
            })));
        }
        Ok(StepRecord {
            step: step + 1,
            pass: loaded.pass + 1,
            loss: stepped.loss as f32,
            lr,
            grad_norm: stepped.grad_norm as f32,
            samples_per_s: 0.0,
            replicas: None,
        })
    }

    /// Does what a driver that was interrupted did not get to.
    fn make_up(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let place = self.progress.place();
        if self.progress.due_here().validate && self.book.validated() < place.step {
            let pass = if place.batch == 0 { place.pass } else { place.pass + 1 };
            self.validate((place.step, pass), observer)?;
        }
        Ok(())
    }

    /// Validates the model as it is after a step of a pass.
    fn validate(&mut self, (step, pass): (u64, u64), observer: &mut dyn Observer) -> Result<(), TrainError> {
        let Some(valid) = &self.task.valid else { return Ok(()) };
        let evaluator = self.task.evaluator(&self.compute.threads);
        let evaluation = evaluator.run(self.stepper.model.as_mut(), valid)?;
        let valid = ValidRecord::new(step, pass, evaluation);
        self.book.on_valid(&valid)?;
        observer.on(&Event::Validated(&valid));
        Ok(())
    }

    fn now(&self) -> Time {
        Time::ZERO + self.book.elapsed()
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
        part: None,
    }
}
