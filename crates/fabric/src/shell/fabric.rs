use super::access::AccessDir;
use super::inner::{DialTrouble, Incoming, Inner, Security};
use super::link::{LinkEvent, Peer};
use super::mdns::Announcer;
use super::streams::{self, StreamKey, StreamSocket};
use super::topics::{MAX_PUBLISHED, Subscription};
use super::watch::NodeWatch;
use super::{bulk, lock, requests, start};
use crate::config::FabricConfig;
use crate::core::is_modest;
use crate::error::{FetchError, PublishError, RequestError, StartError, StreamError};
use bytes::Bytes;
use phalanx_types::{Incarnation, NodeId, Parcel, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::node::NodeStatus;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long a node that stops waits for its tasks.
const SHUTDOWN: Duration = Duration::from_secs(3);

/// A node, an address or a relay that this node dialed in vain, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreached {
    /// What was dialed.
    pub target: String,
    /// Why there is no link.
    pub reason: String,
    /// One of the two sides refused the other, which no further dial will change by itself.
    pub refused: bool,
}

/// One node of a domain. Clones are handles to the same node.
///
/// Its tasks run on the runtime it was started on, until [`Fabric::shutdown`] or the end of that
/// runtime.
#[derive(Debug, Clone)]
pub struct Fabric {
    inner: Arc<Inner>,
    directory: AccessDir,
    announcer: Option<Arc<Announcer>>,
}

impl Fabric {
    pub(super) fn new(inner: Arc<Inner>, directory: AccessDir, announcer: Option<Announcer>) -> Self {
        Self { inner, directory, announcer: announcer.map(Arc::new) }
    }

    /// Joins the domain: listens, writes the access file and dials all nodes it knows of.
    ///
    /// # Errors
    /// The configuration is refused, or the port or the runtime directory cannot be used.
    pub async fn start(config: FabricConfig) -> Result<Fabric, StartError> {
        Box::pin(start::start(config)).await
    }

    pub fn id(&self) -> &NodeId {
        &self.inner.id
    }

    pub fn incarnation(&self) -> Incarnation {
        self.inner.incarnation
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    /// Whether its connections are encrypted and authenticated by a domain key.
    pub fn is_secure(&self) -> bool {
        matches!(self.inner.security, Security::Key(_))
    }

    /// The time since this node started.
    pub fn now(&self) -> Time {
        self.inner.now()
    }

    /// The links and their frames of one kind.
    ///
    /// Reports the links that are up, then every event. Only [`FrameKind::Jobs`] and [`FrameKind::Train`] have
    /// channels; the channel of another kind is closed from the start. A second call takes the channel over from the
    /// first. A receiver that does not keep up stops the peers from sending.
    pub fn channel(&self, kind: FrameKind) -> mpsc::Receiver<LinkEvent> {
        self.inner.channels.open(kind)
    }

    /// Changes what this node publishes about itself.
    pub fn update_status(&self, change: impl FnOnce(&mut NodeStatus)) {
        let mut own = lock(&self.inner.own);
        let version = own.version;
        let was_modest = is_modest(&own);
        change(&mut own);
        if was_modest {
            warn_if_too_long(&own);
        }
        own.id = self.inner.id.clone();
        own.incarnation = self.inner.incarnation;
        own.version = version + 1;
        drop(own);
        self.inner.own_changed.notify_one();
    }

    /// All known nodes, including this one, sorted by id.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        let mut nodes = self.inner.nodes.snapshot();
        if let Some(me) = nodes.iter_mut().find(|n| n.id == self.inner.id) {
            *me = lock(&self.inner.own).clone();
        }
        nodes
    }

    /// Watches nodes appear, change and leave; begins with all known nodes.
    pub fn watch(&self) -> NodeWatch {
        self.inner.nodes.watch()
    }

    /// Waits until every address known so far has answered or failed once, or `at_most`.
    pub async fn settled(&self, at_most: Duration) {
        let mut settled = self.inner.settled.subscribe();
        let waited = tokio::time::timeout(at_most, settled.wait_for(|settled| *settled)).await;
        if waited.is_err() {
            tracing::debug!(?at_most, "not everyone answered in time");
        }
    }

    /// The current link to a node.
    pub fn peer(&self, node: &NodeId) -> Option<Peer> {
        self.inner.links.to_node(node).map(Peer)
    }

