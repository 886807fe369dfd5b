//! What the main node does for its trials: makes jobs of orders, and answers the nodes that solve them.

use crate::bundle::{Bundle, bytes_of};
use crate::client::{TrialTerms, TrialUpdate};
use crate::error::TrialError;
use crate::offered::OfferedFiles;
use crate::order;
use crate::saved::{SavedTrials, TrialKey};
use crate::{KIND, PROGRAM_KIND, encode};
use bytes::Bytes;
use phalanx_fabric::Fabric;
use phalanx_jobs::JobSpec;
use phalanx_rank::files_of;
use phalanx_records::run_dir::RUN_FILE;
use phalanx_train::config::{Override, RunFile};
use phalanx_types::{Needs, NodeId, Parcel};
use phalanx_wire::codec;
use phalanx_wire::trial::{
    FromTrials, SavedFiles, ToTrials, TrialFile, TrialOrder, TrialReport, TrialTask, TrialWork,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// The file of layers, beside the run file.
pub(crate) const LAYERS: &str = "model.toml";
/// How often trials save a checkpoint, unless their run file says it.
const CHECKPOINT_EVERY: &str = "10s";
/// Updates that wait for a receiver that does not keep up; older ones are lost.
const UPDATES: usize = 4096;
/// The most values in an update.
const MAX_VALUES: usize = 4096;

#[derive(Debug)]
pub(crate) struct TrialService {
    /// Where paths in run files begin.
    base: PathBuf,
    fabric: Fabric,
    files: Mutex<OfferedFiles>,
    saved: Mutex<SavedTrials>,
    updates: broadcast::Sender<TrialUpdate>,
}

impl TrialService {
    pub(crate) fn new(base: PathBuf, fabric: &Fabric) -> Self {
        let files = Mutex::new(OfferedFiles::new(fabric.clone()));
        let saved = Mutex::new(SavedTrials::new(fabric.clone()));
        let (updates, _) = broadcast::channel(UPDATES);
        Self { base, fabric: fabric.clone(), files, saved, updates }
    }

    pub(crate) fn updates(&self) -> broadcast::Receiver<TrialUpdate> {
        self.updates.subscribe()
    }

    /// Nothing that was saved of a trial is needed any more.
    pub(crate) fn end(&self, key: &TrialKey) {
        lock(&self.saved).end(key);
    }

    /// The job of an order.
    pub(crate) fn prepare(
        &self,
        mut order: TrialOrder,
        dir: Option<&Path>,
        terms: TrialTerms,
    ) -> Result<JobSpec, TrialError> {
        let mut files = Vec::new();
        let kind = match &mut order.work {
            TrialWork::Program { .. } => PROGRAM_KIND,
            TrialWork::Train { run, model } => {
                let layers = model.is_some().then(|| at_key("model.toml", &self.base.join(LAYERS)));
                // What a trial loses with its node is what it did since its last checkpoint.
                let often = Override::unless_said("train.checkpoint_every", CHECKPOINT_EVERY);
                let said: Vec<Override> = layers.into_iter().chain([often]).collect();
                let file = RunFile::parse(&self.base.join(RUN_FILE), run, &said)?;
                order::check_run(&file.config)?;
                let own = |key: &str| model.is_some() && key == "model.toml";
                let read = |source| TrialError::Read { path: self.base.clone(), source };
                let named = files_of(&file.config).map_err(read)?.files;
                files = self.offer(named.iter().filter(|(key, _)| !own(key)))?;
                // With paths that do not depend on where it is read.
                *run = file.resolved.to_toml();
                KIND
            }
        };
        lock(&self.saved).begin(&order);
        let needs = Needs { cores: order.cores, memory: order.memory };
        let bundle = dir.map(Bundle::of_dir).transpose()?.unwrap_or_default();
        let payload = bundle.add_to(Parcel::from_bytes(encode(&TrialTask { order, files })?))?;
        let usual = JobSpec::new(kind, payload);
        let max_attempts = terms.attempts.map_or(usual.max_attempts, |attempts| attempts.max(1));
        Ok(JobSpec { priority: terms.priority, needs, max_attempts, ..usual })
    }

    fn offer<'a>(
        &self,
        named: impl Iterator<Item = &'a (&'static str, PathBuf)>,
    ) -> Result<Vec<TrialFile>, TrialError> {
        let mut offered = lock(&self.files);
        let offer = |(key, path): &(&'static str, PathBuf)| {
            let read = |source| TrialError::Read { path: path.clone(), source };
            let (sha256, bytes) = offered.offer(path).map_err(read)?;
            let path = path.to_string_lossy().into_owned();
            Ok(TrialFile { key: (*key).to_owned(), path, bytes, sha256 })
        };
        named.map(offer).collect()
    }

    /// Answers a node.
    pub(crate) async fn answer(self: Arc<Self>, from: NodeId, body: Bytes) -> Result<Bytes, String> {
        let answer = match codec::decode(&body).map_err(|error| error.to_string())? {
            ToTrials::File { sha256 } => {
                let found = lock(&self.files).find(&sha256);
                found.map_or(FromTrials::NoFile, |(blob, bytes)| FromTrials::File { blob, bytes })
            }
            ToTrials::Report(report) => {
                self.note(&from, report);
                FromTrials::Noted
            }
            ToTrials::Saved { report, files } => {
                self.keep(&from, report, files).await?;
                FromTrials::Noted
            }
            ToTrials::Newest { search, trial, attempt } => {
                let newest = lock(&self.saved).newest(&(search, trial), attempt);
                newest.map_or(FromTrials::NothingSaved, FromTrials::Newest)
            }
        };
        encode(&answer).map_err(|error| error.to_string())
    }

    fn note(&self, from: &NodeId, report: TrialReport) {
        let TrialReport { search, trial, attempt, budget, values } = report;
        if values.len() > MAX_VALUES || !budget.is_finite() {
            return;
        }
        let node = from.clone();
        // Nobody may be listening.
        let _heard = self.updates.send(TrialUpdate { search, trial, attempt, node, budget, values });
    }

    /// Fetches what a node has saved of a trial, while the node waits for the answer.
    async fn keep(
        self: &Arc<Self>,
        from: &NodeId,
        report: TrialReport,
        files: SavedFiles,
    ) -> Result<(), String> {
        let (key, attempt) = ((report.search, report.trial), report.attempt);
        if !lock(&self.saved).is_wanted(&key, attempt) {
            return Ok(());
        }
        let len = bytes_of(&files.head).ok_or("too many or too large files")?;
        let peer = self.fabric.peer(from).ok_or("there is no link")?;
        let body = self.fabric.fetch(&peer, files.blob, len).await.map_err(|error| error.to_string())?;
        let parcel = Parcel::from_parts(files.head, body).map_err(|error| error.to_string())?;
        let bundle = Bundle::of_parcel(&parcel).map_err(|error| error.to_string())?;
        let service = self.clone();
        let put = move || lock(&service.saved).put(&key, attempt, &bundle);
        let put = tokio::task::spawn_blocking(put).await.map_err(|error| error.to_string())?;
        put.map_err(|error| error.to_string())
    }
}

/// What it guards is whole, also when a thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a path under a key of a run file.
pub(crate) fn at_key(key: &str, path: &Path) -> Override {
    // A text in JSON is one in TOML.
    let text = serde_json::Value::from(path.to_string_lossy()).to_string();
    Override::flag("the trial", key, text)
}
