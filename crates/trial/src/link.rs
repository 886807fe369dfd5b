//! From a handler, which may block, to the main node over the fabric, which must not.

use crate::client::encode;
use bytes::Bytes;
use phalanx_fabric::Fabric;
use phalanx_rank::FileProblem;
use phalanx_types::NodeId;
use phalanx_wire::codec;
use phalanx_wire::trial::{FromTrials, TRIAL_SERVICE, ToTrials, TrialFile, TrialOrder, TrialReport};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// How long a main node may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

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
            let body = encode(&ToTrials::File { sha256: file.sha256 })
                .map_err(|error| problem(error.to_string()))?;
            let reply = self.fabric.request(main, TRIAL_SERVICE, body, PATIENCE).await;
            let reply = reply.map_err(|error| problem(error.to_string()))?;
            let reply: FromTrials = codec::decode(&reply).map_err(|error| problem(error.to_string()))?;
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

    /// The error where there is no way to a main node.
    pub(crate) fn none(file: &TrialFile) -> FileProblem {
        let not_found = std::io::ErrorKind::NotFound.into();
        FileProblem::Write { path: file.path.clone().into(), source: not_found }
    }

    /// Reports of one trial, which reach the main node in order.
    pub(crate) fn reports(&self, main: NodeId, order: &TrialOrder) -> Reports {
        let (sender, mut reports) = mpsc::unbounded_channel::<Bytes>();
        let fabric = self.fabric.clone();
        self.runtime.spawn(async move {
            while let Some(body) = reports.recv().await {
                if let Err(error) = fabric.request(&main, TRIAL_SERVICE, body, PATIENCE).await {
                    // What counts is in the result.
                    tracing::debug!(%main, %error, "the main node was not told how far a trial is");
                }
            }
        });
        Reports { to: Some(sender), ..Reports::unheard(order) }
    }
}

/// Where a trial says how far it is.
#[derive(Debug)]
pub(crate) struct Reports {
    search: String,
    trial: u64,
    attempt: u32,
    to: Option<mpsc::UnboundedSender<Bytes>>,
}

impl Reports {
    /// Reports that nobody hears.
    pub(crate) fn unheard(order: &TrialOrder) -> Self {
        Self { search: order.search.clone(), trial: order.trial, attempt: order.attempt, to: None }
    }

    pub(crate) fn say(&self, budget: f64, values: BTreeMap<String, f64>) {
        let Some(to) = &self.to else { return };
        let Self { search, trial, attempt, .. } = self;
        let report = TrialReport { search: search.clone(), trial: *trial, attempt: *attempt, budget, values };
        if let Ok(body) = encode(&ToTrials::Report(report)) {
            // A node that leaves tells nobody any more.
            let _sent = to.send(body);
        }
    }
}
