use super::LinkKey;
use super::backoff::Backoff;
use phalanx_types::{Incarnation, NodeId, Time};
use phalanx_wire::node::{NodeState, NodeStatus, PeerAddr};
use std::collections::BTreeSet;
use std::time::Duration;

/// The most addresses that are remembered for one node.
pub(super) const MAX_ADDRESSES: usize = 16;

/// Everything known of another node.
#[derive(Debug)]
pub(crate) struct PeerEntry {
    /// Its status as reported by itself or by a node linked to it; `None` while only an address is known.
    pub(crate) status: Option<NodeStatus>,
    /// Addresses from other sources than its status.
    pub(crate) found: BTreeSet<PeerAddr>,
    pub(crate) link: Option<LinkKey>,
    /// The incarnation in which it was linked to this node: direct knowledge beats gossip.
    pub(crate) linked_as: Option<Incarnation>,
    pub(crate) dialing: bool,
    /// At least one dial ended without a link.
    pub(crate) tried: bool,
    pub(crate) backoff: Backoff,
    /// The last time there was a link, or news of it, or its end.
    pub(crate) last_news: Time,
    /// The linked node that told of it.
    pub(crate) told_by: Option<NodeId>,
}

impl PeerEntry {
    pub(crate) fn new(now: Time, first_dial: Time) -> Self {
        Self {
            status: None,
            found: BTreeSet::new(),
            link: None,
            linked_as: None,
            dialing: false,
            tried: false,
            backoff: Backoff::due_at(first_dial),
            last_news: now,
            told_by: None,
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.status.as_ref().is_some_and(|s| s.state.is_live())
    }

    /// Whether it is known to have said goodbye; then it is not dialed any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.status.as_ref().is_some_and(|s| matches!(s.state, NodeState::Stopped))
    }

    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        self.status.as_ref().map(|s| s.incarnation)
    }

    /// Whether this node itself was linked to the current incarnation of the peer.
    pub(crate) fn is_witnessed(&self) -> bool {
        self.linked_as.is_some() && self.linked_as == self.incarnation()
    }

    pub(crate) fn add_found(&mut self, address: PeerAddr) -> bool {
        self.found.len() < MAX_ADDRESSES && self.found.insert(address)
    }

    pub(crate) fn lose_addresses(&mut self) {
        self.found.clear();
        if let Some(status) = &mut self.status {
            status.addresses.clear();
        }
    }

    pub(crate) fn addresses(&self) -> Vec<PeerAddr> {
        let own = self.status.iter().flat_map(|s| s.addresses.iter().take(MAX_ADDRESSES));
        let all: BTreeSet<_> = own.chain(&self.found).cloned().collect();
        all.into_iter().collect()
    }

    pub(crate) fn wants_dial(&self) -> bool {
        self.link.is_none() && !self.dialing && !self.is_stopped() && self.has_address()
    }

    fn has_address(&self) -> bool {
        !self.found.is_empty() || self.status.as_ref().is_some_and(|s| !s.addresses.is_empty())
    }

    /// Whether the node may be forgotten: no link, and no news for a long time.
    pub(crate) fn is_forgotten(&self, now: Time, after: Duration) -> bool {
        self.link.is_none() && now.since(self.last_news) >= after
    }
}
