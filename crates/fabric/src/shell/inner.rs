//! The state that all tasks of one node share.

use super::bulk::{BlobStore, BufferPool};
use super::link::{Channels, Link, LinkTable};
use super::refusal::{ConnError, RefusalStats};
use super::requests::Services;
use super::topics::Topics;
use super::watch::NodeTable;
use super::{lock, relay};
use crate::core::{Event, LinkOffer};
use crate::security::{DomainToken, RelayToken, TlsContext};
use phalanx_types::{DomainName, Incarnation, NodeId, Time, with_causes};
use phalanx_wire::handshake::Refusal;
use phalanx_wire::node::{NodeKind, NodeStatus, PeerAddr};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// Why a dial failed.
#[derive(Debug)]
pub(crate) struct DialTrouble {
    pub(crate) name: &'static str,
    pub(crate) reason: String,
    pub(crate) refused: bool,
}

/// How members prove to each other that they are members.
pub(crate) enum Security {
    Token(DomainToken),
    Key(Box<Keyed>),
}

pub(crate) struct Keyed {
    pub(crate) tls: TlsContext,
    pub(crate) relay_token: RelayToken,
}

/// The inputs of the core's driver.
pub(crate) enum Incoming {
    /// The initial events, fed together so that membership does not look settled in between.
    Begin(Vec<Event>),
    Core(Event),
    Offer {
        offer: LinkOffer,
        link: Arc<Link>,
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    Stop(oneshot::Sender<()>),
}

pub(crate) struct Inner {
    pub(crate) domain: DomainName,
    pub(crate) id: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) kind: NodeKind,
    pub(crate) address: SocketAddr,
    pub(crate) addresses: Vec<PeerAddr>,
    pub(crate) heartbeat: Duration,
    pub(crate) security: Security,
    pub(crate) origin: Instant,
    pub(crate) events: mpsc::Sender<Incoming>,
    pub(crate) own: Mutex<NodeStatus>,
    pub(crate) own_changed: Notify,
    pub(crate) nodes: NodeTable,
    pub(crate) links: LinkTable,
    pub(crate) channels: Channels,
    pub(crate) services: Services,
    pub(crate) topics: Topics,
    pub(crate) blobs: BlobStore,
    pub(crate) pool: BufferPool,
    pub(crate) refusals: RefusalStats,
    pub(crate) settled: watch::Sender<bool>,
    pub(crate) stop: watch::Sender<bool>,
    /// Every task holds a clone; the receiver ends when the last one is dropped.
    pub(crate) alive: Mutex<Option<mpsc::Sender<()>>>,
    pub(crate) ended: tokio::sync::Mutex<mpsc::Receiver<()>>,
    pub(crate) counter: AtomicU64,
    /// Why the last dial of each target failed that was not reached since.
    pub(crate) unreached: Mutex<BTreeMap<String, DialTrouble>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric").field("id", &self.id).field("address", &self.address).finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    pub(crate) fn heartbeat_ms(&self) -> u32 {
        u32::try_from(self.heartbeat.as_millis()).unwrap_or(u32::MAX)
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Runs a task until it ends or the node stops.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut stop = self.stop.subscribe();
        self.spawn_to_end(async move {
            tokio::select! {
                _ = stop.wait_for(|stopped| *stopped) => {}
                () = work => {}
            }
        });
    }

    /// Runs a task that ends by itself soon after the node stops.
    pub(crate) fn spawn_to_end(&self, work: impl Future<Output = ()> + Send + 'static) {
        let Some(guard) = lock(&self.alive).clone() else { return };
        tokio::spawn(async move {
            work.await;
            drop(guard);
        });
    }

    /// Sends an event to the driver; there is no receiver once the node has stopped.
    pub(crate) async fn tell(&self, event: Event) {
        if self.events.send(Incoming::Core(event)).await.is_err() {
            tracing::debug!("an event came after the node had stopped");
        }
    }

    /// Counts and logs a member that broke the protocol.
    pub(crate) fn misbehaved(&self, from: &dyn fmt::Display, error: &ConnError) {
        self.refusals.count(error.name());
        tracing::warn!(%from, reason = error.name(), %error, "connection refused");
    }

    /// Counts and logs a connection that failed.
    pub(crate) fn refused(&self, from: &dyn fmt::Display, error: &ConnError) {
        self.refusals.count(error.name());
        if error.is_ordinary() {
            tracing::debug!(%from, reason = error.name(), %error, "connection ended");
        } else if self.refusals.is_worth_a_warning(error.name(), Instant::now()) {
            tracing::warn!(%from, reason = error.name(), %error, "connection refused");
        } else {
            tracing::debug!(%from, reason = error.name(), %error, "connection refused again");
        }
    }

    /// Counts a failed dial; logs it unless it was logged for the same reason before.
    pub(crate) fn dial_failed(&self, target: &dyn fmt::Display, error: &ConnError) {
        self.refusals.count(error.name());
        let trouble =
            DialTrouble { name: error.name(), reason: with_causes(error), refused: error.is_refusal() };
        let before = lock(&self.unreached).insert(target.to_string(), trouble);
        if before.is_some_and(|before| before.name == error.name()) || error.is_ordinary() {
            tracing::debug!(%target, reason = error.name(), %error, "dial failed again");
        } else if error.is_refusal() {
            tracing::warn!(%target, reason = error.name(), %error, "a node that was dialed refused, or is refused");
        } else {
            tracing::info!(%target, reason = error.name(), %error, "dial failed");
        }
    }

    pub(crate) fn dial_worked(&self, target: &dyn fmt::Display) {
        lock(&self.unreached).remove(&target.to_string());
    }

    /// Connects to a node by a route.
    pub(crate) async fn connect(&self, route: &Route) -> Result<TcpStream, ConnError> {
        match route {
            Route::Tcp(addr) => Ok(TcpStream::connect(addr).await?),
            Route::Relay { relay, to } => relay::dial(self, relay, to).await,
        }
    }
}

/// How a link was reached; its further connections use the same route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Tcp(SocketAddr),
    Relay { relay: smol_str::SmolStr, to: NodeId },
}
