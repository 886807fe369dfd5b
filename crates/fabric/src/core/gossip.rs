//! Gossip: what members report about themselves and about the nodes they are linked to.
//!
//! Only a node that is or was linked to a peer reports it, so that a dead node does not live on in gossip. First-hand
//! knowledge is never overridden by reports of others.

use super::backoff::Backoff;
use super::membership::FORGET_AFTER;
use super::peer::PeerEntry;
use super::{Command, ControlMessage, LinkKey, Membership, NodeEvent};
use phalanx_types::{NodeId, Outbox, Time};
use phalanx_wire::node::{LostReason, NodeKind, NodeState, NodeStatus, PeerAddr};
use std::time::Duration;

/// The most text in one status, so that no member can fill another's memory.
const MAX_TEXT: usize = 16 << 10;
/// Statuses per message: even the longest ones stay below the frame limit.
const KNOWN_PER_MESSAGE: usize = 48;

/// How often this node reports its links to all linked nodes again.
const REPEAT_AFTER: Duration = Duration::from_secs(FORGET_AFTER.as_secs() / 2);

impl Membership {
    pub(super) fn on_own_status(&mut self, now: Time, status: NodeStatus, out: &mut Outbox<Command>) {
        let urgent = status.state != self.own.state || status.topics != self.own.topics;
        self.own_changed |= status.version > self.own.version;
        self.own = status;
        if urgent {
            self.broadcast_own_status(now, out);
        }
    }

    pub(super) fn broadcast_own_status(&mut self, now: Time, out: &mut Outbox<Command>) {
        self.own_changed = false;
        self.own_sent = Some(now);
        for link in self.links.keys() {
            out.push(Command::Send {
                link: *link,
                words: ControlMessage::Status(Box::new(self.own.clone())),
            });
        }
        out.push(Command::Announce(NodeEvent::Changed(self.own.clone())));
    }

    pub(super) fn on_status(
        &mut self,
        now: Time,
        link: LinkKey,
        heard: NodeStatus,
        out: &mut Outbox<Command>,
    ) {
        let Some(entry) = self.links.get_mut(&link) else { return };
        let Some(peer) = self.peers.get_mut(&entry.node) else { return };
        let Some(known) = &mut peer.status else { return };
        let stale = heard.version < known.version;
        if heard.id != entry.node || peer.linked_as != Some(heard.incarnation) || stale {
            return;
        }
        if !heard.state.is_live() || !is_modest(&heard) {
            // Its end is detected when the link ends.
            return;
        }
        peer.last_news = now;
        let addresses = heard.addresses.clone();
        if *known != heard {
            *known = heard.clone();
            out.push(Command::Announce(NodeEvent::Changed(heard.clone())));
        }
        if !std::mem::replace(&mut entry.introduced, true) {
            let node = entry.node.clone();
            self.tell_others(&node, &heard, out);
        }
        self.learn_relays(&addresses, out);
    }

    pub(super) fn on_known(
        &mut self,
        now: Time,
        link: LinkKey,
        known: Vec<NodeStatus>,
        out: &mut Outbox<Command>,
    ) {
        let Some(entry) = self.links.get_mut(&link) else { return };
        entry.known_arrived = true;
        let teller = entry.node.clone();
        for heard in known {
            if heard.id != self.settings.me && heard.id != teller && is_modest(&heard) {
                self.merge(now, &teller, heard, out);
            }
        }
    }

    fn merge(&mut self, now: Time, teller: &NodeId, heard: NodeStatus, out: &mut Outbox<Command>) {
        let first_dial = self.first_dial(now, &heard.id);
        if is_past_onlooker(&heard) && !self.peers.contains_key(&heard.id) {
            return;
        }
        let Some(peer) = self.entry(now, &heard.id, first_dial) else { return };
        if peer.link.is_some() {
            return;
        }
        let events = match peer.incarnation() {
            Some(life) if heard.incarnation < life => return,
            Some(life) if heard.incarnation == life => peer.hear_of_this_life(heard),
            _ => {
                if !peer.dialing {
                    peer.backoff = Backoff::due_at(first_dial);
                }
                peer.hear_of_new_life(heard)
            }
        };
        if !events.is_empty() {
            peer.last_news = now;
            peer.told_by = Some(teller.clone());
        }
        for event in events {
            out.push(Command::Announce(event.clone()));
            self.drop_onlooker(event.status(), out);
        }
    }

    /// Drops an observer that left: every listing command is one, and they would pile up.
    pub(super) fn drop_onlooker(&mut self, status: &NodeStatus, out: &mut Outbox<Command>) {
        if is_past_onlooker(status) && self.peers.remove(&status.id).is_some() {
            out.push(Command::Forget(status.id.clone()));
        }
    }

