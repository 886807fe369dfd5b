//! The main node's side: orders trials, hands out the files they need, hears how far they are, takes in what they give.

use crate::bundle::Bundle;
use crate::error::TrialError;
use crate::offered::OfferedFiles;
use crate::order;
use crate::{KIND, PROGRAM_KIND};
use bytes::{Bytes, BytesMut};
use phalanx_jobs::{JobHandle, JobSpec, MainNode};
use phalanx_records::run_dir::RUN_FILE;
use phalanx_train::config::{Override, RunFile};
use phalanx_types::{JobId, Needs, NodeId, Parcel};
use phalanx_wire::codec;
use phalanx_wire::trial::{
    FromTrials, TRIAL_SERVICE, ToTrials, TrialFile, TrialOrder, TrialReport, TrialResult, TrialTask,
    TrialWork,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::broadcast;

/// The file of layers, beside the run file.
pub(crate) const LAYERS: &str = "model.toml";
/// Notes that people add to a run; they are not a node's to change.
const ANNOTATIONS: &str = phalanx_records::run_dir::ANNOTATIONS;
/// Updates that wait for a receiver that does not keep up; older ones are lost.
const UPDATES: usize = 4096;
/// The most values in an update.
const MAX_VALUES: usize = 4096;

/// How far a trial is, as its node says. The first update of a node has no values: it has begun.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialUpdate {
    pub search: String,
    pub trial: u64,
    pub attempt: u32,
    pub node: NodeId,
    pub budget: f64,
    pub values: BTreeMap<String, f64>,
}

/// Updates of all trials, as they come.
#[derive(Debug)]
pub struct TrialUpdates(broadcast::Receiver<TrialUpdate>);

