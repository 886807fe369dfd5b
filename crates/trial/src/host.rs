//! A computing node's side: solves trials as jobs.

use crate::bundle::Bundle;
use crate::link::{Link, Reports};
use crate::program::{self, ProgramTrial};
use crate::service::at_key;
use crate::train::{self, TrainTrial};
use crate::{KIND, PROGRAM_KIND, encode, order};
use phalanx_fabric::Fabric;
use phalanx_jobs::{Handler, HandlerError, Handlers, JobContext};
use phalanx_rank::{FileCache, FileProblem, RankError, WantedFile, bring_all, fault_in};
use phalanx_records::with_causes;
use phalanx_train::config::{Override, RunConfig};
use phalanx_train::{Losses, MakeCompute, TrainError};
use phalanx_types::Parcel;
use phalanx_wire::codec;
use phalanx_wire::trial::{TrialFile, TrialOrder, TrialResult, TrialSolution, TrialTask, TrialWork};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// Between two run directories that are sent in the middle of a trial, at least.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// Solves trials on a node. Cheap to clone; all clones are of the same node.
#[derive(Clone)]
pub struct TrialHost {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) compute: MakeCompute,
    pub(crate) losses: Losses,
    /// One trial at a time looks for files: what several need is fetched once.
    files: Mutex<FileCache>,
    link: OnceLock<Link>,
    /// Between two run directories that are sent in the middle of a trial, at least.
    pub(crate) save_every: Duration,
    /// What is put before every program.
    pub(crate) wrapper: OnceLock<Vec<OsString>>,
}

impl std::fmt::Debug for TrialHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrialHost").field("link", &self.shared.link).finish_non_exhaustive()
    }
}

/// How a node solves trials.
#[derive(Debug)]
pub struct TrialHostOptions {
    /// Where files are kept that come from main nodes.
    pub files: FileCache,
    /// Between two run directories that are sent in the middle of a trial, at least.
    pub save_every: Duration,
}

impl Default for TrialHostOptions {
    fn default() -> Self {
        Self { files: FileCache::usual(), save_every: SAVE_EVERY }
    }
}

impl TrialHost {
    /// A node that computes with this and has these losses of the user's own.
    pub fn new(compute: MakeCompute, losses: Losses) -> Self {
        Self::with(compute, losses, TrialHostOptions::default())
    }

    /// The same with other options.
    pub fn with(compute: MakeCompute, losses: Losses, options: TrialHostOptions) -> Self {
        let (link, wrapper) = (OnceLock::new(), OnceLock::new());
        let TrialHostOptions { files, save_every } = options;
        let files = Mutex::new(files);
        Self { shared: Arc::new(Shared { compute, losses, files, link, save_every, wrapper }) }
    }

    /// Adds the handlers of trials; those of programs only where `programs` are allowed.
    #[must_use]
    pub fn add_to(&self, handlers: Handlers, programs: bool) -> Handlers {
        let handlers = handlers.with(KIND, Solver { shared: self.shared.clone(), programs: false });
        match programs {
            true => handlers.with(PROGRAM_KIND, Solver { shared: self.shared.clone(), programs: true }),
            false => handlers,
        }
    }

    /// Puts `wrapper` before every program, for example one that ties it to the life of the node. Only the first call
    /// counts.
    pub fn wrap_programs(&self, wrapper: Vec<OsString>) {
        // A second one would be the same.
        let _set = self.shared.wrapper.set(wrapper);
    }

    /// From now on main nodes are asked for files, and told how far trials are. Called on the node's runtime.
    pub fn join(&self, fabric: &Fabric) {
        let _set = self.shared.link.set(Link::new(fabric.clone()));
    }
}

/// Solves the trials of one kind.
struct Solver {
    shared: Arc<Shared>,
    programs: bool,
}

impl Handler for Solver {
    fn solve(&self, job: &JobContext) -> Result<Parcel, HandlerError> {
        let opened = Opened::of_job(job, &self.shared)?;
        let (result, bundle) = match (&opened.task.order.work, self.programs) {
            (TrialWork::Train { run, model }, false) => {
                let trial =
                    TrainTrial { opened: &opened, shared: &self.shared, run, model: model.as_deref() };
                train::run(job, &trial)?
            }
            (TrialWork::Program { argv, genes }, true) => {
                let wrapper = self.shared.wrapper.get().map(Vec::as_slice).unwrap_or_default();
                program::run(job, &ProgramTrial { opened: &opened, wrapper, argv, genes })?
            }
            _ => return Err(HandlerError::failed("the order is of another kind than its job")),
        };
        opened.solution(result, bundle)
    }
}

