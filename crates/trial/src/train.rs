//! A trial of a model of our own: trains it from one budget to another, and measures it.
//!
//! The schedule is that of the whole training; only the step at which it ends for now differs. So a training in several
//! orders has the bits of one without a pause.

use crate::bundle::Bundle;
use crate::host::{Opened, Shared, failed, failed_training};
use crate::latency;
use crate::link::Reports;
use crate::order::check_run;
use crate::service::{LAYERS, at_key};
use phalanx_jobs::{HandlerError, JobContext};
use phalanx_rank::{RankError, Trainer, parse_of_peer};
use phalanx_records::run_dir::{RUN_FILE, RunDir, ValidRecord};
use phalanx_records::{Event, RunEvent, Summary, with_causes};
use phalanx_train::config::{Override, RunFile};
use phalanx_train::{Compute, Task, TrainedModel};
use phalanx_types::Parcel;
use phalanx_wire::trial::{TrialOrder, TrialPoint, TrialResult};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two reports that have only the loss of a step.
const REPORT_EVERY: Duration = Duration::from_secs(2);
/// The most points of a curve; of more, the newest are kept.
const MAX_POINTS: usize = 10_000;

pub(crate) struct TrainTrial<'a> {
    pub(crate) opened: &'a Opened,
    pub(crate) shared: &'a Shared,
    pub(crate) run: &'a str,
    pub(crate) model: Option<&'a str>,
}

/// Trains and measures; gives the files of the run directory, too.
pub(crate) fn run(job: &JobContext, trial: &TrainTrial<'_>) -> Result<(TrialResult, Bundle), HandlerError> {
    let order = &trial.opened.task.order;
    // Before, nothing that the run file names is opened.
    let told = parse_of_peer(trial.run, &[]).map_err(failed)?;
    let own = trial.model.is_some().then_some("model.toml");
    let files = trial.shared.bring(job, &told.config, &trial.opened.task.files, own)?;
    let prepared = Prepared::new(trial, files)?;
    let batches = prepared.batches;
    let compute = prepared.compute.clone();
    let dir = trial.opened.dir();
    let mut watching = Watching {
        reports: &trial.opened.reports,
        batches,
        order,
        dir: &dir,
        curve: Vec::new(),
        told: None,
        saved: Instant::now(),
        save_every: trial.shared.save_every,
    };
    trial.opened.reports.say(order.from, BTreeMap::new());
    let began = Instant::now();
    let (summary, model) = prepared.train(job, trial, &mut |event| watching.on(event))?;
    let seconds = began.elapsed().as_secs_f64();
    let mut values = watching.last_values();
    add_summary(&mut values, &summary);
    add_latency(&mut values, order, &model, &dir, &compute)?;
    let values = only(values, &order.values)?;
    let mut bundle = Bundle::default();
    if order.keep {
        bundle = Bundle::of_dir(&dir).map_err(failed)?;
        // As the main node has it: files here have other names.
        let length = length_of(order, batches);
        let file = RunFile::parse(Path::new(RUN_FILE), trial.run, &[length]).map_err(failed)?;
        bundle.set(RUN_FILE, file.resolved.to_toml());
    }
    Ok((TrialResult { values, curve: watching.curve, seconds }, bundle))
}

/// A training that is ready to begin.
struct Prepared {
    task: Task,
    compute: Compute,
    run_dir: RunDir,
    batches: u64,
}

