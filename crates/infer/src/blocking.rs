//! An edge node for programs without a runtime.

use crate::edge::{EdgeNode, InferenceHandle};
use crate::error::InferError;
use phalanx_fabric::FabricConfig;
use phalanx_nodes::Background;
use phalanx_types::{NodeId, Parcel};
use std::collections::BTreeMap;
use std::time::Duration;

/// An [`EdgeNode`] on a thread of its own, whose calls block. Not for use inside a runtime.
#[derive(Debug)]
pub struct BlockingEdgeNode {
    node: EdgeNode,
    background: Background,
}

impl BlockingEdgeNode {
    /// Joins a domain.
    ///
    /// # Errors
    /// There is no thread to be had, or the domain cannot be joined.
    pub fn start(config: FabricConfig) -> Result<Self, InferError> {
        let background = Background::start("edge").map_err(InferError::Runtime)?;
        let node = background.block_on(EdgeNode::start(config))?;
        Ok(Self { node, background })
    }

    /// Requests without an answer after this long fail; otherwise they wait for a node.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.node = self.node.clone().deadline(deadline);
        self
    }

    /// Its id: its name and digits.
    pub fn id(&self) -> &NodeId {
        self.node.id()
    }

    /// The models that are served now, and by which nodes.
    pub fn models(&self) -> BTreeMap<String, Vec<NodeId>> {
        self.node.models()
    }

    /// Asks a model for its outputs, and waits for them; as [`EdgeNode::request_inference`].
    ///
    /// # Errors
    /// No node serves the model, the inputs are not what it takes, or the request ended without an answer.
    pub fn request_inference(&self, model: &str, inputs: Parcel) -> Result<Parcel, InferError> {
        self.background.block_on(self.node.request_inference(model, inputs))
    }

    /// Sends a request; [`BlockingEdgeNode::wait`] gives its answer.
    ///
    /// # Errors
    /// No node serves the model, or this node has ended.
    pub fn submit(&self, model: &str, inputs: Parcel) -> Result<InferenceHandle, InferError> {
        self.background.block_on(self.node.submit(model, inputs))
    }

    /// Waits for the answer to a request.
    ///
    /// # Errors
    /// As [`InferenceHandle::answer`].
    pub fn wait(&self, request: InferenceHandle) -> Result<Parcel, InferError> {
        self.background.block_on(request.answer())
    }
}

impl Drop for BlockingEdgeNode {
    fn drop(&mut self) {
        self.background.block_on(self.node.shutdown());
    }
}
