//! The life of links: offers, duplicates, heartbeats, ends.

use super::backoff::Backoff;
use super::peer::MAX_ADDRESSES;
use super::{Command, ControlMessage, DialTarget, LinkKey, LinkOffer, LinkSample, Membership, NodeEvent};
use phalanx_types::{NodeId, Outbox, Time};
use phalanx_wire::handshake::Refusal;
use phalanx_wire::node::{LostReason, NodeState, NodeStatus};
use std::time::Duration;

/// The shortest heartbeat interval that a peer may ask for.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(10);
/// A link that lived shorter than this counts as a failed dial.
const SHORT_LIFE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct LinkEntry {
    pub(super) node: NodeId,
    pub(super) dialed_here: bool,
    /// How often the other side wants to hear from this one.
    pub(super) peer_heartbeat: Duration,
    pub(super) up_since: Time,
    pub(super) heard: Time,
    pub(super) sent: Time,
    pub(super) known_arrived: bool,
    /// Whether the other nodes were told of this peer.
    pub(super) introduced: bool,
}

enum Verdict {
    New,
    Replace(LinkKey),
    Refuse(Refusal),
}

impl Membership {
    pub(super) fn on_offer(&mut self, now: Time, offer: LinkOffer, out: &mut Outbox<Command>) {
        self.end_dial(now, &offer);
        let link = offer.link;
        match self.judge(now, &offer) {
            Verdict::Refuse(refusal) => out.push(Command::Refuse { link, refusal }),
            Verdict::New => self.accept(now, offer, out),
            Verdict::Replace(old) => {
                self.links.remove(&old);
                out.push(Command::Close { link: old, reason: LostReason::Replaced });
                self.accept(now, offer, out);
            }
        }
    }

    fn end_dial(&mut self, now: Time, offer: &LinkOffer) {
        match &offer.dialed {
            Some(DialTarget::Peer(node)) => {
                if let Some(peer) = self.peers.get_mut(node) {
                    peer.dialing = false;
                    peer.tried = true;
                    peer.backoff.failed(now);
                    if offer.node != *node {
                        // Another node uses its addresses now.
                        peer.lose_addresses();
                    }
                }
            }
            Some(DialTarget::Seed(seed)) => {
                if let Some(entry) = self.seeds.get_mut(seed) {
                    entry.dialing = false;
                    entry.tried = true;
                    entry.peer = Some(offer.node.clone());
                    entry.backoff.failed(now);
                }
            }
            None => {}
        }
    }

    fn judge(&self, now: Time, offer: &LinkOffer) -> Verdict {
        let me = &self.settings.me;
        if self.stopping {
            return Verdict::Refuse(Refusal::Stopping);
        }
        if offer.node == *me {
            let myself = offer.incarnation == self.settings.incarnation;
            let taken = Refusal::IdTaken { id: me.clone() };
            return Verdict::Refuse(if myself { Refusal::Myself } else { taken });
        }
        let Some(peer) = self.peers.get(&offer.node) else { return Verdict::New };
        let Some(old) = peer.link else { return Verdict::New };
        let Some(present) = self.links.get(&old) else { return Verdict::New };
        let dialed_here = offer.dialed.is_some();
        if peer.linked_as == Some(offer.incarnation) {
            // Both ends decide alike: the link that the smaller id dialed wins.
            let wins = present.dialed_here == dialed_here || dialed_here == (*me < offer.node);
            return if wins { Verdict::Replace(old) } else { Verdict::Refuse(Refusal::Duplicate) };
        }
        let proof_of_life = self.settings.heartbeat / 2;
        match offer.present_heard {
            Some(heard) if now.since(heard) < proof_of_life => {
                Verdict::Refuse(Refusal::IdTaken { id: offer.node.clone() })
            }
            _ => Verdict::Replace(old),
        }
    }

    fn accept(&mut self, now: Time, offer: LinkOffer, out: &mut Outbox<Command>) {
        let LinkOffer { link, node, incarnation, .. } = offer.clone();
        self.make_room(&node, out);
        let Some(peer) = self.entry(now, &node, now) else {
            out.push(Command::Refuse { link, refusal: Refusal::Busy });
            return;
        };
        if std::mem::take(&mut peer.dialing) {
            out.push(Command::CancelDial { target: DialTarget::Peer(node.clone()) });
        }
        let teller = peer.charged_to().filter(|_| offer.dialed.is_some()).cloned();
        peer.forget_tellers();
        peer.link = Some(link);
        peer.linked_as = Some(incarnation);
        peer.last_news = now;
        let announcements = appear(&mut peer.status, offer.clone());
        self.peers.settle();
        if let Some(teller) = teller {
            self.peers.reward(&teller);
        }
        if self.links.is_empty() {
            self.table_sent = now;
        }
        self.links.insert(
            link,
            LinkEntry {
                node: node.clone(),
                dialed_here: offer.dialed.is_some(),
                peer_heartbeat: offer.heartbeat.max(SHORTEST_HEARTBEAT),
                up_since: now,
                heard: now,
                sent: now,
                known_arrived: false,
                introduced: false,
            },
        );
        out.push(Command::Accept { link });
        out.push(Command::Send { link, words: ControlMessage::Status(Box::new(self.own.clone())) });
        for known in self.table_for(&node) {
            out.push(Command::Send { link, words: ControlMessage::Known(known) });
        }
        for event in announcements {
            out.push(Command::Announce(event));
        }
    }

