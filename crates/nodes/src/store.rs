//! A store inside a node: its memory is charged to the node, and the domain learns where it is.

use crate::node::Node;
use phalanx_account::{ClaimGuard, Holder, Shortage};
use phalanx_fabric::{DomainKey, Fabric, KeyError, NodeStatus, service_names};
use phalanx_store::{
    Durability, ModelRunner, PeerAccess, Server, ServerConfig, ServerTls, ShardConfig, ShardMember,
    ShardMembers, ShardPlace, StartError,
};
use phalanx_types::{ByteSize, Class, Needs, NodeId};
use phalanx_wire::node::{PeerAddr, StoreOffer};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// How long to look for another store of the domain before this one is opened.
const LOOKING: Duration = Duration::from_secs(2);
/// A store takes this part of the node's memory when no size is given.
const DEFAULT_PART: u64 = 4;

/// How a node serves a store.
#[derive(Clone, Default)]
pub struct NodeStoreSpec {
    /// Where clients reach it; on the addresses of the node, at any free port, when not given.
    pub bind: Option<SocketAddr>,
    /// The most that it may hold; a quarter of the node's memory when not given.
    pub memory: Option<ByteSize>,
    /// The key of the domain, if it has one: with it other hosts can use the store.
    pub key: Option<DomainKey>,
    /// What clients without the key must give.
    pub password: Option<String>,
    /// Which part of the domain's store it is, when several nodes share it.
    pub shard: Option<ShardPlace>,
    /// What runs models.
    pub runner: Option<Arc<dyn ModelRunner>>,
    /// A directory in which everything is kept, so that it is there after a restart.
    pub persist: Option<PathBuf>,
    /// When a write is acknowledged that is kept.
    pub durability: Durability,
    /// A directory for large values that memory has no room for.
    pub spill: Option<PathBuf>,
    /// How much they may take; as much as the disk has when 0.
    pub spill_limit: ByteSize,
}

