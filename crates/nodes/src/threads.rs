//! Nodes that are threads of this process.

use crate::background::Background;
use crate::error::NodesError;
use crate::node::{Node, NodeOptions, machine};
use phalanx_fabric::{FabricConfig, NodeKind};
use phalanx_jobs::{Handlers, NodeError, Stopper};
use phalanx_rank::DataRoots;
use phalanx_train::Losses;
use phalanx_types::{ByteSize, DomainName, Resources};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use tokio::task::JoinHandle;

/// Which nodes to start in this process.
#[derive(Debug, Clone)]
pub struct ThreadSpec {
    /// The domain that they join, over loopback.
    pub domain: DomainName,
    /// How many.
    pub count: usize,
    /// How many cores each has; the machine's are shared out among them when not given.
    pub cores: Option<u32>,
    /// Losses of the user's own that they have.
    pub losses: Losses,
    /// Files and folders of this process's own runs, which they open in place.
    pub run_files: Vec<PathBuf>,
}

impl ThreadSpec {
    /// This many nodes that share the machine.
    pub fn new(domain: DomainName, count: usize) -> Self {
        Self { domain, count, cores: None, losses: Losses::new(), run_files: Vec::new() }
    }
}

/// Nodes of this process, each with a runtime on a thread of its own, until this value is dropped.
#[derive(Debug)]
pub struct ThreadNodes {
    nodes: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    stopper: Stopper,
    work: JoinHandle<Result<(), NodeError>>,
    background: Background,
}

impl ThreadNodes {
    /// Starts nodes; each solves jobs with handlers that `handlers` makes for it.
    ///
    /// # Errors
    /// A node cannot start; those before it stop.
    pub fn start(spec: &ThreadSpec, handlers: impl Fn() -> Handlers) -> Result<Self, NodesError> {
        let mut nodes = Self { nodes: Vec::new() };
        let whole = machine();
        let count = u32::try_from(spec.count.max(1)).unwrap_or(u32::MAX);
        let cores = spec.cores.unwrap_or_else(|| (whole.cores / count).max(1));
        let options =
            NodeOptions { losses: spec.losses.clone(), data_roots: DataRoots::of_driver(&spec.run_files) };
        for number in 1..=spec.count {
            let background = Background::start(&format!("node n{number}"))?;
            let mut config =
                FabricConfig::new(spec.domain.clone(), format!("n{number}"), NodeKind::Computing);
            config.bind = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            config.mdns = false;
            let memory = ByteSize(whole.memory.0 / u64::from(count));
            config.resources = Resources { cores, memory, ..whole.clone() };
            let node = background.block_on(Node::start_as(config, handlers(), options.clone()))?;
            let stopper = node.stopper();
            let work = background.handle().spawn(node.run());
            nodes.nodes.push(Running { stopper, work, background });
        }
        Ok(nodes)
    }
}

impl Drop for ThreadNodes {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.stopper.stop_now();
        }
        for Running { work, background, .. } in self.nodes.drain(..) {
            match background.block_on(work) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a node of this process ended early"),
                Err(error) => tracing::warn!(%error, "a node of this process panicked"),
            }
        }
    }
}