impl Prepared {
    fn new(trial: &TrainTrial<'_>, mut said: Vec<Override>) -> Result<Self, HandlerError> {
        let (order, dir) = (&trial.opened.task.order, trial.opened.dir());
        let run_dir = open_dir(&dir, &trial.opened.bundle)?;
        if let Some(model) = trial.model {
            run_dir.write(LAYERS, model.as_bytes()).map_err(here_only)?;
            said.push(at_key("model.toml", &dir.join(LAYERS)));
        }
        let parse = |said: &[Override]| parse_of_peer(trial.run, said).map_err(failed);
        let config = parse(&said)?.config;
        check_run(&config).map_err(failed)?;
        let cores = order.cores as usize;
        let threads = config.threads().map_or(cores, |threads| threads.min(cores));
        let compute = (trial.shared.compute)(Some(threads.max(1)));
        let mut task = Task::new(config, &compute.threads).map_err(failed_training)?;
        task.take_loss(&trial.shared.losses).map_err(failed)?;
        let batches = task.plan().batches_per_pass().unwrap_or(1).max(1);
        said.push(length_of(order, batches));
        let file = parse(&said)?;
        task.config.train.length = file.config.train.length;
        task.until = Some(steps_of(order.to, batches));
        check_values(order, &task)?;
        let (done, until) = (run_dir.steps(), steps_of(order.to, batches));
        if done > until {
            let message = format!("the run directory is {done} steps far, {until} are ordered");
            return Err(HandlerError::failed(message));
        }
        run_dir.write(RUN_FILE, file.resolved.to_toml().as_bytes()).map_err(here_only)?;
        Ok(Self { task, compute, run_dir, batches })
    }

    fn train(
        self,
        job: &JobContext,
        trial: &TrainTrial<'_>,
        observer: &mut dyn FnMut(RunEvent),
    ) -> Result<(Summary, TrainedModel), HandlerError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopper = stop.clone();
        let ended = job.cancelling(
            move || stopper.store(true, Ordering::Relaxed),
            || {
                let mut observer = observer;
                let trainer = Trainer::new(self.task, self.compute, self.run_dir, &mut observer)?;
                trainer.run_for_model(&stop, &mut observer)
            },
        );
        if job.is_cancelled() {
            return Err(HandlerError::cancelled());
        }
        ended.map_err(|error| {
            tracing::debug!(trial = trial.opened.task.order.trial, "a trial failed");
            match error {
                RankError::Train(error) => failed_training(*error),
                error => failed(error),
            }
        })
    }
}

/// The run directory: as it came, or a new one.
fn open_dir(dir: &Path, bundle: &Bundle) -> Result<RunDir, HandlerError> {
    if bundle.is_empty() {
        return RunDir::create(dir).map_err(here_only);
    }
    bundle.write(dir).map_err(here_only)?;
    // A directory without a run is no beginning either.
    RunDir::open(dir).map_err(failed)
}

/// A failure of this node's disk, say.
fn here_only(error: impl std::error::Error) -> HandlerError {
    HandlerError::retry(with_causes(&error))
}

/// The length of the whole training.
fn length_of(order: &TrialOrder, batches: u64) -> Override {
    match order.full.fract() == 0.0 && order.full >= 1.0 {
        true => Override::flag("the trial", "train.epochs", order.full as u64),
        false => Override::flag("the trial", "train.steps", steps_of(order.full, batches)),
    }
}

/// Steps to a budget: at least one, and never fewer for a larger budget.
fn steps_of(budget: f64, batches: u64) -> u64 {
    ((budget * batches as f64).round() as u64).max(1)
}

/// Refuses before training what could not be measured after it.
fn check_values(order: &TrialOrder, task: &Task) -> Result<(), HandlerError> {
    let of_validation = order.values.iter().find(|name| name.starts_with("valid."));
    match of_validation {
        Some(name) if !task.validates() => {
            Err(HandlerError::failed(format!("{name} is wanted, but the run file has no validation")))
        }
        _ => Ok(()),
    }
}

/// What a run says while it trains.
struct Watching<'a> {
    reports: &'a Reports,
    batches: u64,
    order: &'a TrialOrder,
    dir: &'a Path,
    curve: Vec<TrialPoint>,
    told: Option<Instant>,
    /// When the run directory was sent last.
    saved: Instant,
    save_every: Duration,
}