impl TrialUpdates {
    /// The next update; `None` once the client is gone. A receiver that is late misses the oldest: what counts is in the
    /// result.
    pub async fn next(&mut self) -> Option<TrialUpdate> {
        loop {
            match self.0.recv().await {
                Ok(update) => return Some(update),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "updates of trials were missed")
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

/// Orders trials from a main node. Cheap to clone; a main node has one client.
#[derive(Debug, Clone)]
pub struct TrialClient {
    main: MainNode,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Where paths in run files begin.
    base: PathBuf,
    files: Mutex<OfferedFiles>,
    updates: broadcast::Sender<TrialUpdate>,
}

impl TrialClient {
    /// Begins to answer the nodes that compute trials of this main node. Paths in run files begin at `base`.
    pub fn new(main: MainNode, base: impl Into<PathBuf>) -> Self {
        let files = Mutex::new(OfferedFiles::new(main.fabric().clone()));
        let (updates, _) = broadcast::channel(UPDATES);
        let shared = Arc::new(Shared { base: base.into(), files, updates });
        // Weak, so that the service does not keep files that nobody orders any more.
        let answering = Arc::downgrade(&shared);
        main.fabric().serve(TRIAL_SERVICE, move |from, body| {
            let shared = answering.upgrade().ok_or_else(|| "no trials are ordered here".to_owned());
            std::future::ready(shared.and_then(|shared| shared.answer(&from, &body)))
        });
        Self { main, shared }
    }

    /// Orders a trial: a job of kind [`KIND`] or [`PROGRAM_KIND`]. With a run directory it goes on from there; the
    /// directory must not change until the job has ended, other than by [`TrialClient::take`].
    ///
    /// # Errors
    /// No node could carry it out, a file cannot be read, or the main node has ended.
    pub async fn submit(
        &self,
        order: &TrialOrder,
        run_directory: Option<&Path>,
        priority: i32,
    ) -> Result<JobHandle, TrialError> {
        order::check(order)?;
        let (shared, order, dir) = (self.shared.clone(), order.clone(), run_directory.map(Path::to_owned));
        // Files are read to know them by their hash.
        let prepared =
            tokio::task::spawn_blocking(move || shared.prepare(order, dir.as_deref(), priority)).await;
        let spec = prepared.map_err(|_panicked| TrialError::Panicked)??;
        Ok(self.main.submit(spec).await?)
    }

    /// Ends a trial's job, also while it trains; `false` if it had ended.
    ///
    /// # Errors
    /// The main node has ended.
    pub async fn cancel(&self, job: JobId) -> Result<bool, TrialError> {
        Ok(self.main.cancel(job).await?)
    }

    /// The result in the solution of a trial's job. A run directory that came with it takes the place of `into`, whole
    /// or not at all.
    ///
    /// # Errors
    /// It is no solution of a trial, or the directory cannot be written; then `into` is as it was.
    pub fn take(&self, solution: &Parcel, into: &Path) -> Result<TrialResult, TrialError> {
        let result: TrialResult = codec::decode(&solution.bytes)?;
        let mut bundle = Bundle::of_parcel(solution)?;
        if bundle.is_empty() {
            return Ok(result);
        }
        if let Some(text) = bundle.file(RUN_FILE) {
            let text = String::from_utf8_lossy(text).into_owned();
            let layers = bundle.file(LAYERS).map(|_| at_key("model.toml", &into.join(LAYERS)));
            let file = RunFile::parse(&into.join(RUN_FILE), &text, layers.as_slice())?;
            bundle.set(RUN_FILE, file.resolved.to_toml());
        }
        if let Ok(notes) = std::fs::read(into.join(ANNOTATIONS)) {
            bundle.set(ANNOTATIONS, notes);
        }
        bundle.replace(into)?;
        Ok(result)
    }

    /// Updates of all trials of this main node from now on.
    pub fn updates(&self) -> TrialUpdates {
        TrialUpdates(self.shared.updates.subscribe())
    }
}

impl Shared {
    /// The job of an order.
    fn prepare(
        &self,
        mut order: TrialOrder,
        dir: Option<&Path>,
        priority: i32,
    ) -> Result<JobSpec, TrialError> {
        let mut files = Vec::new();
        let kind = match &mut order.work {
            TrialWork::Program { .. } => PROGRAM_KIND,
            TrialWork::Train { run, model } => {
                let layers = model.is_some().then(|| at_key("model.toml", &self.base.join(LAYERS)));
                let file = RunFile::parse(&self.base.join(RUN_FILE), run, layers.as_slice())?;
                order::check_run(&file.config)?;
                let own = |key: &str| model.is_some() && key == "model.toml";
                let named = file.config.files().into_iter().filter(|(key, path)| !own(key) && path.is_file());
                files = self.offer(named)?;
                // With paths that do not depend on where it is read.
                *run = file.resolved.to_toml();
                KIND
            }
        };
        let needs = Needs { cores: order.cores, memory: order.memory };
        let bundle = dir.map(Bundle::of_dir).transpose()?.unwrap_or_default();
        let payload = bundle.add_to(Parcel::from_bytes(encode(&TrialTask { order, files })?))?;
        Ok(JobSpec { priority, needs, ..JobSpec::new(kind, payload) })
    }

    fn offer<'a>(
        &self,
        named: impl Iterator<Item = (&'static str, &'a Path)>,
    ) -> Result<Vec<TrialFile>, TrialError> {
        let mut offered = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let offer = |(key, path): (&'static str, &Path)| {
            let read = |source| TrialError::Read { path: path.to_owned(), source };
            let (sha256, bytes) = offered.offer(path).map_err(read)?;
            let path = path.to_string_lossy().into_owned();
            Ok(TrialFile { key: key.to_owned(), path, bytes, sha256 })
        };
        named.map(offer).collect()
    }

    fn answer(&self, from: &NodeId, body: &[u8]) -> Result<Bytes, String> {
        let answer = match codec::decode(body).map_err(|error| error.to_string())? {
            ToTrials::File { sha256 } => {
                let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
                files
                    .find(&sha256)
                    .map_or(FromTrials::NoFile, |(blob, bytes)| FromTrials::File { blob, bytes })
            }
            ToTrials::Report(report) => {
                self.note(from, report);
                FromTrials::Noted
            }
        };
        encode(&answer).map_err(|error| error.to_string())
    }

    fn note(&self, from: &NodeId, report: TrialReport) {
        let TrialReport { search, trial, attempt, budget, values } = report;
        if values.len() > MAX_VALUES || !budget.is_finite() {
            return;
        }
        // Nobody may be listening.
        let _heard =
            self.updates.send(TrialUpdate { search, trial, attempt, node: from.clone(), budget, values });
    }
}

/// Puts a path under a key of a run file.
pub(crate) fn at_key(key: &str, path: &Path) -> Override {
    // A text in JSON is one in TOML.
    let text = serde_json::Value::from(path.to_string_lossy()).to_string();
    Override::flag("the trial", key, text)
}

pub(crate) fn encode<T: serde::Serialize>(message: &T) -> Result<Bytes, codec::CodecError> {
    let mut bytes = BytesMut::new();
    codec::encode_into(message, &mut bytes)?;
    Ok(bytes.freeze())
}
