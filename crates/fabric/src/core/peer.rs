use super::LinkKey;
use super::backoff::Backoff;
use super::gossip::text_len;
use super::roster::Indexed;
use phalanx_types::{Incarnation, NodeId, Time};
use phalanx_wire::node::{NodeState, NodeStatus, PeerAddr};
use std::collections::BTreeSet;
use std::time::Duration;

/// The most addresses that are remembered for one node.
pub(super) const MAX_ADDRESSES: usize = 16;

/// The most nodes that are remembered as having told of one node.
const MAX_VOUCHERS: usize = 8;
/// A node that is only known from a node that is gone is forgotten after this long.
const ORPHAN_GRACE: Duration = Duration::from_secs(30);

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
    /// The linked node to which it is charged while it is known from others alone.
    pub(super) teller: Option<NodeId>,
    /// Linked nodes that told of it, some of them.
    vouchers: BTreeSet<NodeId>,
    /// Since when no node that told of it is linked.
    pub(super) orphaned: Option<Time>,
    /// Its part of the sets of the roster.
    pub(super) indexed: Indexed,
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
            teller: None,
            vouchers: BTreeSet::new(),
            orphaned: None,
            indexed: Indexed::default(),
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

    /// A linked node told of it.
    pub(super) fn vouch(&mut self, teller: &NodeId) {
        if self.teller.is_none() || self.orphaned.is_some() {
            self.teller = Some(teller.clone());
        }
        self.orphaned = None;
        if self.vouchers.len() < MAX_VOUCHERS {
            self.vouchers.insert(teller.clone());
        }
    }

    pub(super) fn vouchers(&self) -> impl Iterator<Item = &NodeId> {
        self.vouchers.iter()
    }

    /// It is linked: what others tell of it counts no more.
    pub(super) fn forget_tellers(&mut self) {
        (self.teller, self.orphaned) = (None, None);
        self.vouchers.clear();
    }

    /// The node to which it is charged: all that this node knows of it comes from there.
    pub(super) fn charged_to(&self) -> Option<&NodeId> {
        let is_hearsay = self.link.is_none() && self.linked_as.is_none() && self.found.is_empty();
        self.teller.as_ref().filter(|_| is_hearsay)
    }

    /// About how many bytes it takes.
    pub(super) fn weight(&self) -> usize {
        self.status.as_ref().map_or(0, weight_of)
    }

    /// When it is forgotten if there is no more news of it.
    pub(super) fn forget_at(&self, after: Duration) -> Time {
        let orphaned = self.orphaned.filter(|_| self.charged_to().is_some());
        let at = self.last_news + after;
        orphaned.map_or(at, |since| at.min(since + ORPHAN_GRACE))
    }

    /// Whether it is linked, was dialed in vain, or is not to be dialed.
    pub(super) fn is_settled(&self) -> bool {
        let is_idle = !self.wants_dial() && !self.dialing;
        self.link.is_some() || self.tried || is_idle || self.status.is_some() && !self.is_live()
    }
}

/// About how many bytes a status takes, with its entry.
pub(super) fn weight_of(status: &NodeStatus) -> usize {
    text_len(status) + size_of::<PeerEntry>() + 256
}
