//! Nodes: embed one in a program, start several on this machine, join a domain.
//!
//! A [`Node`] solves jobs, takes part in runs of its domain and can be measured, all inside the program that starts
//! it. [`ThreadNodes`] are several on threads of their own; [`LocalNodes`] are processes of a program that has `node`
//! as a command, which [`node_program`] finds.
//!
//! ```no_run
//! use phalanx::jobs::builtin;
//! use phalanx::nodes::{Domain, Node, NodeKind, machine};
//!
//! # async fn embed() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = Domain::new("lab")?.key_file("lab.key")?.fabric("mine", NodeKind::Computing);
//! config.resources = machine();
//! let node = Node::start(config, builtin::handlers()).await?;
//! node.run().await?;
//! # Ok(())
//! # }
//! ```

pub use phalanx_fabric::{
    DomainKey, Fabric, FabricConfig, KeyError, NodeEvent, NodeKind, NodeState, NodeStatus, NodeWatch, Relay,
    RelayConfig, RelayError, RelayToken, StartError,
};
pub use phalanx_jobs::{NodeError, Stopper};
pub use phalanx_nodes::{
    Background, LocalNodes, LocalSpec, NODE_PROGRAM, Node, NodesError, Program, ThreadNodes, ThreadSpec,
    machine, node_program, private_domain,
};
pub use phalanx_types::{ByteSize, DomainName, NodeId, Resources};

use crate::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which domain, and how to reach it.
#[derive(Debug, Clone)]
pub struct Domain {
    name: DomainName,
    key: Option<(DomainKey, PathBuf)>,
    connect: Vec<String>,
    relays: Vec<String>,
    bind: Option<SocketAddr>,
    heartbeat: Option<Duration>,
}

impl Domain {
    /// A domain without a key: nodes of this user on this host.
    ///
    /// # Errors
    /// No domain can be called so.
    pub fn new(name: &str) -> Result<Self, Error> {
        Ok(Self::named(DomainName::new(name)?))
    }

    /// The same of a name that was checked.
    pub fn named(name: DomainName) -> Self {
        Self { name, key: None, connect: Vec::new(), relays: Vec::new(), bind: None, heartbeat: None }
    }

    /// Uses the key that `phalanx domain new` made; nodes then listen on every interface.
    ///
    /// # Errors
    /// The file holds no key.
    pub fn key_file(mut self, path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        self.key = Some((DomainKey::load(path)?, path.to_owned()));
        Ok(self)
    }

    /// Names a member, as `host:port`; the others are learned from it.
    #[must_use]
    pub fn connect(mut self, member: impl Into<String>) -> Self {
        self.connect.push(member.into());
        self
    }

    /// Names a relay, as `host:port`, to meet nodes of other networks at. One node of each network is enough: the
    /// others take it over from that node.
    #[must_use]
    pub fn relay(mut self, relay: impl Into<String>) -> Self {
        self.relays.push(relay.into());
        self
    }

    /// Listens at this address.
    #[must_use]
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.bind = Some(address);
        self
    }

    /// A node that is silent for longer than this is lost.
    #[must_use]
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// What it is called.
    pub fn name(&self) -> &DomainName {
        &self.name
    }

    /// The file of its key, if it has one.
    pub fn key_path(&self) -> Option<&Path> {
        self.key.as_ref().map(|(_, path)| path.as_path())
    }

    /// How a node of this name and kind joins it.
    pub fn fabric(&self, name: &str, kind: NodeKind) -> FabricConfig {
        let mut config = FabricConfig::new(self.name.clone(), name, kind);
        config.key = self.key.as_ref().map(|(key, _)| key.clone());
        config.connect.clone_from(&self.connect);
        config.relays.clone_from(&self.relays);
        config.bind = self.bind;
        config.heartbeat = self.heartbeat.unwrap_or(config.heartbeat);
        config
    }
}
