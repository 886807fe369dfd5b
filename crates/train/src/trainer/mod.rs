//! The loop over `dyn Engine`.

mod stepper;

pub use stepper::{Cut, OutputGradients, Ready, StepInput, Stepped, Stepper, StepperOptions};

use crate::error::{NotFinite, TrainError};
use crate::task::{Compute, Task};
use crate::trained_model::TrainedModel;
use phalanx_data::{Loaded, Loader, LoaderOptions, Position};
use phalanx_graph::Weights;
use phalanx_protocol::progress::{End, Place, Plan, Progress};
use phalanx_records::run_dir::{RunDir, StepRecord, ValidRecord, read_classes};
use phalanx_records::{
    Book, Event, Events, FormationEpoch, Observer, Opened, StageEntry, Summary, samples_per_second,
};
use phalanx_types::Time;
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
        let name = dir.name();
        let opened = Book::open(dir, task.about(), &mut Events::new(name, observer))?;
        Self::begin(task, compute, opened)
    }

    /// Gets a run ready of which nothing is written: no directory, no checkpoints.
    ///
    /// # Errors
    /// The model cannot be computed.
    pub fn in_memory(task: Task, compute: Compute) -> Result<Self, TrainError> {
        let name = task.config.name.clone().unwrap_or_else(|| task.graph.name.clone());
        let book = Book::in_memory(name, task.about());
        Self::begin(task, compute, Opened { book, place: Place::default(), state: None })
    }

    fn begin(task: Task, compute: Compute, opened: Opened) -> Result<Self, TrainError> {
        let Opened { book, place, state } = opened;
        let mut stepper = task.stepper(&compute)?;
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
    pub fn run(self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Summary, TrainError> {
        Ok(self.run_for_model(stop, observer)?.0)
    }

    /// The same, and gives the model as it is then.
    ///
    /// # Errors
    /// Something failed, as in [`Trainer::run`].
    pub fn run_for_model(
        mut self,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<(Summary, TrainedModel), TrainError> {
        let events = &mut Events::new(self.book.name(), observer);
        events.on(Event::Started {
            run_dir: self.book.dir().map(|dir| dir.path().to_owned()),
            model: self.task.graph.name.clone(),
            parameters: self.stepper.model.parameters().iter().map(|p| p.elements()).sum(),
            samples: self.task.samples,
            batches_per_pass: self.plan.batches_per_pass,
            total_steps: self.plan.steps(),
            done: self.progress.place().step,
        });
        for note in &self.task.notes {
            events.on(Event::Warning(note.clone()));
        }
        let result = self.train(stop, events);
        if let Err(error) = &result {
            self.book.fail(self.progress.place(), error);
        }
        let (summary, weights) = result?;
        Ok((summary, TrainedModel::of_task(self.task, weights)))
    }

    fn train(
        &mut self,
        stop: &AtomicBool,
        events: &mut Events<'_>,
    ) -> Result<(Summary, Weights), TrainError> {
        self.write_formation()?;
        self.book.begin(self.progress.place())?;
        self.make_up(events)?;
        let end = if self.progress.is_done() { End::Finished } else { self.steps(stop, events)? };
        self.write_formation()?;
        let weights = self.stepper.weights(&self.task.graph);
        let summary = self.book.finish(self.progress.place(), end, &weights, events)?;
        Ok((summary, weights))
    }

    /// One replica of one stage, here.
    fn write_formation(&self) -> Result<(), TrainError> {
        Ok(self.book.write_formation(
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
        )?)
    }

    /// Does steps until there is a reason to end.
    fn steps(&mut self, stop: &AtomicBool, events: &mut Events<'_>) -> Result<End, TrainError> {
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
            let record = StepRecord { samples_per_s: samples_per_second(samples, took), ..record };
            self.book.on_step(&record, samples, took)?;
            let (step, pass) = (record.step, record.pass);
            events.on(Event::Step(record));
            let due = self.progress.on_step(self.now(), stop.load(Ordering::Relaxed));
            if due.validate {
                self.validate((step, pass), events)?;
            }
            if due.checkpoint && self.book.dir().is_some() {
                let state = self.stepper.state(&self.task.graph)?;
                let draft = self.book.draft(self.progress.place())?;
                self.book.save(draft, state, events)?;
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
    fn make_up(&mut self, events: &mut Events<'_>) -> Result<(), TrainError> {
        let place = self.progress.place();
        if self.progress.due_here().validate && self.book.validated() < place.step {
            let pass = if place.batch == 0 { place.pass } else { place.pass + 1 };
            self.validate((place.step, pass), events)?;
        }
        Ok(())
    }

    /// Validates the model as it is after a step of a pass.
    fn validate(&mut self, (step, pass): (u64, u64), events: &mut Events<'_>) -> Result<(), TrainError> {
        let Some(valid) = &self.task.valid else { return Ok(()) };
        let evaluator = self.task.evaluator(&self.compute.threads);
        let evaluation = evaluator.run(self.stepper.model.as_mut(), valid)?;
        let valid = ValidRecord::new(step, pass, evaluation);
        self.book.on_valid(&valid)?;
        events.on(Event::Validated(valid));
        Ok(())
    }

    fn now(&self) -> Time {
        Time::ZERO + self.book.elapsed()
    }
}

/// Which batches a run takes from a place on: a step is one, whatever it is computed in.
pub fn loader_options(task: &Task, place: Place) -> LoaderOptions {
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
