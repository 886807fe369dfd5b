//! Requests to nodes, and the services that answer them.

use super::inner::Inner;
use super::link::Link;
use super::{lock, streams};
use crate::error::RequestError;
use bytes::Bytes;
use phalanx_types::NodeId;
use phalanx_wire::fabric::{FabricMessage, ReplyError};
use phalanx_wire::frame::FrameKind;
use phalanx_wire::node::LostReason;
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The most requests of one peer that are handled at the same time.
const MAX_CONCURRENT: usize = 256;
/// The bytes of a frame around the answer itself.
const ENVELOPE: usize = 64;

type Answer = Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>>;
type Service = Arc<dyn Fn(NodeId, Bytes) -> Answer + Send + Sync>;

/// The services this node offers.
#[derive(Default)]
pub(crate) struct Services(Mutex<BTreeMap<SmolStr, Service>>);

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(lock(&self.0).keys()).finish()
    }
}

impl Services {
    pub(crate) fn offer(&self, name: &str, service: Service) {
        lock(&self.0).insert(name.into(), service);
    }

    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
    }

    async fn call(&self, from: NodeId, name: &SmolStr, body: Bytes) -> Result<Bytes, ReplyError> {
        let service = lock(&self.0).get(name).cloned();
        let Some(service) = service else { return Err(ReplyError::NoService { service: name.clone() }) };
        let answer = service(from, body).await.map_err(|message| ReplyError::Refused { message })?;
        let len = answer.len();
        if len + ENVELOPE > FrameKind::Fabric.max_len() {
            return Err(ReplyError::TooLong { len: len as u64 });
        }
        Ok(answer)
    }
}

enum RequestOutcome {
    Reply(Result<Bytes, ReplyError>),
    Down { reason: LostReason, goodbye: bool },
}

struct OpenRequests {
    open: BTreeMap<u64, oneshot::Sender<RequestOutcome>>,
    /// How the link ended; no requests are added after that.
    down: Option<(LostReason, bool)>,
}

/// The requests of one link, in both directions.
pub(crate) struct Pending {
    waiting: Mutex<OpenRequests>,
    admission: Arc<Semaphore>,
}

impl Default for Pending {
    fn default() -> Self {
        let waiting = Mutex::new(OpenRequests { open: BTreeMap::new(), down: None });
        Self { waiting, admission: Arc::new(Semaphore::new(MAX_CONCURRENT)) }
    }
}

impl Pending {
    pub(crate) fn admission(&self) -> impl Future<Output = Option<OwnedSemaphorePermit>> + use<> {
        let admission = self.admission.clone();
        async move { admission.acquire_owned().await.ok() }
    }

    pub(crate) fn resolve(&self, id: u64, result: Result<Bytes, ReplyError>) {
        if let Some(waiter) = lock(&self.waiting).open.remove(&id)
            && waiter.send(RequestOutcome::Reply(result)).is_err()
        {
            tracing::debug!(id, "no caller waits for this answer any more");
        }
    }

    pub(crate) fn fail_all(&self, reason: &LostReason, goodbye: bool) {
        let mut waiting = lock(&self.waiting);
        waiting.down = Some((reason.clone(), goodbye));
        for waiter in std::mem::take(&mut waiting.open).into_values() {
            if waiter.send(RequestOutcome::Down { reason: reason.clone(), goodbye }).is_err() {
                tracing::debug!("no caller waits for this answer any more");
            }
        }
    }
}

/// Removes a request whose caller has gone.
struct Forget<'a>(&'a Link, u64);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(&self.0.pending.waiting).open.remove(&self.1);
    }
}

pub(crate) async fn request(
    inner: &Inner,
    to: &NodeId,
    service: &str,
    body: Bytes,
    deadline: Duration,
) -> Result<Bytes, RequestError> {
    let node = to.clone();
    if *to == inner.id {
        let service = SmolStr::from(service);
        let answer = inner.services.call(inner.id.clone(), &service, body);
        return match tokio::time::timeout(deadline, answer).await {
            Ok(result) => result.map_err(|source| RequestError::Reply { node, source }),
            Err(_) => Err(RequestError::Deadline { node, deadline }),
        };
    }
    let Some(link) = inner.links.to_node(to) else { return Err(RequestError::NotConnected { node }) };
    ask(inner, &link, service, body, deadline).await
}

/// Sends a request to a service of the node at the other end of a link.
pub(crate) async fn ask(
    inner: &Inner,
    link: &Link,
    service: &str,
    body: Bytes,
    deadline: Duration,
) -> Result<Bytes, RequestError> {
    let node = link.node.clone();
    let id = inner.next_number();
    let (sender, receiver) = oneshot::channel();
    {
        let mut waiting = lock(&link.pending.waiting);
        if let Some((reason, goodbye)) = waiting.down.clone() {
            return Err(lost(node, reason, goodbye));
        }
        waiting.open.insert(id, sender);
    }
    let _forget = Forget(link, id);
    let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
    link.send(FrameKind::Fabric, &FabricMessage::Request { id, service: service.into(), deadline_ms, body })?;
    match tokio::time::timeout(deadline, receiver).await {
        Err(_) => Err(RequestError::Deadline { node, deadline }),
        Ok(Ok(RequestOutcome::Reply(result))) => {
            result.map_err(|source| RequestError::Reply { node, source })
        }
        Ok(Ok(RequestOutcome::Down { reason, goodbye })) => Err(lost(node, reason, goodbye)),
        Ok(Err(_)) => Err(RequestError::NotConnected { node }),
    }
}

fn lost(node: NodeId, reason: LostReason, goodbye: bool) -> RequestError {
    if goodbye { RequestError::Stopped { node } } else { RequestError::Lost { node, reason } }
}

/// A request from a peer.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) service: SmolStr,
    pub(crate) deadline_ms: u64,
    pub(crate) body: Bytes,
}

/// Handles a request in a task of its own and sends the answer.
pub(crate) fn answer(inner: &Arc<Inner>, link: &Arc<Link>, call: Call, permit: Option<OwnedSemaphorePermit>) {
    let (shared, link) = (inner.clone(), link.clone());
    inner.spawn(async move {
        let _permit = permit;
        let work = async {
            if call.service == streams::SERVICE {
                return streams::call_back(&shared, &link, &call.body).await;
            }
            shared.services.call(link.node.clone(), &call.service, call.body).await
        };
        // The caller gives up at the deadline, so a later answer is of no use.
        let limit = Duration::from_millis(call.deadline_ms.min(24 * 3600 * 1000));
        let Ok(result) = tokio::time::timeout(limit, work).await else { return };
        let reply = FabricMessage::Reply { id: call.id, result };
        if let Err(error) = link.send(FrameKind::Fabric, &reply) {
            tracing::debug!(?link, %error, "an answer could not be sent");
        }
    });
}