    /// Asks a service of a node.
    ///
    /// # Errors
    /// There is no link, it goes down, the deadline passes, or the service refuses.
    pub async fn request(
        &self,
        to: &NodeId,
        service: &str,
        body: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, RequestError> {
        requests::request(&self.inner, to, service, body, deadline).await
    }

    /// Offers a service under a name; a second service of the same name replaces the first.
    pub fn serve<F, Fut>(&self, service: &str, f: F)
    where
        F: Fn(NodeId, Bytes) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Bytes, String>> + Send + 'static,
    {
        self.inner.services.offer(service, Arc::new(move |from, body| Box::pin(f(from, body))));
    }

    /// Sends a small message to every node that subscribed to the topic and returns their number.
    ///
    /// # Errors
    /// The message is longer than 64 KiB.
    pub fn publish(&self, topic: &str, body: Bytes) -> Result<usize, PublishError> {
        if body.len() > MAX_PUBLISHED {
            return Err(PublishError::TooLong { len: body.len(), max: MAX_PUBLISHED });
        }
        let inner = &self.inner;
        let subscribed = |s: &NodeStatus| s.topics.iter().any(|t| t == topic).then(|| s.id.clone());
        let nodes = inner.nodes.filter_map(|s| subscribed(s).filter(|id| *id != inner.id));
        let message = FabricMessage::Publish { topic: topic.into(), body: body.clone() };
        let mut reached = 0;
        for link in nodes.iter().filter_map(|id| inner.links.to_node(id)) {
            match link.send(FrameKind::Fabric, &message) {
                Ok(()) => reached += 1,
                Err(error) => tracing::debug!(?link, %error, "could not publish"),
            }
        }
        reached += usize::from(inner.topics.deliver(topic, inner.id.clone(), body));
        Ok(reached)
    }

    /// Receives messages published under a topic from now on.
    pub fn subscribe(&self, topic: &str) -> Subscription {
        let subscription = self.inner.topics.subscribe(topic);
        if !lock(&self.inner.own).topics.iter().any(|t| t == topic) {
            self.update_status(|own| own.topics.push(topic.into()));
        }
        subscription
    }

    /// Holds a parcel for others to fetch, until it is released.
    pub fn hold(&self, parcel: Parcel) -> BlobId {
        self.inner.blobs.hold(parcel)
    }

    /// The bytes of all parcels that this node holds.
    pub fn held_bytes(&self) -> u64 {
        self.inner.blobs.bytes()
    }

    /// A parcel that this node holds; shares its memory.
    pub fn held(&self, blob: BlobId) -> Option<Parcel> {
        self.inner.blobs.get(blob).map(|parcel| (*parcel).clone())
    }

    /// Puts an equal parcel, which lies elsewhere, in the place of one that this node holds.
    pub fn replace(&self, blob: BlobId, parcel: Parcel) {
        self.inner.blobs.replace(blob, parcel);
    }

    pub fn release(&self, blob: BlobId) {
        self.inner.blobs.release(blob);
    }

    /// Fetches the body of a parcel that a peer holds.
    ///
    /// # Errors
    /// The peer does not hold it, it has another length, or the link goes down.
    pub async fn fetch(&self, from: &Peer, blob: BlobId, len: u64) -> Result<Bytes, FetchError> {
        let pieces = self.fetch_pieces(from, blob, len).await?;
        Parcel::join(pieces).ok_or(FetchError::OutOfMemory { blob, len })
    }

    /// Fetches the body of a parcel that a peer holds, in as many pieces as it came in.
    ///
    /// Pieces in memory of this host are mapped, not copied; the peer may use it again when they are dropped.
    ///
    /// # Errors
    /// As [`Fabric::fetch`].
    pub async fn fetch_pieces(&self, from: &Peer, blob: BlobId, len: u64) -> Result<Vec<Bytes>, FetchError> {
        bulk::fetch(&self.inner, &from.0, blob, len).await
    }

    /// Opens a stream of bytes to a peer, which accepts it under the same key.
    ///
    /// It ends when the link to the peer goes down.
    ///
    /// # Errors
    /// The link is down, the peer cannot be reached for another connection, or it has too many unaccepted streams.
    pub async fn open_stream(&self, to: &Peer, key: StreamKey) -> Result<StreamSocket, StreamError> {
        Box::pin(streams::open(&self.inner, &to.0, key)).await
    }

    /// Accepts the stream that a node opened under this key, waiting at most `at_most`.
    ///
    /// A stream may be opened first: it is kept for 30 s, at most 64 of them per link. A second stream or a second wait
    /// under the same key replaces the first.
    ///
    /// # Errors
    /// There is no link to the node, it goes down, or the time passes.
    pub async fn accept_stream(
        &self,
        from: &NodeId,
        key: StreamKey,
        at_most: Duration,
    ) -> Result<StreamSocket, StreamError> {
        streams::accept(&self.inner, from, key, at_most).await
    }

    /// How many connections failed or were refused, by the name of the reason.
    pub fn refused(&self) -> Vec<(String, u64)> {
        self.inner.refusals.snapshot()
    }

    /// The targets whose last dial failed: nodes, addresses as they were given, and `relay HOST:PORT`.
    pub fn unreached(&self) -> Vec<Unreached> {
        let of = |(target, trouble): (&String, &DialTrouble)| Unreached {
            target: target.clone(),
            reason: trouble.reason.clone(),
            refused: trouble.refused,
        };
        lock(&self.inner.unreached).iter().map(of).collect()
    }

    /// Says goodbye to all linked nodes and ends every task.
    pub async fn shutdown(&self) {
        self.directory.leave(&self.inner.id);
        let (done, stopped) = oneshot::channel();
        if self.inner.events.send(Incoming::Stop(done)).await.is_ok() && stopped.await.is_err() {
            tracing::debug!("the driver was gone already");
        }
        if let Some(announcer) = &self.announcer {
            announcer.stop().await;
        }
        self.inner.stop.send_replace(true);
        lock(&self.inner.alive).take();
        self.inner.nodes.close();
        self.inner.topics.close();
        self.inner.services.clear();
        let mut ended = self.inner.ended.lock().await;
        if tokio::time::timeout(SHUTDOWN, ended.recv()).await.is_err() {
            tracing::warn!("some tasks did not end in time");
        }
        self.inner.channels.close();
        tracing::info!(node = %self.inner.id, "node stopped");
    }
}

/// Other nodes ignore a status that is too long, so its owner is warned.
pub(super) fn warn_if_too_long(own: &NodeStatus) {
    if !is_modest(own) {
        tracing::warn!(node = %own.id, "this node's status is too long; the others will ignore it");
    }
}
