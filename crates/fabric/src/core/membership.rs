use super::backoff::Backoff;
use super::beats::Links;
use super::peer::PeerEntry;
use super::roster::Roster;
use super::{Command, DialEnd, DialTarget, Event, NodeEvent};
use phalanx_types::{Incarnation, NodeId, Outbox, Time};
use phalanx_wire::node::{LostReason, NodeKind, NodeState, NodeStatus, PeerAddr};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A node without a link is forgotten after this long without news.
pub(super) const FORGET_AFTER: Duration = Duration::from_secs(600);
/// The shortest interval between updates of this node's status, apart from changes of state.
const STATUS_PACE: Duration = Duration::from_millis(50);
/// With each so many links, updates come more rarely.
const LINKS_AT_PACE: usize = 256;
/// How long the node with the larger id waits when both learn of each other at the same moment.
const YIELD: Duration = Duration::from_millis(30);
/// The most nodes that are remembered, so that no member can fill another's memory.
pub(super) const MAX_PEERS: usize = 20_000;
/// The most relays that a node takes over from a peer.
const MAX_LEARNED_RELAYS: usize = 4;
/// The most dials at the same time.
pub(super) const MAX_DIALS: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) me: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) heartbeat: Duration,
    /// Whether it can prove to a relay that it belongs to the domain.
    pub(crate) keyed: bool,
}

#[derive(Debug)]
pub(super) struct SeedEntry {
    /// The node that the last dial led to.
    pub(super) peer: Option<NodeId>,
    /// The node there is linked to this node by a link that it dialed.
    pub(super) linked_otherwise: bool,
    pub(super) dialing: bool,
    pub(super) tried: bool,
    pub(super) backoff: Backoff,
}

/// The membership of one node.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(super) settings: Settings,
    pub(super) own: NodeStatus,
    pub(super) own_sent: Option<Time>,
    pub(super) own_changed: bool,
    pub(super) peers: Roster,
    pub(super) links: Links,
    pub(super) seeds: BTreeMap<SmolStr, SeedEntry>,
    /// Relays, and whether each has answered or failed once.
    pub(super) relays: BTreeMap<SmolStr, bool>,
    /// mDNS was queried, and answers may still arrive.
    listening: bool,
    /// Silence before this moment is ignored: this node itself was suspended.
    pub(super) silence_from: Time,
    pub(super) last_tick: Time,
    /// When the table of links was last sent to all linked nodes.
    pub(super) table_sent: Time,
    /// The linked node that was told again last.
    pub(super) repeated_to: Option<NodeId>,
    pub(super) stopping: bool,
}

impl Membership {
    pub(crate) fn new(settings: Settings, own: NodeStatus) -> Self {
        let links = Links::new(settings.heartbeat);
        Self {
            settings,
            own,
            own_sent: None,
            own_changed: false,
            peers: Roster::new(FORGET_AFTER),
            links,
            seeds: BTreeMap::new(),
            relays: BTreeMap::new(),
            listening: false,
            silence_from: Time::ZERO,
            last_tick: Time::ZERO,
            table_sent: Time::ZERO,
            repeated_to: None,
            stopping: false,
        }
    }

    pub(crate) fn on(&mut self, now: Time, event: Event, out: &mut Outbox<Command>) {
        match event {
            Event::Seeded(seed) => self.on_seeded(now, seed),
            Event::RelayAdded(relay) => {
                self.relays.entry(relay).or_insert(false);
            }
            Event::Listening => self.listening = true,
            Event::Listened => self.listening = false,
            Event::Learned { node, address } => self.on_learned(now, node, address),
            Event::RelayPresent { relay, nodes } => {
                self.on_relay_present(now, relay, &nodes.into_iter().collect());
            }
            Event::RelayFailed { relay } => {
                self.relays.insert(relay, true);
            }
            Event::LinkOffered(offer) => self.on_offer(now, offer, out),
            Event::LinkDown { link, reason, goodbye } => self.on_link_down(now, link, reason, goodbye, out),
            Event::DialFailed { target, why } => self.on_dial_failed(now, target, why),
            Event::StatusHeard { link, status } => self.on_status(now, link, status, out),
            Event::KnownHeard { link, known } => self.on_known(now, link, known, out),
            Event::OwnStatus(status) => self.on_own_status(now, status, out),
            Event::Ticked(samples) => self.on_tick(now, &samples, out),
            Event::Stopping => self.on_stopping(out),
        }
        self.flush_own_status(now, out);
        self.peers.settle();
        self.dial_due(now, out);
    }

    /// When to send [`Event::Ticked`] next.
    pub(crate) fn next_wake(&self) -> Time {
        if self.stopping {
            return Time::NEVER;
        }
        // When all dial slots are taken, the end of a dial wakes the core.
        let may_dial = self.dials_left() > 0;
        let dials = self.peers.next_dial().filter(|_| may_dial);
        let forget = self.peers.next_forget().map(|(at, _)| at);
        let seeds = self.seeds.values().filter(|s| may_dial && self.seed_wants_dial(s));
        let seeds = seeds.map(|s| s.backoff.due());
        let flush = self.own_sent.filter(|_| self.own_changed).map(|at| at + self.status_pace());
        let soonest = dials.into_iter().chain(forget).chain(seeds).chain(flush).min().unwrap_or(Time::NEVER);
        soonest.min(self.next_heartbeat_check()).min(self.next_repeat())
    }