    /// Reports to every linked node except the one concerned.
    pub(super) fn tell_others(&self, node: &NodeId, status: &NodeStatus, out: &mut Outbox<Command>) {
        for (link, _) in self.links.iter().filter(|(_, l)| l.node != *node) {
            out.push(Command::Send { link: *link, words: ControlMessage::Known(vec![status.clone()]) });
        }
    }

    /// All nodes that this node is linked to or saw leave, in messages of bounded length; at least one message.
    pub(super) fn table_for(&self, node: &NodeId) -> Vec<Vec<NodeStatus>> {
        let seen = |p: &PeerEntry| p.link.is_some() || p.is_witnessed() && !p.is_live();
        let mut table = self.tell_of(node, seen);
        if table.is_empty() {
            table.push(Vec::new());
        }
        table
    }

    /// Reports to every linked node again which other nodes are linked to this one.
    ///
    /// Two nodes that could not reach each other eventually forget each other; a node that is linked to both
    /// reintroduces them.
    pub(super) fn repeat_table(&mut self, now: Time, out: &mut Outbox<Command>) {
        if now < self.next_repeat() {
            return;
        }
        self.table_sent = now;
        for (link, entry) in &self.links {
            for known in self.tell_of(&entry.node, |p| p.link.is_some()) {
                out.push(Command::Send { link: *link, words: ControlMessage::Known(known) });
            }
        }
    }

    pub(super) fn next_repeat(&self) -> Time {
        if self.links.is_empty() { Time::NEVER } else { self.table_sent + REPEAT_AFTER }
    }

    /// What is known about some of the peers except `node`, in messages of bounded length.
    fn tell_of(&self, node: &NodeId, of: impl Fn(&PeerEntry) -> bool) -> Vec<Vec<NodeStatus>> {
        let others = self.peers.iter().filter(|(id, p)| *id != node && of(p));
        let table: Vec<NodeStatus> = others.filter_map(|(_, p)| p.status.clone()).filter(is_modest).collect();
        table.chunks(KNOWN_PER_MESSAGE).map(<[NodeStatus]>::to_vec).collect()
    }
}

fn is_past_onlooker(status: &NodeStatus) -> bool {
    status.kind == NodeKind::Observer && matches!(status.state, NodeState::Stopped)
}

/// Whether a status is short enough for others to accept it.
pub(crate) fn is_modest(status: &NodeStatus) -> bool {
    let names = status.handles.iter().chain(&status.topics).map(|s| s.len() + size_of_val(s));
    let devices = status.resources.devices.iter().map(|d| d.name.len() + size_of_val(d));
    let addresses = status.addresses.iter().map(|a| match a {
        PeerAddr::Tcp(_) => size_of_val(a),
        PeerAddr::Relay(relay) => relay.len() + size_of_val(a),
    });
    let reason = match &status.state {
        NodeState::Lost(LostReason::LinkBroken { detail } | LostReason::Misbehaved { detail }) => {
            detail.len()
        }
        _ => 0,
    };
    let store = status.store.as_ref().map_or(0, |store| size_of_val(&store.addresses[..]));
    names.chain(devices).chain(addresses).sum::<usize>() + reason + store <= MAX_TEXT
}

impl PeerEntry {
    fn hear_of_new_life(&mut self, heard: NodeStatus) -> Vec<NodeEvent> {
        let mut events = Vec::new();
        if let Some(mut past) = self.status.take().filter(|s| s.state.is_live()) {
            past.state = NodeState::Lost(LostReason::Replaced);
            events.push(NodeEvent::Gone(past));
        }
        let live = heard.state.is_live();
        events.push(if live { NodeEvent::Appeared(heard.clone()) } else { NodeEvent::Gone(heard.clone()) });
        self.status = Some(heard);
        events
    }

    fn hear_of_this_life(&mut self, heard: NodeStatus) -> Vec<NodeEvent> {
        let witnessed = self.is_witnessed();
        let Some(known) = &mut self.status else { return Vec::new() };
        let newer = heard.version > known.version;
        match (&known.state, &heard.state) {
            (NodeState::Stopped, _) => Vec::new(),
            (_, NodeState::Stopped) => {
                *known = heard.clone();
                vec![NodeEvent::Gone(heard)]
            }
            // This node saw for itself that the peer cannot be reached.
            _ if witnessed => Vec::new(),
            (_, NodeState::Lost(_)) => {
                let was_live = known.state.is_live();
                if heard.version < known.version || !was_live {
                    return Vec::new();
                }
                *known = heard.clone();
                vec![NodeEvent::Gone(heard)]
            }
            (NodeState::Lost(_), _) if newer => {
                *known = heard.clone();
                vec![NodeEvent::Appeared(heard)]
            }
            (NodeState::Running | NodeState::Draining, _) if newer => {
                *known = heard.clone();
                vec![NodeEvent::Changed(heard)]
            }
            _ => Vec::new(),
        }
    }
}