/// A trial's job with a directory to work in.
pub(crate) struct Opened {
    pub(crate) task: TrialTask,
    pub(crate) bundle: Bundle,
    pub(crate) reports: Reports,
    scratch: TempDir,
}

impl Opened {
    fn of_job(job: &JobContext, shared: &Shared) -> Result<Self, HandlerError> {
        let task: TrialTask = codec::decode(&job.payload().bytes).map_err(failed)?;
        order::check_task(&task).map_err(failed)?;
        let mut bundle = Bundle::of_parcel(job.payload()).map_err(failed)?;
        let mut reports = Reports::unheard(&task.order);
        if let (Some(link), Some(main)) = (shared.link.get(), job.main()) {
            reports = link.reports(main.clone(), &task.order);
            let was_begun = job.lease().number > 1;
            match was_begun.then(|| link.newest(&main, &task.order)) {
                Some(Ok(Some(newest))) => bundle = newest,
                Some(Err(detail)) => tracing::warn!(%main, %detail, "a trial begins again from its order"),
                Some(Ok(None)) | None => {}
            }
        }
        // The next trial may find room again.
        let scratch = tempfile::Builder::new().prefix("phalanx-trial-").tempdir();
        let scratch = scratch.map_err(|error| HandlerError::retry(with_causes(&error)))?;
        Ok(Self { task, bundle, reports, scratch })
    }

    /// The run directory, which need not be there yet.
    pub(crate) fn dir(&self) -> PathBuf {
        self.scratch.path().join(format!("t{}", self.task.order.trial))
    }

    fn solution(&self, result: TrialResult, bundle: Bundle) -> Result<Parcel, HandlerError> {
        let TrialOrder { search, trial, .. } = &self.task.order;
        let solution = TrialSolution { search: search.clone(), trial: *trial, result };
        let parcel = Parcel::from_bytes(encode(&solution).map_err(failed)?);
        match self.task.order.keep {
            true => bundle.add_to(parcel).map_err(failed),
            false => Ok(parcel),
        }
    }
}

impl Shared {
    /// Sees that the files of a trial are here, and says under which names. `own` is a key of the run file whose file
    /// comes with the trial.
    pub(crate) fn bring(
        &self,
        job: &JobContext,
        config: &RunConfig,
        files: &[TrialFile],
        own: Option<&str>,
    ) -> Result<Vec<Override>, HandlerError> {
        let mut cache = lock(&self.files);
        let listed: Vec<WantedFile<'_>> = files.iter().map(wanted).collect();
        let fetch = |index: usize| match (self.link.get(), job.main(), files.get(index)) {
            (Some(link), Some(main), Some(file)) => link.fetch(&main, file),
            _ => Err(FileProblem::NoWay),
        };
        match bring_all(config, &listed, own, &mut cache, fetch) {
            Ok(here) => Ok(here.iter().map(|(key, path)| at_key(key, path)).collect()),
            // No node may open it.
            Err(error @ RankError::File { problem: FileProblem::NotListed | FileProblem::Name, .. }) => {
                Err(failed(error))
            }
            // Another node may have it, or reach the main node.
            Err(error @ RankError::File { .. }) => Err(HandlerError::retry(with_causes(&error))),
            Err(error) => Err(failed(error)),
        }
    }
}

fn wanted(file: &TrialFile) -> WantedFile<'_> {
    let TrialFile { key, path, bytes, sha256 } = file;
    WantedFile { key, path, bytes: *bytes, sha256 }
}

/// What it guards is whole, also when a thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A training that would fail on any node. What is in a file is not said.
pub(crate) fn failed_training(error: TrainError) -> HandlerError {
    match fault_in(&error) {
        Some(fault) => HandlerError::failed(fault.to_string()),
        None => failed(error),
    }
}

/// A trial that would fail on any node.
pub(crate) fn failed(error: impl std::error::Error) -> HandlerError {
    HandlerError::failed(with_causes(&error))
}