    /// Whether every address known so far has led to a link whose table arrived, or failed once.
    pub(crate) fn is_settled(&self) -> bool {
        (!self.listening || self.is_introduced())
            && self.relays.values().all(|answered| *answered)
            && self.seeds.values().all(|s| s.tried || s.peer.is_some())
            && self.links.have_told()
            && self.peers.is_settled()
    }

    /// Whether a member has told this node which nodes it knows: then there is no need to wait for others.
    fn is_introduced(&self) -> bool {
        self.links.values().filter(|l| l.known_arrived).any(|l| {
            let status = self.peers.get(&l.node).and_then(|p| p.status.as_ref());
            status.is_some_and(|s| s.kind != NodeKind::Observer)
        })
    }

    fn on_seeded(&mut self, now: Time, seed: SmolStr) {
        let owner = self.peers.iter().find(|(_, p)| p.found.iter().any(|a| is_seed(a, &seed)));
        let entry = SeedEntry {
            peer: owner.map(|(id, _)| id.clone()),
            linked_otherwise: false,
            dialing: false,
            tried: false,
            backoff: Backoff::due_at(now),
        };
        self.seeds.entry(seed).or_insert(entry);
    }

    fn on_learned(&mut self, now: Time, node: NodeId, address: PeerAddr) {
        if node == self.settings.me {
            return;
        }
        for (seed, entry) in &mut self.seeds {
            if entry.peer.is_none() && !entry.dialing && is_seed(&address, seed) {
                entry.peer = Some(node.clone());
            }
        }
        let Some(peer) = self.entry(now, &node, now) else { return };
        if peer.add_found(address) && peer.link.is_none() && !peer.dialing {
            peer.backoff = Backoff::due_at(now);
            peer.last_news = now;
        }
    }

