//! References to solutions that stay at the nodes that made them.

use super::main_node::{MainError, MainNode};
use phalanx_types::{JobId, Parcel};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The solution of a job that was submitted with [`MainNode::submit_kept`].
///
/// Clones are the same reference. When the last one is dropped, and all jobs that take the solution have ended, its
/// nodes free it.
#[derive(Debug, Clone)]
pub struct SolutionRef {
    node: MainNode,
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    job: JobId,
    releases: mpsc::UnboundedSender<JobId>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A main node that has ended has left its nodes, which frees everything.
        let _ended = self.releases.send(self.job);
    }
}

impl SolutionRef {
    pub(super) fn new(node: &MainNode, job: JobId) -> Self {
        let handle = Arc::new(Handle { job, releases: node.releases().clone() });
        Self { node: node.clone(), handle }
    }

    /// The job whose solution it is.
    pub fn job(&self) -> JobId {
        self.handle.job
    }

    pub(super) fn is_of(&self, node: &MainNode) -> bool {
        self.handle.releases.same_channel(node.releases())
    }

    /// Fetches the solution, once it is there. If the nodes that held it are lost, its job makes it again.
    ///
    /// # Errors
    /// The job was not solved, its solution cannot be made again, or the main node has ended.
    pub async fn fetch(&self) -> Result<Parcel, MainError> {
        self.node.fetch(self.job()).await?.map_err(MainError::NoSolution)
    }
}