impl Watching<'_> {
    fn on(&mut self, event: RunEvent) {
        match event.event {
            Event::Step(step) => {
                let now = Instant::now();
                let told = *self.told.get_or_insert(now);
                if now.duration_since(told) >= REPORT_EVERY {
                    self.told = Some(now);
                    let values = BTreeMap::from([("train.loss".to_owned(), f64::from(step.loss))]);
                    self.reports.say(self.budget(step.step), values);
                }
            }
            Event::Validated(record) => {
                let point = TrialPoint { budget: self.budget(record.step), values: values_of(&record) };
                self.told = Some(Instant::now());
                self.reports.say(point.budget, point.values.clone());
                if self.curve.len() >= MAX_POINTS {
                    self.curve.remove(0);
                }
                self.curve.push(point);
            }
            Event::Saved { step, .. } => self.save(step),
            _ => {}
        }
    }

    /// Sends the run directory, so that a trial whose node is lost goes on from here.
    fn save(&mut self, step: u64) {
        let is_last = step >= steps_of(self.order.to, self.batches);
        if is_last || self.saved.elapsed() < self.save_every || !self.reports.can_save() {
            return;
        }
        let files = Bundle::of_dir(self.dir).and_then(|bundle| bundle.add_to(Parcel::default()));
        match files {
            Ok(files) => self.reports.save(self.budget(step), files),
            // The next one may be.
            Err(error) => tracing::warn!(%error, "a checkpoint of a trial could not be sent"),
        }
        self.saved = Instant::now();
    }

    fn budget(&self, step: u64) -> f64 {
        match step >= steps_of(self.order.to, self.batches) {
            true => self.order.to,
            false => step as f64 / self.batches as f64,
        }
    }

    fn last_values(&self) -> BTreeMap<String, f64> {
        self.curve.last().map(|point| point.values.clone()).unwrap_or_default()
    }
}

fn values_of(record: &ValidRecord) -> BTreeMap<String, f64> {
    let metrics = record.metrics.iter();
    let metrics = metrics.map(|(name, value)| (name.strip_prefix("val_").unwrap_or(name), *value));
    let named = [("loss", Some(record.val_loss)), ("accuracy", record.val_acc)];
    let named = named.into_iter().filter_map(|(name, value)| Some((name, value?)));
    named.chain(metrics).map(|(name, value)| (format!("valid.{name}"), value)).collect()
}

/// What the run itself says at its end.
fn add_summary(values: &mut BTreeMap<String, f64>, summary: &Summary) {
    let said = [
        ("train.loss", summary.loss.map(f64::from)),
        ("valid.loss", summary.val_loss),
        ("valid.accuracy", summary.val_acc),
        ("seconds", Some(summary.wall_s)),
        ("samples_per_s", Some(summary.samples_per_s)),
    ];
    values.extend(said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
}

/// The latencies that are wanted. They do not depend on how far a model is trained: those that were measured at an earlier
/// budget are in the run directory.
fn add_latency(
    values: &mut BTreeMap<String, f64>,
    order: &TrialOrder,
    model: &TrainedModel,
    dir: &Path,
    compute: &Compute,
) -> Result<(), HandlerError> {
    let wants = |name: &str| order.values.iter().any(|wanted| wanted == name);
    let runs = order.latency_trials.max(1);
    let mut measured = latency::measured_latencies(dir).unwrap_or_default();
    let before = measured.clone();
    if wants("latency") && measured.latency.is_none() {
        measured.latency = Some(latency::median_ms(model, compute, runs).map_err(failed)?);
    }
    if wants("onnx_latency") && measured.onnx_latency.is_none() {
        let latency = latency::onnx_median(model, compute, order.cores, runs).map_err(failed)?;
        measured.onnx_latency = Some(latency);
    }
    if measured != before {
        let text = serde_json::to_vec_pretty(&measured).map_err(failed)?;
        std::fs::write(dir.join(latency::LATENCY), text).map_err(here_only)?;
    }
    let onnx = measured.onnx_latency.map(|latency| latency.milliseconds);
    let named = [("latency", measured.latency), ("onnx_latency", onnx)];
    values.extend(named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    Ok(())
}

/// The values that were ordered.
fn only(mut values: BTreeMap<String, f64>, wanted: &[String]) -> Result<BTreeMap<String, f64>, HandlerError> {
    if let Some(missing) = wanted.iter().find(|name| !values.contains_key(*name)) {
        let there: Vec<&str> = values.keys().map(String::as_str).collect();
        let there = there.join(", ");
        return Err(HandlerError::failed(format!("the training measures no {missing}; there are {there}")));
    }
    values.retain(|name, _| wanted.contains(name));
    Ok(values)
}
