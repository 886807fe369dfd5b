//! A run in this process: a formation of one rank, which reports only to its own records.

use crate::error::RankError;
use crate::mailbox::Mailbox;
use crate::outlet::{Outlet, Recorder};
use crate::part::Part;
use crate::session::{Ended, Session};
use crate::worker::{Report, Worker};
use phalanx_engine::Metric;
use phalanx_graph::Weights;
use phalanx_protocol::Passes;
use phalanx_protocol::Wish;
use phalanx_protocol::progress::{End, Place};
use phalanx_records::run_dir::{RunDir, read_classes};
use phalanx_records::with_causes;
use phalanx_records::{
    Book, Event, Events, FormationEpoch, ModelState, Observer, Opened, StageEntry, Summary,
};
use phalanx_train::stream::StreamFeed;
use phalanx_train::{Compute, Task, TrainedModel, evaluation};
use phalanx_wire::train::{Recorded, StepReport, ValidSums};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A run that is ready to begin or to go on.
#[derive(Debug)]
pub struct Trainer {
    task: Task,
    compute: Compute,
    book: Book,
    part: Part,
    place: Place,
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
    ) -> Result<Self, RankError> {
        if let Some(classes) = read_classes(dir.path())? {
            // As they were when the run began, whatever has been added to the files since.
            task.number_classes(&classes)?;
        }
        let mut events = Events::of_run(&dir, observer)?;
        let opened = Book::open(dir, task.about(), &mut events)?;
        Self::begin(task, compute, opened)
    }

    /// Gets a run ready of which nothing is written: no directory, no checkpoints.
    ///
    /// # Errors
    /// The model cannot be computed.
    pub fn in_memory(task: Task, compute: Compute) -> Result<Self, RankError> {
        let name = task.config.name.clone().unwrap_or_else(|| task.graph.name.clone());
        let book = Book::in_memory(name, task.about());
        Self::begin(task, compute, Opened { book, place: Place::default(), state: None })
    }

    fn begin(task: Task, compute: Compute, opened: Opened) -> Result<Self, RankError> {
        let Opened { book, place, state } = opened;
        if let Some(stream) = &task.stream {
            let reader = stream.open_run(book.dir(), book.name(), place)?;
            stream.attach(&reader)?;
        }
        let state =
            state.unwrap_or_else(|| ModelState { weights: task.weights.clone(), ..ModelState::default() });
        let part = Part::whole(&task, &compute, &state)?;
        Ok(Self { task, compute, book, part, place })
    }

    /// Trains to the end, or until `stop` is set; then everything is saved.
    ///
    /// # Errors
    /// Something failed; the run directory says so, and its last checkpoint is still there.
    pub fn run(self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Summary, RankError> {
        Ok(self.run_for_model(stop, observer)?.0)
    }

    /// The same, and gives the model as it is then.
    ///
    /// # Errors
    /// Something failed, as in [`Trainer::run`].
    pub fn run_for_model(
        self,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<(Summary, TrainedModel), RankError> {
        let Self { task, compute, mut book, part, place } = self;
        let mut events = match book.dir() {
            Some(dir) => Events::of_run(dir, observer)?,
            None => Events::in_memory(book.name(), observer),
        };
        let plan = task.plan();
        events.on(Event::Started {
            run_dir: book.dir().map(|dir| dir.path().to_owned()),
            model: task.graph.name.clone(),
            parameters: task.graph.cost().parameters as usize,
            samples: task.stream.is_none().then_some(task.samples),
            batches_per_pass: plan.batches_per_pass(),
            total_steps: plan.steps(),
            done: place.step,
        });
        for note in &task.notes {
            events.on(Event::Warning(note.clone()));
        }
        let formation = StageEntry::whole("local".to_owned(), &task.graph);
        let (metrics, saved) = (task.metrics.clone(), place.step);
        let (passes, stream) = (Passes::new(plan, place), task.stream.clone());
        let mut records = LocalRecords {
            book: &mut book,
            events: &mut events,
            passes,
            metrics,
            stop,
            place,
            saved,
            stream,
        };
        let trained = records.begin(&formation).and_then(|()| train(task, compute, part, &mut records));
        let ended = trained.and_then(|(task, state)| {
            let (summary, weights) = records.finish(state, &formation)?;
            Ok((summary, TrainedModel::of_task(task, weights)))
        });
        if let Err(error) = &ended {
            let place = records.place;
            book.fail(place, error, &mut events);
        }
        ended
    }
}

/// Trains until the run ends; gives back what it was made of, and the state it came to.
fn train(
    task: Task,
    compute: Compute,
    part: Part,
    records: &mut LocalRecords<'_, '_>,
) -> Result<(Task, ModelState), RankError> {
    let step = records.place.step;
    let recorded = Recorded { step, validated: records.book.validated(), saved: step };
    let place = records.place;
    let mut worker = Worker::new(task, compute, Arc::new(Mailbox::default()), Outlet::here(records));
    worker.passes.restart(place);
    // No other rank can join, so the session ends when all steps are done or the user wants it to.
    let (Ended::Done | Ended::Reformed) = Session::alone(&mut worker, part)?.run(recorded)?;
    let state = worker.part.as_ref().map(Part::state).transpose()?.unwrap_or_default();
    Ok((worker.task, state))
}

/// Writes down what the one rank reports.
struct LocalRecords<'r, 'o> {
    book: &'r mut Book,
    events: &'r mut Events<'o>,
    passes: Passes,
    metrics: Vec<Metric>,
    stop: &'r AtomicBool,
    /// What is recorded.
    place: Place,
    /// The step of the last checkpoint.
    saved: u64,
    stream: Option<StreamFeed>,
}

impl LocalRecords<'_, '_> {
    fn begin(&mut self, formation: &StageEntry) -> Result<(), RankError> {
        self.write_formation(formation)?;
        Ok(self.book.begin(self.place)?)
    }

    /// One replica of one stage, here.
    fn write_formation(&self, whole: &StageEntry) -> Result<(), RankError> {
        let epoch = FormationEpoch {
            epoch: 0,
            replicas: vec![vec![whole.clone()]],
            from_step: 0,
            predicted_ms: None,
            micro_batches: None,
            step_ms: self.book.step_ms(),
            ended: None,
        };
        Ok(self.book.write_formation(&[], &[epoch])?)
    }

    fn on_step(&mut self, report: &StepReport) -> Result<(), RankError> {
        self.book.record_step(report, None, self.events)?;
        if let Some(pass) = report.sealed {
            self.passes.learn(pass);
        }
        self.place = self.passes.place(report.step)?;
        Ok(())
    }

    fn on_validation(&mut self, step: u64, sums: ValidSums) -> Result<(), RankError> {
        let evaluation = evaluation(&self.metrics, &sums.into());
        Ok(self.book.record_validation(step, evaluation, self.events)?)
    }

    fn save(&mut self, state: ModelState) -> Result<(), RankError> {
        let place = self.passes.place(state.steps())?;
        if self.book.dir().is_some() {
            self.saved = state.steps();
            let draft = self.book.draft(place)?;
            self.book.save(draft, state, self.events)?;
        }
        // A run in memory is never resumed, so the store need not keep anything for that.
        self.commit(place);
        Ok(())
    }

    /// What a checkpoint has, the store may free.
    fn commit(&mut self, place: Place) {
        let before = self.passes.pass_before(place.step);
        let committed = self.stream.as_ref().map_or(Ok(()), |stream| stream.commit(place, before));
        if let Err(error) = committed {
            // Later checkpoints say it again.
            self.events.on(Event::Warning(with_causes(&error)));
        }
    }

    /// Writes the result, or how far it got.
    fn finish(&mut self, state: ModelState, formation: &StageEntry) -> Result<(Summary, Weights), RankError> {
        let weights = state.weights.clone();
        if state.steps() > self.saved {
            self.save(state)?;
        }
        self.write_formation(formation)?;
        let done = self.passes.is_done(self.place.step);
        let end = if done { End::Finished } else { End::Interrupted };
        let summary = self.book.finish(self.place, end, &weights, self.events)?;
        if let (End::Finished, Some(stream)) = (end, &self.stream) {
            stream.close();
        }
        Ok((summary, weights))
    }
}

impl Recorder for LocalRecords<'_, '_> {
    fn record(&mut self, report: Report) -> Result<(), RankError> {
        match report {
            Report::Steps { steps, .. } => steps.iter().try_for_each(|step| self.on_step(step)),
            Report::Validated { step, sums, .. } => self.on_validation(step, sums),
            Report::Snapshot { bytes, .. } => self.save(ModelState::from_bytes(bytes)?),
            Report::StreamWaits { wait, .. } => {
                let wait = wait.to_string();
                self.book.note_waiting(self.place, &wait)?;
                self.events.on(Event::Waiting(wait));
                Ok(())
            }
            Report::StreamEnded { step, .. } => {
                self.passes.on_stream_ended(step);
                Ok(())
            }
            // Of groups, nodes and live queries.
            _ => Ok(()),
        }
    }

    fn wish(&self) -> Wish {
        if self.stop.load(Ordering::Relaxed) { Wish::Stop } else { Wish::GoOn }
    }
}
