//! A node that serves models.

use crate::error::ServeError;
use crate::served::{DEFAULT_MAX_BATCH, ServedModel};
use phalanx_fabric::{Fabric, FabricConfig, NodeKind};
use phalanx_jobs::{ComputingNode, Handler, Handlers, NodeError, Stopper};
use phalanx_train::{LoadOptions, TrainedModel};
use phalanx_types::NodeId;
use phalanx_wire::infer::job_kind;
use std::path::Path;

/// The longest name of a model.
const MAX_NAME: usize = 64;

/// What a node serves: models and functions by name.
#[derive(Debug, Clone)]
pub struct Serving {
    handlers: Handlers,
    max_batch: usize,
}

impl Default for Serving {
    fn default() -> Self {
        Self::beside(Handlers::new())
    }
}

impl Serving {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves beside solving other jobs with these handlers.
    pub fn beside(handlers: Handlers) -> Self {
        Self { handlers, max_batch: DEFAULT_MAX_BATCH }
    }

    /// The largest batch of models that are added from now on.
    #[must_use]
    pub fn max_batch(mut self, samples: usize) -> Self {
        self.max_batch = samples;
        self
    }

    /// Serves a function: it gets each request as a job, with the inputs as its payload, and gives the outputs.
    ///
    /// # Errors
    /// No model can be called so, or one is already.
    pub fn function(mut self, name: &str, answers: impl Handler + 'static) -> Result<Self, ServeError> {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(known) {
            return Err(ServeError::Name { name: name.to_owned() });
        }
        let kind = job_kind(name);
        if self.handlers.kinds().any(|known| *known == kind) {
            return Err(ServeError::Twice { name: name.to_owned() });
        }
        self.handlers = self.handlers.with(kind, answers);
        Ok(self)
    }

    /// Serves a trained model.
    ///
    /// # Errors
    /// No model can be called so, one is already, or it cannot be computed.
    pub fn model(self, name: &str, model: TrainedModel) -> Result<Self, ServeError> {
        let served = ServedModel::new(name, model)?.max_batch(self.max_batch);
        self.function(name, served)
    }

    /// Serves the model of a run directory, a checkpoint in one, or a file.
    ///
    /// # Errors
    /// It cannot be loaded, or served under this name.
    pub fn load(self, name: &str, path: &Path, options: LoadOptions) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Load { name: name.to_owned(), source: Box::new(source) };
        let model = TrainedModel::load(path, options).map_err(failed)?;
        self.model(name, model)
    }

    /// The handlers of all that is served, for a node of another kind.
    pub fn into_handlers(self) -> Handlers {
        self.handlers
    }
}

/// A node that serves models to the edge nodes of its domain.
#[derive(Debug)]
pub struct InferenceNode {
    jobs: ComputingNode,
}

impl InferenceNode {
    /// Joins a domain. Nothing is answered before [`InferenceNode::run`] or [`InferenceNode::process_one`].
    ///
    /// # Errors
    /// The domain cannot be joined.
    pub async fn start(mut config: FabricConfig, serving: Serving) -> Result<Self, ServeError> {
        config.kind = NodeKind::Inference;
        Ok(Self { jobs: ComputingNode::start(config, serving.into_handlers()).await? })
    }

    /// Its id: its name and digits.
    pub fn id(&self) -> &NodeId {
        self.jobs.id()
    }

    /// Its links to the rest of the domain.
    pub fn fabric(&self) -> &Fabric {
        self.jobs.fabric()
    }

    /// Tells it to stop, from anywhere.
    pub fn stopper(&self) -> Stopper {
        self.jobs.stopper()
    }

    /// Answers requests until it is told to stop, then leaves the domain.
    ///
    /// # Errors
    /// The node cannot go on; its requests go to other nodes.
    pub async fn run(self) -> Result<(), NodeError> {
        self.jobs.run().await
    }

    /// Answers exactly one request, and returns when the edge node has the outputs.
    ///
    /// # Errors
    /// The node cannot go on; the request goes to another node.
    pub async fn process_one(&mut self) -> Result<(), NodeError> {
        self.jobs.solve_one().await
    }

    /// Leaves the domain.
    pub async fn shutdown(self) {
        self.jobs.shutdown().await;
    }
}
