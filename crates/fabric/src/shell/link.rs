//! One link: the state shared by its tasks and its users.

use super::bulk::Bulk;
use super::inner::Route;
use super::lock;
use super::requests::Pending;
use super::streams::Streams;
use crate::core::LinkKey;
use crate::error::SendError;
use bytes::{Bytes, BytesMut};
use phalanx_types::{Incarnation, NodeId, Time};
use phalanx_wire::frame::{self, FrameKind};
use phalanx_wire::node::{LostReason, NodeKind};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, watch};

/// The most unsent bytes; a peer that reads too slowly is cut off.
const MAX_QUEUED: usize = 64 << 20;
/// Events that a channel's receiver may be behind before the readers wait for it.
const CHANNEL_LEN: usize = 1024;

/// An event on a link, for one kind of frame.
#[derive(Debug, Clone)]
pub enum LinkEvent {
    Up(Peer),
    Frame { link: LinkKey, body: Bytes },
    Down { link: LinkKey, node: NodeId, reason: LostReason, goodbye: bool },
}

/// How a link is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Send what is queued, then close.
    Drain,
    Cut(LostReason),
}

#[derive(Debug)]
struct Outgoing {
    buffer: BytesMut,
    closed: bool,
}

pub(crate) struct Link {
    pub(crate) key: LinkKey,
    /// The number by which both ends identify the link.
    pub(crate) number: u64,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) kind: NodeKind,
    /// The route by which this side reached the other, if this side dialed.
    pub(crate) route: Option<Route>,
    /// This side's address; none through a relay.
    pub(crate) local_ip: Option<IpAddr>,
    /// The other end is most likely a process of this host.
    pub(crate) same_host: bool,
    pub(crate) pending: Pending,
    pub(crate) bulk: Bulk,
    pub(crate) streams: Streams,
    pub(crate) ending: watch::Sender<Option<Ending>>,
    pub(crate) goodbye: AtomicBool,
    pub(crate) wake: Notify,
    out: Mutex<Outgoing>,
    origin: Instant,
    heard: AtomicU64,
    /// The reader waits for a slow user, so the peer is not blamed for silence.
    held_up: AtomicBool,
    sent: AtomicU64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.key, self.node)
    }
}

/// The node at the other end of a new link.
#[derive(Debug, Clone)]
pub(crate) struct LinkPeer {
    pub(crate) number: u64,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) kind: NodeKind,
}

/// The addresses of both ends of a connection that goes through no relay.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    here: IpAddr,
    there: IpAddr,
}

impl Ends {
    pub(crate) fn of(stream: &TcpStream) -> Option<Self> {
        let (here, there) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
        Some(Self { here: here.ip(), there: there.ip() })
    }
}

impl Link {
    pub(crate) fn new(
        key: LinkKey,
        other: LinkPeer,
        route: Option<Route>,
        ends: Option<Ends>,
        origin: Instant,
    ) -> Self {
        let link = Self {
            key,
            number: other.number,
            node: other.node,
            incarnation: other.incarnation,
            kind: other.kind,
            route,
            local_ip: ends.map(|ends| ends.here),
            same_host: ends.is_some_and(|ends| ends.here == ends.there),
            pending: Pending::default(),
            bulk: Bulk::default(),
            streams: Streams::default(),
            ending: watch::Sender::new(None),
            goodbye: AtomicBool::new(false),
            wake: Notify::new(),
            out: Mutex::new(Outgoing { buffer: BytesMut::new(), closed: false }),
            origin,
            heard: AtomicU64::new(0),
            held_up: AtomicBool::new(false),
            sent: AtomicU64::new(0),
        };
        link.mark_heard();
        link.mark_sent();
        link
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    pub(crate) fn mark_heard(&self) {
        self.heard.store(self.now().0, Ordering::Relaxed);
    }

    pub(crate) fn mark_sent(&self) {
        self.sent.store(self.now().0, Ordering::Relaxed);
    }

    pub(crate) fn set_held_up(&self, held_up: bool) {
        self.mark_heard();
        self.held_up.store(held_up, Ordering::Relaxed);
    }

    pub(crate) fn heard(&self) -> Time {
        if self.held_up.load(Ordering::Relaxed) {
            return self.now();
        }
        Time(self.heard.load(Ordering::Relaxed))
    }

    pub(crate) fn sent(&self) -> Time {
        Time(self.sent.load(Ordering::Relaxed))
    }

    pub(crate) fn is_up(&self) -> bool {
        self.ending.borrow().is_none()
    }

    /// Puts a message into the outgoing buffer and wakes the writer.
    pub(crate) fn send<T: Serialize>(&self, kind: FrameKind, message: &T) -> Result<(), SendError> {
        let mut out = lock(&self.out);
        if out.closed {
            return Err(SendError::Closed { node: self.node.clone() });
        }
        frame::put(kind, message, &mut out.buffer)?;
        let queued = out.buffer.len();
        if queued > MAX_QUEUED {
            out.closed = true;
            out.buffer = BytesMut::new();
            drop(out);
            let queued_bytes = queued as u64;
            self.end(Ending::Cut(LostReason::TooSlow { queued_bytes }));
            return Err(SendError::TooSlow { node: self.node.clone(), queued_bytes });
        }
        drop(out);
        self.wake.notify_one();
        Ok(())
    }

    /// Exchanges the outgoing buffer for an empty one.
    pub(crate) fn swap_outgoing(&self, empty: &mut BytesMut) {
        std::mem::swap(&mut lock(&self.out).buffer, empty);
    }

    /// Accepts nothing more to send, while received bytes are still read.
    pub(crate) fn close_outgoing(&self) {
        let mut out = lock(&self.out);
        out.closed = true;
        out.buffer = BytesMut::new();
    }

    /// Ends the link. A cut overrides a drain; the first cut counts.
    pub(crate) fn end(&self, ending: Ending) {
        lock(&self.out).closed = true;
        self.ending.send_if_modified(|present| match (&present, &ending) {
            (None, _) | (Some(Ending::Drain), Ending::Cut(_)) => {
                *present = Some(ending);
                true
            }
            _ => false,
        });
    }
}

/// One link to a peer, for sending.
#[derive(Debug, Clone)]
pub struct Peer(pub(crate) Arc<Link>);

impl Peer {
    pub fn id(&self) -> &NodeId {
        &self.0.node
    }