    pub(super) fn on_link_down(
        &mut self,
        now: Time,
        link: LinkKey,
        reason: LostReason,
        goodbye: bool,
        out: &mut Outbox<Command>,
    ) {
        let Some(entry) = self.links.remove(&link) else { return };
        for seed in self.seeds.values_mut() {
            if std::mem::take(&mut seed.linked_otherwise) || seed.peer.as_ref() == Some(&entry.node) {
                seed.backoff = Backoff::due_at(now);
            }
        }
        let first_dial = self.first_dial(now, &entry.node);
        let Some(peer) = self.peers.get_mut(&entry.node) else { return };
        peer.link = None;
        peer.last_news = now;
        match &reason {
            LostReason::Misbehaved { .. } | LostReason::TooSlow { .. } => peer.backoff.punished(now),
            _ if now.since(entry.up_since) < SHORT_LIFE => peer.backoff.failed(now),
            _ => peer.backoff = Backoff::due_at(first_dial),
        }
        let Some(status) = &mut peer.status else { return };
        status.state = if goodbye { NodeState::Stopped } else { NodeState::Lost(reason) };
        let status = status.clone();
        self.peers.settle();
        self.leave_orphans(now, &entry.node);
        out.push(Command::Announce(NodeEvent::Gone(status.clone())));
        self.tell_others(&entry.node, &status, out);
        self.drop_onlooker(&status, out);
    }

    /// A node is gone. Peers that only it told of are forgotten soon, the others are charged to another teller.
    fn leave_orphans(&mut self, now: Time, teller: &NodeId) {
        for id in self.peers.charged_to(teller) {
            let Some(peer) = self.peers.get(&id) else { continue };
            let is_linked = |id: &&NodeId| self.peers.get(id).is_some_and(|voucher| voucher.link.is_some());
            let other = peer.vouchers().find(is_linked).cloned();
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            match other {
                Some(other) => peer.teller = Some(other),
                None => peer.orphaned = Some(now),
            }
        }
        self.peers.settle();
        self.peers.drop_teller(teller);
    }

    /// The links of which something is due, to be sampled for [`Event::Ticked`](super::Event::Ticked).
    pub(crate) fn due_links(&self, now: Time) -> Vec<LinkKey> {
        self.links.due(now)
    }

    pub(super) fn on_tick(&mut self, now: Time, samples: &[LinkSample], out: &mut Outbox<Command>) {
        let heartbeat = self.settings.heartbeat;
        // A tick this late means that this process was suspended and could not receive heartbeats.
        if now.since(self.last_tick) > heartbeat && self.last_tick != Time::ZERO {
            self.silence_from = now;
        }
        self.last_tick = now;
        let mut silent = Vec::new();
        for sample in samples {
            let silence_from = self.silence_from;
            let speaks = self.links.change(sample.link, |entry| {
                entry.heard = sample.heard.max(silence_from).max(entry.up_since);
                entry.sent = sample.sent.max(entry.sent);
                if now.since(entry.heard) >= heartbeat {
                    return None;
                }
                let speaks = now.since(entry.sent) >= heartbeat.min(entry.peer_heartbeat) / 4;
                if speaks {
                    entry.sent = now;
                }
                Some(speaks)
            });
            match speaks {
                Some(None) => silent.push(sample.link),
                Some(Some(true)) => {
                    out.push(Command::Send { link: sample.link, words: ControlMessage::Heartbeat });
                }
                Some(Some(false)) | None => {}
            }
        }
        for link in silent {
            let heartbeat_ms = u64::try_from(heartbeat.as_millis()).unwrap_or(u64::MAX);
            let reason = LostReason::Silent { heartbeat_ms };
            out.push(Command::Close { link, reason: reason.clone() });
            self.on_link_down(now, link, reason, false, out);
        }
        self.forget_old(now, out);
        self.repeat_table(now, out);
    }

    pub(super) fn next_heartbeat_check(&self) -> Time {
        // Rounded up a little, so that many links share one wake-up.
        let together = self.last_tick + self.links.shortest_interval() / 16;
        self.links.next_due().map_or(Time::NEVER, |due| due.max(together))
    }

    pub(super) fn on_stopping(&mut self, out: &mut Outbox<Command>) {
        self.stopping = true;
        for link in self.links.keys() {
            out.push(Command::Send { link: *link, words: ControlMessage::Goodbye });
        }
    }
}

/// Updates a peer's status for a new link, and returns the changes for watchers.
fn appear(status: &mut Option<NodeStatus>, offer: LinkOffer) -> Vec<NodeEvent> {
    let mut events = Vec::new();
    match status {
        Some(known) if known.incarnation == offer.incarnation => {
            if known.state.is_live() {
                return events;
            }
            known.state = NodeState::Running;
            events.push(NodeEvent::Appeared(known.clone()));
        }
        other => {
            if let Some(mut past) = other.take().filter(|s| s.state.is_live()) {
                past.state = NodeState::Lost(LostReason::Replaced);
                events.push(NodeEvent::Gone(past));
            }
            let fresh = provisional(offer);
            events.push(NodeEvent::Appeared(fresh.clone()));
            *other = Some(fresh);
        }
    }
    events
}

/// The status known from a handshake; the node's own status follows.
fn provisional(offer: LinkOffer) -> NodeStatus {
    NodeStatus {
        id: offer.node,
        incarnation: offer.incarnation,
        kind: offer.kind,
        state: NodeState::Running,
        resources: Default::default(),
        handles: Vec::new(),
        topics: Vec::new(),
        addresses: offer.addresses.into_iter().take(MAX_ADDRESSES).collect(),
        jobs_running: 0,
        uses: Vec::new(),
        jobs_done: 0,
        since_unix_ms: offer.incarnation.0 / 1_000,
        version: 0,
        store: None,
    }
}