impl std::fmt::Debug for NodeStoreSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the password.
        f.debug_struct("NodeStoreSpec")
            .field("bind", &self.bind)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// Why a node could not serve a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeStoreError {
    #[error("the store does not fit on the node: {0}")]
    Memory(Box<Shortage>),
    #[error("node {node} serves part {place} of the store of this domain already")]
    Taken { node: NodeId, place: ShardPlace },
    #[error("the store of this domain has {parts} parts, as node {node} says, not {wanted}")]
    OtherParts { node: NodeId, parts: u16, wanted: u16 },
    #[error("could not make a certificate for the store")]
    Key(#[from] KeyError),
    #[error(transparent)]
    Start(#[from] StartError),
}

impl NodeStoreError {
    pub fn class(&self) -> Class {
        match self {
            Self::Start(error) => error.class(),
            Self::Memory(_) | Self::Taken { .. } | Self::OtherParts { .. } | Self::Key(_) => Class::Fatal,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Memory(_) => Some("give less with --store-memory, or more to the node with --memory"),
            Self::Taken { .. } | Self::OtherParts { .. } => Some(
                "nodes share a store when each has a part of its own: --store-shard 1/3, 2/3 and 3/3 on three nodes",
            ),
            Self::Key(_) => None,
            Self::Start(error) => error.hint(),
        }
    }
}

/// The store of a node. Dropping it ends it.
#[derive(Debug)]
pub struct NodeStore {
    server: Server,
    address: SocketAddr,
    fabric: Fabric,
    _memory: ClaimGuard,
    /// Follows the other nodes that share the store.
    following: Option<AbortHandle>,
}

impl Node {
    /// Serves a store as a part of this node, and tells the domain.
    ///
    /// # Errors
    /// Another node serves it, it does not fit, or its address cannot be used.
    pub async fn serve_store(&self, spec: NodeStoreSpec) -> Result<NodeStore, NodeStoreError> {
        let (fabric, account) = (self.fabric(), self.account());
        fabric.settled(LOOKING).await;
        let place = spec.shard.unwrap_or(ShardPlace::WHOLE);
        let nodes = fabric.nodes();
        nodes.iter().filter(|node| node.id != *fabric.id()).try_for_each(|node| room_for(place, node))?;
        let memory = spec.memory.unwrap_or(ByteSize(account.capacity().memory.0 / DEFAULT_PART));
        let claim = account
            .try_claim(Holder::Store, Needs { cores: 0, memory })
            .map_err(|shortage| NodeStoreError::Memory(Box::new(shortage)))?;
        let tls = match &spec.key {
            Some(key) => Some(ServerTls::for_members(key.service_tls(fabric.id(), &service_names())?)),
            None => None,
        };
        let config = ServerConfig {
            bind: Some(spec.bind.unwrap_or_else(|| SocketAddr::new(fabric.address().ip(), 0))),
            memory,
            password: spec.password.clone(),
            tls,
            shard: shard_config(fabric, place, spec.key.as_ref(), spec.password.clone())?,
            runner: spec.runner,
            persist: spec.persist,
            durability: spec.durability,
            spill: spec.spill,
            spill_limit: spec.spill_limit,
            ..ServerConfig::default()
        };
        let server = Server::start(config).await?;
        let address = server.address().unwrap_or_else(|| fabric.address());
        let addresses = reachable(fabric, address);
        let offer = StoreOffer { addresses, shard: place.index(), shards: place.count() };
        fabric.update_status(|own| own.store = Some(Box::new(offer)));
        let following = (place.count() > 1).then(|| {
            server.shard_members().set(members(fabric, place));
            tokio::spawn(follow(fabric.clone(), place, server.shard_members())).abort_handle()
        });
        Ok(NodeStore { server, address, fabric: fabric.clone(), _memory: claim, following })
    }
}

/// Whether a store of this part fits beside what another node serves.
fn room_for(place: ShardPlace, node: &NodeStatus) -> Result<(), NodeStoreError> {
    let Some(offer) = node.store.as_ref().filter(|_| node.state.is_live()) else { return Ok(()) };
    if offer.shards != place.count() {
        let (parts, wanted) = (offer.shards, place.count());
        return Err(NodeStoreError::OtherParts { node: node.id.clone(), parts, wanted });
    }
    match offer.shard == place.index() {
        true => Err(NodeStoreError::Taken { node: node.id.clone(), place }),
        false => Ok(()),
    }
}

fn shard_config(
    fabric: &Fabric,
    place: ShardPlace,
    key: Option<&DomainKey>,
    password: Option<String>,
) -> Result<Option<ShardConfig>, NodeStoreError> {
    if place.count() == 1 {
        return Ok(None);
    }
    let tls = key.map(|key| key.member_tls(fabric.id())).transpose()?;
    let access = PeerAccess { tls, password };
    Ok(Some(ShardConfig { place, node: fabric.id().to_string(), access }))
}

/// The nodes that serve parts of the store now.
fn members(fabric: &Fabric, place: ShardPlace) -> Vec<ShardMember> {
    let nodes = fabric.nodes();
    let first = |node: &NodeStatus| Some(*node.store.as_ref()?.addresses.first()?);
    let own = nodes.iter().find(|node| node.id == *fabric.id()).and_then(first);
    let member = |node: &NodeStatus| {
        let offer = node.store.as_ref().filter(|offer| offer.shards == place.count())?;
        let address = first(node)?;
        Some(ShardMember {
            since: node.since_unix_ms,
            node: node.id.to_string(),
            host: address.ip().to_string(),
            port: address.port(),
            is_same_host: own.is_some_and(|own| own.ip() == address.ip()),
            place: ShardPlace::new(offer.shard, offer.shards).ok()?,
        })
    };
    nodes.iter().filter(|node| node.state.is_live()).filter_map(member).collect()
}

/// Tells the server of every change.
async fn follow(fabric: Fabric, place: ShardPlace, server: ShardMembers) {
    let mut watch = fabric.watch();
    while watch.next().await.is_some() {
        server.set(members(&fabric, place));
    }
}

/// The addresses by which other nodes reach a service of this one.
fn reachable(fabric: &Fabric, bound: SocketAddr) -> Vec<SocketAddr> {
    if !bound.ip().is_unspecified() {
        return vec![bound];
    }
    let own = fabric.nodes().into_iter().find(|node| node.id == *fabric.id());
    let addresses = own.map(|own| own.addresses).unwrap_or_default();
    let tcp = addresses.into_iter().filter_map(|address| match address {
        PeerAddr::Tcp(address) => Some(SocketAddr::new(address.ip(), bound.port())),
        PeerAddr::Relay(_) => None,
    });
    tcp.collect()
}

impl NodeStore {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server itself, for clients inside this process.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Tells the domain that it is gone, and ends it.
    pub async fn shutdown(self) {
        self.following.iter().for_each(AbortHandle::abort);
        self.fabric.update_status(|own| own.store = None);
        self.server.shutdown().await;
    }
}
