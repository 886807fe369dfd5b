//! The watchers of the domain's nodes, and the events that each has not seen yet.

use super::lock;
use crate::core::NodeEvent;
use phalanx_types::NodeId;
use phalanx_wire::node::NodeStatus;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::Notify;

/// The table of all known nodes, and its watchers.
#[derive(Debug, Default)]
pub(crate) struct NodeTable(Mutex<NodeTableState>);

#[derive(Debug, Default)]
struct NodeTableState {
    nodes: BTreeMap<NodeId, NodeStatus>,
    watchers: Vec<Weak<WatchQueue>>,
    closed: bool,
}

#[derive(Debug, Default)]
struct WatchQueue {
    state: Mutex<QueueState>,
    wake: Notify,
}

/// At most one event per node: a slow watcher sees fewer changes, never stale ones.
#[derive(Debug, Default)]
struct QueueState {
    order: VecDeque<NodeId>,
    events: BTreeMap<NodeId, NodeEvent>,
    closed: bool,
}

impl NodeTable {
    pub(crate) fn snapshot(&self) -> Vec<NodeStatus> {
        lock(&self.0).nodes.values().cloned().collect()
    }

    /// The nodes for which `f` returns something, without copying the others.
    pub(crate) fn filter_map<T>(&self, f: impl FnMut(&NodeStatus) -> Option<T>) -> Vec<T> {
        lock(&self.0).nodes.values().filter_map(f).collect()
    }

    pub(crate) fn announce(&self, event: NodeEvent) {
        let mut table = lock(&self.0);
        let status = event.status().clone();
        table.nodes.insert(status.id.clone(), status);
        table.watchers.retain(|watcher| match watcher.upgrade() {
            Some(queue) => {
                queue.push(event.clone());
                true
            }
            None => false,
        });
    }

    pub(crate) fn forget(&self, node: &NodeId) {
        lock(&self.0).nodes.remove(node);
    }

    pub(crate) fn watch(&self) -> NodeWatch {
        let queue = Arc::new(WatchQueue::default());
        let mut table = lock(&self.0);
        for status in table.nodes.values().cloned() {
            let live = status.state.is_live();
            queue.push(if live { NodeEvent::Appeared(status) } else { NodeEvent::Gone(status) });
        }
        lock(&queue.state).closed = table.closed;
        table.watchers.push(Arc::downgrade(&queue));
        NodeWatch(queue)
    }

    pub(crate) fn close(&self) {
        let mut table = lock(&self.0);
        table.closed = true;
        for queue in table.watchers.drain(..).filter_map(|w| w.upgrade()) {
            lock(&queue.state).closed = true;
            queue.wake.notify_one();
        }
    }
}

impl WatchQueue {
    fn push(&self, event: NodeEvent) {
        let id = event.status().id.clone();
        let mut state = lock(&self.state);
        let merged = match (state.events.remove(&id), event) {
            (None, event) => {
                state.order.push_back(id.clone());
                event
            }
            // The watcher has not seen the node yet.
            (Some(NodeEvent::Appeared(_)), NodeEvent::Changed(status)) => NodeEvent::Appeared(status),
            (Some(_), event) => event,
        };
        state.events.insert(id, merged);
        drop(state);
        self.wake.notify_one();
    }
}

/// The changes of the domain's nodes, from the creation of the watch on.
#[derive(Debug)]
pub struct NodeWatch(Arc<WatchQueue>);

impl NodeWatch {
    /// The next change, or `None` once the node has shut down.
    ///
    /// A node that changed several times since the last call is reported once, with its current status.
    pub async fn next(&mut self) -> Option<NodeEvent> {
        loop {
            {
                let mut state = lock(&self.0.state);
                if let Some(id) = state.order.pop_front() {
                    if let Some(event) = state.events.remove(&id) {
                        return Some(event);
                    }
                    continue;
                }
                if state.closed {
                    return None;
                }
            }
            self.0.wake.notified().await;
        }
    }
}
