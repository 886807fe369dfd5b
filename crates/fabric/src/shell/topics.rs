//! Publishing small messages to the subscribers of a topic.

use super::lock;
use bytes::Bytes;
use phalanx_types::NodeId;
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::sync::Mutex;
use tokio::sync::broadcast;

/// A published message is at most this long.
pub(crate) const MAX_PUBLISHED: usize = 64 << 10;
/// Messages that a subscriber may be behind before it loses the oldest.
const BACKLOG: usize = 1024;

/// What a subscriber receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    Message {
        from: NodeId,
        body: Bytes,
    },
    /// This many messages were lost because the subscriber was too slow.
    Lost(u64),
}

/// The messages of one topic, from the subscription on.
#[derive(Debug)]
pub struct Subscription(broadcast::Receiver<(NodeId, Bytes)>);

impl Subscription {
    /// The next message, or `None` once the node has shut down.
    pub async fn next(&mut self) -> Option<Published> {
        match self.0.recv().await {
            Ok((from, body)) => Some(Published::Message { from, body }),
            Err(broadcast::error::RecvError::Lagged(n)) => Some(Published::Lost(n)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// The local subscribers of every topic.
#[derive(Debug, Default)]
pub(crate) struct Topics(Mutex<BTreeMap<SmolStr, broadcast::Sender<(NodeId, Bytes)>>>);

impl Topics {
    pub(crate) fn subscribe(&self, topic: &str) -> Subscription {
        let mut topics = lock(&self.0);
        let sender = topics.entry(topic.into()).or_insert_with(|| broadcast::channel(BACKLOG).0);
        Subscription(sender.subscribe())
    }

    /// Hands a message to the local subscribers and returns whether there were any.
    pub(crate) fn deliver(&self, topic: &str, from: NodeId, body: Bytes) -> bool {
        lock(&self.0).get(topic).is_some_and(|sender| sender.send((from, body)).is_ok())
    }

    pub(crate) fn close(&self) {
        lock(&self.0).clear();
    }
}