    fn on_relay_present(&mut self, now: Time, relay: SmolStr, nodes: &BTreeSet<NodeId>) {
        self.relays.insert(relay.clone(), true);
        let address = PeerAddr::Relay(relay);
        let gone = |(id, peer): (&NodeId, &PeerEntry)| {
            (peer.found.contains(&address) && !nodes.contains(id)).then(|| id.clone())
        };
        let gone: Vec<NodeId> = self.peers.iter().filter_map(gone).collect();
        for id in gone {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.found.remove(&address);
            }
        }
        for node in nodes {
            if *node == self.settings.me {
                continue;
            }
            let first_dial = self.first_dial(now, node);
            let Some(peer) = self.entry(now, node, first_dial) else { continue };
            peer.add_found(address.clone());
            if peer.link.is_none() && !peer.dialing {
                peer.backoff = Backoff::due_at(first_dial);
            }
        }
    }

    /// A node that was given no relay registers at those of the first linked node that has some: then one node of a
    /// network that knows the relay is enough for all.
    pub(super) fn learn_relays(&mut self, addresses: &[PeerAddr], out: &mut Outbox<Command>) {
        if !self.settings.keyed || !self.relays.is_empty() || self.stopping {
            return;
        }
        let relay = |address: &PeerAddr| match address {
            PeerAddr::Relay(relay) => Some(relay.clone()),
            PeerAddr::Tcp(_) => None,
        };
        for relay in addresses.iter().filter_map(relay).take(MAX_LEARNED_RELAYS) {
            // The peer tells of the nodes that it reaches there, so nothing has to wait for the relay's answer.
            self.relays.insert(relay.clone(), true);
            out.push(Command::JoinRelay(relay));
        }
    }

    fn on_dial_failed(&mut self, now: Time, target: DialTarget, why: DialEnd) {
        match target {
            DialTarget::Peer(node) => {
                let Some(peer) = self.peers.get_mut(&node) else { return };
                peer.dialing = false;
                peer.tried = true;
                peer.backoff.failed(now);
                // This process has taken over the address; no other node is there.
                if why == DialEnd::Myself && peer.status.is_none() && peer.link.is_none() {
                    self.peers.remove(&node);
                }
            }
            DialTarget::Seed(seed) if why == DialEnd::Myself => {
                self.seeds.remove(&seed);
            }
            DialTarget::Seed(seed) => {
                let Some(entry) = self.seeds.get_mut(&seed) else { return };
                entry.dialing = false;
                entry.tried = true;
                entry.linked_otherwise = why == DialEnd::Duplicate;
                entry.backoff.failed(now);
            }
        }
    }

    fn seed_wants_dial(&self, seed: &SeedEntry) -> bool {
        let reached = seed.peer.as_ref().and_then(|id| self.peers.get(id));
        !seed.dialing && !seed.linked_otherwise && !reached.is_some_and(|p| p.link.is_some() || p.dialing)
    }

    fn dial_due(&mut self, now: Time, out: &mut Outbox<Command>) {
        if self.stopping {
            return;
        }
        let seeds = self.seeds.iter().filter(|(_, s)| s.backoff.due() <= now && self.seed_wants_dial(s));
        let mut seeds: Vec<(Time, DialTarget)> =
            seeds.map(|(seed, s)| (s.backoff.due(), DialTarget::Seed(seed.clone()))).collect();
        seeds.sort();
        let mut seeds = seeds.into_iter().peekable();
        let mut due = Vec::new();
        for _ in 0..self.dials_left() {
            let next = self.peers.next_dial().filter(|at| *at <= now);
            let next_seed = seeds.peek().map(|(at, _)| *at);
            if next_seed.is_some_and(|seed| next.is_none_or(|at| seed < at)) {
                due.extend(seeds.next());
                continue;
            }
            let Some((at, id)) = self.peers.take_due(now) else { break };
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.dialing = true;
            }
            self.peers.settle();
            due.push((at, DialTarget::Peer(id)));
        }
        // Peers first: a seed that leads to one of them is not dialed as well.
        due.sort_by(|(_, a), (_, b)| a.cmp(b));
        for (_, target) in due {
            let addresses = match &target {
                DialTarget::Peer(id) => self.peers.get(id).map(PeerEntry::addresses),
                DialTarget::Seed(seed) => {
                    let wanted = self.seeds.get(seed).is_some_and(|s| self.seed_wants_dial(s));
                    self.seeds.get_mut(seed).filter(|_| wanted).map(|entry| {
                        entry.dialing = true;
                        Vec::new()
                    })
                }
            };
            if let Some(addresses) = addresses {
                out.push(Command::Dial { target, addresses });
            }
        }
    }

    fn dials_left(&self) -> usize {
        let seeds = self.seeds.values().filter(|s| s.dialing).count();
        MAX_DIALS.saturating_sub(self.peers.dialing() + seeds)
    }

    pub(super) fn forget_old(&mut self, now: Time, out: &mut Outbox<Command>) {
        self.peers.settle();
        while let Some((_, id)) = self.peers.next_forget().filter(|(at, _)| *at <= now) {
            let id = id.clone();
            let vouched_for = self.peers.get(&id).is_some_and(|peer| self.is_vouched_for(peer));
            if vouched_for && let Some(peer) = self.peers.get_mut(&id) {
                (peer.last_news, peer.orphaned) = (now, None);
                self.peers.settle();
                continue;
            }
            self.forget(id, "never reached", out);
        }
    }

    /// Whether a member that is linked to this node reports the peer as alive.
    fn is_vouched_for(&self, peer: &PeerEntry) -> bool {
        let is_linked = |id: &NodeId| self.peers.get(id).is_some_and(|voucher| voucher.link.is_some());
        peer.is_live() && peer.vouchers().any(is_linked)
    }

    /// The entry of a node, created if there is room for another one.
    pub(super) fn entry(&mut self, now: Time, node: &NodeId, first_dial: Time) -> Option<&mut PeerEntry> {
        let full = self.peers.len() >= MAX_PEERS;
        if full && !self.peers.contains_key(node) {
            return None;
        }
        Some(self.peers.get_or_insert(node, || PeerEntry::new(now, first_dial)))
    }

    /// Makes room for a node that proved its identity: nodes known only from gossip are dropped first.
    pub(super) fn make_room(&mut self, node: &NodeId, out: &mut Outbox<Command>) {
        if self.peers.len() < MAX_PEERS || self.peers.contains_key(node) {
            return;
        }
        self.peers.settle();
        if let Some(id) = self.peers.least() {
            self.forget(id, "displaced", out);
        }
    }

    pub(super) fn forget(&mut self, id: NodeId, detail: &str, out: &mut Outbox<Command>) {
        let Some(peer) = self.peers.remove(&id) else { return };
        if peer.dialing {
            out.push(Command::CancelDial { target: DialTarget::Peer(id.clone()) });
        }
        if let Some(mut status) = peer.status.filter(|s| s.state.is_live()) {
            status.state = NodeState::Lost(LostReason::LinkBroken { detail: detail.into() });
            out.push(Command::Announce(NodeEvent::Gone(status)));
        }
        out.push(Command::Forget(id));
    }

    /// When to dial a node that learns of this one at the same moment.
    pub(super) fn first_dial(&self, now: Time, node: &NodeId) -> Time {
        if self.settings.me < *node { now } else { now + YIELD }
    }

    /// The more links, the rarer.
    fn status_pace(&self) -> Duration {
        let hundreds = u32::try_from(self.links.len() / LINKS_AT_PACE).unwrap_or(u32::MAX);
        STATUS_PACE.saturating_mul(hundreds.saturating_add(1))
    }

    pub(super) fn flush_own_status(&mut self, now: Time, out: &mut Outbox<Command>) {
        let due = self.own_sent.is_none_or(|at| now.since(at) >= self.status_pace());
        if self.own_changed && due {
            self.broadcast_own_status(now, out);
        }
    }
}

fn is_seed(address: &PeerAddr, seed: &str) -> bool {
    matches!(address, PeerAddr::Tcp(addr) if addr.to_string() == seed)
}
