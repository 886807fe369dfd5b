//! The main node's side: orders trials, hears how far they are, takes in what they give.

use crate::bundle::Bundle;
use crate::error::TrialError;
use crate::order;
use crate::service::{LAYERS, TrialService, at_key};
use phalanx_jobs::{JobHandle, MainNode};
use phalanx_records::run_dir::{ANNOTATIONS, RUN_FILE};
use phalanx_train::config::RunFile;
use phalanx_types::{JobId, NodeId, Parcel};
use phalanx_wire::codec;
use phalanx_wire::trial::{TRIAL_SERVICE, TrialOrder, TrialResult, TrialSolution};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

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

/// What the jobs layer is told of a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrialTerms {
    /// Higher goes first.
    pub priority: i32,
    /// How often nodes may begin with it, each after the one before was lost; as often as any job if not given.
    pub attempts: Option<u32>,
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
                Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "updates of trials were missed"),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Orders trials from a main node. Cheap to clone; a main node has one client.
#[derive(Debug, Clone)]
pub struct TrialClient {
    main: MainNode,
    service: Arc<TrialService>,
}

impl TrialClient {
    /// Begins to answer the nodes that compute trials of this main node. Paths in run files begin at `base`.
    pub fn new(main: MainNode, base: impl Into<PathBuf>) -> Self {
        let service = Arc::new(TrialService::new(base.into(), main.fabric()));
        // Weak, so that files are not held when nobody orders trials any more.
        let answering = Arc::downgrade(&service);
        main.fabric().serve(TRIAL_SERVICE, move |from, body| {
            let service = answering.upgrade();
            async move {
                let service = service.ok_or_else(|| "no trials are ordered here".to_owned())?;
                service.answer(from, body).await
            }
        });
        Self { main, service }
    }

    /// Orders a trial: a job of kind [`KIND`](crate::KIND) or [`PROGRAM_KIND`](crate::PROGRAM_KIND). With a run
    /// directory it goes on from there; the directory must not change until the job has ended, other than by
    /// [`TrialClient::take`]. A trial is ordered again only when the job before has ended.
    ///
    /// # Errors
    /// No node could carry it out, a file cannot be read, or the main node has ended.
    pub async fn submit(
        &self,
        order: &TrialOrder,
        run_directory: Option<&Path>,
        priority: i32,
    ) -> Result<JobHandle, TrialError> {
        self.submit_with(order, run_directory, TrialTerms { priority, ..TrialTerms::default() }).await
    }

    /// The same under terms of its own.
    ///
    /// # Errors
    /// No node could carry it out, a file cannot be read, or the main node has ended.
    pub async fn submit_with(
        &self,
        order: &TrialOrder,
        run_directory: Option<&Path>,
        terms: TrialTerms,
    ) -> Result<JobHandle, TrialError> {
        order::check(order)?;
        let (service, order, dir) = (self.service.clone(), order.clone(), run_directory.map(Path::to_owned));
        // Files are read to know them by their hash.
        let prepare = move || service.prepare(order, dir.as_deref(), terms);
        let prepared = tokio::task::spawn_blocking(prepare).await;
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
    /// or not at all. It writes files, so tasks of a runtime should not call it themselves.
    ///
    /// # Errors
    /// It is no solution of a trial, or the directory cannot be written; then `into` is as it was.
    pub fn take(&self, solution: &Parcel, into: &Path) -> Result<TrialResult, TrialError> {
        let TrialSolution { search, trial, result } = codec::decode(&solution.bytes)?;
        let mut bundle = Bundle::of_parcel(solution)?;
        if !bundle.is_empty() {
            if let Some(text) = bundle.file(RUN_FILE) {
                let text = String::from_utf8_lossy(text).into_owned();
                let layers = bundle.file(LAYERS).map(|_| at_key("model.toml", &into.join(LAYERS)));
                let file = RunFile::parse(&into.join(RUN_FILE), &text, layers.as_slice())?;
                bundle.set(RUN_FILE, file.resolved.to_toml());
            }
            // What people noted meanwhile is not a node's to change.
            if let Ok(notes) = std::fs::read(into.join(ANNOTATIONS)) {
                bundle.set(ANNOTATIONS, notes);
            }
            bundle.replace(into)?;
        }
        self.service.end(&(search, trial));
        Ok(result)
    }

    /// Updates of all trials of this main node from now on.
    pub fn updates(&self) -> TrialUpdates {
        TrialUpdates(self.service.updates())
    }
}
