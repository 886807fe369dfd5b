//! From a handler, which may block, to the main node over the fabric, which must not.

use crate::bundle::{Bundle, bytes_of};
use crate::encode;
use bytes::Bytes;
use phalanx_fabric::Fabric;
use phalanx_rank::FileProblem;
use phalanx_types::{NodeId, Parcel};
use phalanx_wire::codec;
use phalanx_wire::trial::{
    FromTrials, SavedFiles, TRIAL_SERVICE, ToTrials, TrialFile, TrialOrder, TrialReport,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// How long a main node may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to fetch a run directory.
const LONG_PATIENCE: Duration = Duration::from_secs(120);

/// What a node has to reach main nodes.
#[derive(Debug)]
pub(crate) struct Link {
    fabric: Fabric,
    runtime: Handle,
}

impl Link {
    /// Called on the runtime of the node.
    pub(crate) fn new(fabric: Fabric) -> Self {
        Self { fabric, runtime: Handle::current() }
    }

    /// Fetches a file from the main node that has named it.
    pub(crate) fn fetch(&self, main: &NodeId, file: &TrialFile) -> Result<Bytes, FileProblem> {
        let problem = |detail: String| FileProblem::Fetch { from: main.clone(), detail };
        self.runtime.block_on(async {
            let ask = ToTrials::File { sha256: file.sha256 };
            let reply = request(&self.fabric, main, &ask, PATIENCE).await.map_err(problem)?;
            let FromTrials::File { blob, bytes } = reply else {
                return Err(problem("it does not offer the file".to_owned()));
            };
            if bytes != file.bytes {
                return Err(FileProblem::OtherBytes);
            }
            let peer = self.fabric.peer(main).ok_or_else(|| problem("there is no link".to_owned()))?;
            self.fabric.fetch(&peer, blob, bytes).await.map_err(|error| problem(error.to_string()))
        })
    }

    /// The run directory that nodes before this one have saved, if any.
    pub(crate) fn newest(&self, main: &NodeId, order: &TrialOrder) -> Result<Option<Bundle>, String> {
        let TrialOrder { search, trial, attempt, .. } = order;
        let ask = ToTrials::Newest { search: search.clone(), trial: *trial, attempt: *attempt };
        self.runtime.block_on(async {
            let reply = request(&self.fabric, main, &ask, PATIENCE).await?;
            let FromTrials::Newest(SavedFiles { head, blob }) = reply else { return Ok(None) };
            let len = bytes_of(&head).ok_or("too many or too large files")?;
            let peer = self.fabric.peer(main).ok_or("there is no link")?;
            let body = self.fabric.fetch(&peer, blob, len).await.map_err(|error| error.to_string())?;
            let parcel = Parcel::from_parts(head, body).map_err(|error| error.to_string())?;
            Bundle::of_parcel(&parcel).map(Some).map_err(|error| error.to_string())
        })
    }

    /// Reports of one trial, which reach the main node in order.
    pub(crate) fn reports(&self, main: NodeId, order: &TrialOrder) -> Reports {
        let (sender, mut reports) = mpsc::unbounded_channel();
        let (fabric, own) = (self.fabric.clone(), Reports::new(order, Some(sender)));
        let saving = own.saving.clone();
        self.runtime.spawn(async move {
            while let Some(told) = reports.recv().await {
                let is_save = matches!(told, Told::Saved(..));
                if let Err(detail) = tell(&fabric, &main, told).await {
                    // What counts is in the result.
                    tracing::debug!(%main, %detail, "the main node was not told how far a trial is");
                }
                if is_save {
                    saving.store(false, Ordering::Release);
                }
            }
        });
        own
    }
}

async fn request(
    fabric: &Fabric,
    main: &NodeId,
    ask: &ToTrials,
    patience: Duration,
) -> Result<FromTrials, String> {
    let body = encode(ask).map_err(|error| error.to_string())?;
    let reply = fabric.request(main, TRIAL_SERVICE, body, patience).await;
    codec::decode(&reply.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

/// What a trial has to say on its way.
#[derive(Debug)]
enum Told {
    Report(TrialReport),
    Saved(TrialReport, Parcel),
}

async fn tell(fabric: &Fabric, main: &NodeId, told: Told) -> Result<(), String> {
    match told {
        Told::Report(report) => request(fabric, main, &ToTrials::Report(report), PATIENCE).await.map(drop),
        Told::Saved(report, parcel) => {
            let head = parcel.head();
            let blob = fabric.hold(parcel);
            let saved = ToTrials::Saved { report, files: SavedFiles { head, blob } };
            let taken = request(fabric, main, &saved, LONG_PATIENCE).await;
            fabric.release(blob);
            taken.map(drop)
        }
    }
}

/// Where a trial says how far it is.
#[derive(Debug)]
pub(crate) struct Reports {
    search: String,
    trial: u64,
    attempt: u32,
    to: Option<mpsc::UnboundedSender<Told>>,
    /// A run directory is on its way.
    saving: Arc<AtomicBool>,
}

impl Reports {
    fn new(order: &TrialOrder, to: Option<mpsc::UnboundedSender<Told>>) -> Self {
        let TrialOrder { search, trial, attempt, .. } = order;
        Self { search: search.clone(), trial: *trial, attempt: *attempt, to, saving: Arc::default() }
    }

    /// Reports that nobody hears.
    pub(crate) fn unheard(order: &TrialOrder) -> Self {
        Self::new(order, None)
    }

    pub(crate) fn say(&self, budget: f64, values: BTreeMap<String, f64>) {
        self.tell(Told::Report(self.report(budget, values)));
    }

    /// Whether a run directory can be sent now: somebody hears, and none is on its way.
    pub(crate) fn can_save(&self) -> bool {
        self.to.is_some() && !self.saving.load(Ordering::Acquire)
    }

    /// Sends the run directory, from which another node can go on.
    pub(crate) fn save(&self, budget: f64, files: Parcel) {
        self.saving.store(true, Ordering::Release);
        self.tell(Told::Saved(self.report(budget, BTreeMap::new()), files));
    }

    fn report(&self, budget: f64, values: BTreeMap<String, f64>) -> TrialReport {
        let Self { search, trial, attempt, .. } = self;
        TrialReport { search: search.clone(), trial: *trial, attempt: *attempt, budget, values }
    }

    fn tell(&self, told: Told) {
        if let Some(to) = &self.to {
            // A node that leaves tells nobody any more.
            let _sent = to.send(told);
        }
    }
}
