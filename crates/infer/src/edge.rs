//! A node that asks models for their outputs.

use crate::error::InferError;
use phalanx_fabric::{Fabric, FabricConfig, NodeKind, NodeStatus};
use phalanx_jobs::{JobHandle, JobSpec, MainNode, MainOptions, Outcome};
use phalanx_types::{JobId, NodeId, Parcel, nearest};
use phalanx_wire::infer::{job_kind, model_of};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long to look for a node that serves a model before it is unknown.
const PATIENCE: Duration = Duration::from_secs(2);

/// A node that asks models for their outputs. Cheap to clone; all clones are the same node.
///
/// A request is a job: any node that serves the model may answer, one that dies is replaced, and the answer comes once.
#[derive(Debug, Clone)]
pub struct EdgeNode {
    main: MainNode,
    patience: Duration,
    deadline: Option<Duration>,
    /// Models that some node served once: requests to them wait for nodes like any job.
    known: Arc<Mutex<BTreeSet<SmolStr>>>,
}

/// A request that was sent: wait for its answer.
#[derive(Debug)]
pub struct InferenceHandle {
    model: String,
    job: JobHandle,
}

impl InferenceHandle {
    /// Its number at this edge node.
    pub fn id(&self) -> JobId {
        self.job.id()
    }

    /// The outputs.
    ///
    /// # Errors
    /// The inputs are not what the model takes, or the request ended without an answer.
    pub async fn answer(self) -> Result<Parcel, InferError> {
        let model = self.model;
        match self.job.await? {
            Outcome::Solved(outputs) => Ok(outputs),
            Outcome::Failed(reason) => Err(InferError::Failed { model, reason }),
            Outcome::Kept { .. } | Outcome::Cancelled => Err(InferError::Cancelled { model }),
            Outcome::Expired => Err(InferError::Expired { model }),
        }
    }
}

impl EdgeNode {
    /// Joins a domain.
    ///
    /// # Errors
    /// The domain cannot be joined.
    pub async fn start(mut config: FabricConfig) -> Result<Self, InferError> {
        config.kind = NodeKind::Edge;
        let main = MainNode::start(config, MainOptions::default()).await?;
        Ok(Self { main, patience: PATIENCE, deadline: None, known: Arc::default() })
    }

    /// How long to look for a node that serves a model before it is unknown; 2 s if not said.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Requests without an answer after this long fail; otherwise they wait for a node.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Its id: its name and digits.
    pub fn id(&self) -> &NodeId {
        self.main.id()
    }

    /// Its links to the rest of the domain.
    pub fn fabric(&self) -> &Fabric {
        self.main.fabric()
    }

    /// The models that are served now, and by which nodes.
    pub fn models(&self) -> BTreeMap<String, Vec<NodeId>> {
        let mut models: BTreeMap<String, Vec<NodeId>> = BTreeMap::new();
        for status in self.fabric().nodes().iter().filter(|status| serves(status)) {
            for model in status.handles.iter().filter_map(|kind| model_of(kind)) {
                models.entry(model.to_owned()).or_default().push(status.id.clone());
            }
        }
        models
    }

    /// Asks a model for its outputs, and waits for them. Inputs are tensors named as the model names them, samples
    /// along the first axis; so are the outputs.
    ///
    /// # Errors
    /// No node serves the model, the inputs are not what it takes, or the request ended without an answer.
    pub async fn request_inference(&self, model: &str, inputs: Parcel) -> Result<Parcel, InferError> {
        self.submit(model, inputs).await?.answer().await
    }

    /// Sends a request, and does not wait for the answer.
    ///
    /// # Errors
    /// No node serves the model, or this node has ended.
    pub async fn submit(&self, model: &str, inputs: Parcel) -> Result<InferenceHandle, InferError> {
        let kind = job_kind(model);
        self.find(model, &kind).await?;
        let spec = JobSpec { deadline: self.deadline, ..JobSpec::new(kind, inputs) };
        let job = self.main.submit(spec).await?;
        Ok(InferenceHandle { model: model.to_owned(), job })
    }

    /// Leaves the domain.
    pub async fn shutdown(&self) {
        self.main.shutdown().await;
    }

    /// Waits until some node serves the model, but no longer than the patience.
    async fn find(&self, model: &str, kind: &SmolStr) -> Result<(), InferError> {
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(kind) {
            return Ok(());
        }
        let appears = async {
            let mut changes = self.fabric().watch();
            let serves_it = |s: &NodeStatus| serves(s) && s.handles.contains(kind);
            while !self.fabric().nodes().iter().any(serves_it) {
                if changes.next().await.is_none() {
                    break;
                }
            }
        };
        if tokio::time::timeout(self.patience, appears).await.is_err() {
            let served: Vec<String> = self.models().into_keys().collect();
            let nearest = nearest(model, served.iter().map(String::as_str)).map(str::to_owned);
            return Err(InferError::UnknownModel { model: model.to_owned(), served, nearest });
        }
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(kind.clone());
        Ok(())
    }
}

fn serves(status: &NodeStatus) -> bool {
    status.kind.solves() && status.state.is_live()
}