    pub fn kind(&self) -> NodeKind {
        self.0.kind
    }

    pub fn key(&self) -> LinkKey {
        self.0.key
    }

    /// The incarnation of the peer's process that this link leads to.
    pub fn incarnation(&self) -> Incarnation {
        self.0.incarnation
    }

    /// The address by which the peer reaches this node; none if the link runs through a relay.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.0.local_ip
    }

    /// Queues a message; messages are sent in the order of the calls.
    ///
    /// # Errors
    /// The link is down, the peer is too slow, or the message is too long.
    pub fn send<T: Serialize>(&self, kind: FrameKind, message: &T) -> Result<(), SendError> {
        self.0.send(kind, message)
    }

    /// Cuts the link off; the node counts as lost for this reason until it is back.
    pub fn close(&self, reason: LostReason) {
        self.0.end(Ending::Cut(reason));
    }
}

#[derive(Debug, Default)]
struct Links {
    by_key: BTreeMap<LinkKey, Arc<Link>>,
    by_node: BTreeMap<NodeId, LinkKey>,
}

/// The links that are up.
#[derive(Debug, Default)]
pub(crate) struct LinkTable(Mutex<Links>);

impl LinkTable {
    pub(crate) fn insert(&self, link: Arc<Link>) {
        let mut links = lock(&self.0);
        links.by_node.insert(link.node.clone(), link.key);
        links.by_key.insert(link.key, link);
    }

    pub(crate) fn remove(&self, key: LinkKey) {
        let mut links = lock(&self.0);
        if let Some(link) = links.by_key.remove(&key)
            && links.by_node.get(&link.node) == Some(&key)
        {
            links.by_node.remove(&link.node);
        }
    }

    pub(crate) fn get(&self, key: LinkKey) -> Option<Arc<Link>> {
        lock(&self.0).by_key.get(&key).cloned()
    }

    pub(crate) fn to_node(&self, node: &NodeId) -> Option<Arc<Link>> {
        let links = lock(&self.0);
        links.by_key.get(links.by_node.get(node)?).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Link>> {
        lock(&self.0).by_key.values().cloned().collect()
    }
}

/// The receivers of frames that are not the fabric's own.
#[derive(Debug)]
pub(crate) struct Channels {
    /// In the order of [`USERS`].
    users: Mutex<[Option<mpsc::Sender<LinkEvent>>; USERS.len()]>,
    pub(crate) changed: watch::Sender<()>,
}

/// The kinds of frames that are passed on to the holder of their channel.
pub(crate) const USERS: [FrameKind; 2] = [FrameKind::Jobs, FrameKind::Train];

impl Default for Channels {
    fn default() -> Self {
        Self { users: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl Channels {
    /// Opens the channel of a kind; an earlier receiver of the kind gets nothing more.
    pub(crate) fn open(&self, kind: FrameKind) -> mpsc::Receiver<LinkEvent> {
        let (sender, receiver) = mpsc::channel(CHANNEL_LEN);
        if let Some(user) = USERS.iter().position(|known| *known == kind) {
            lock(&self.users)[user] = Some(sender);
            self.changed.send_replace(());
        }
        receiver
    }

    pub(crate) fn user(&self, user: usize) -> Option<mpsc::Sender<LinkEvent>> {
        lock(&self.users).get(user).cloned().flatten()
    }

    pub(crate) fn close(&self) {
        *lock(&self.users) = Default::default();
    }
}
