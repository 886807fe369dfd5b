//! Gossip: what members report about themselves and about the nodes they are linked to.
//!
//! Only a node that is or was linked to a peer reports it, so that a dead node does not live on in gossip. First-hand
//! knowledge is never overridden by reports of others.

use super::backoff::Backoff;
use super::links::LinkEntry;
use super::membership::{FORGET_AFTER, MAX_PEERS};
use super::peer::{PeerEntry, weight_of};
use super::{Command, ControlMessage, LinkKey, Membership, NodeEvent};
use phalanx_types::{NodeId, Outbox, Time};
use phalanx_wire::node::{LostReason, NodeKind, NodeState, NodeStatus, PeerAddr};
use phalanx_wire::usage::MAX_USES;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most text in one status, so that no member can fill another's memory.
const MAX_TEXT: usize = 16 << 10;
/// Statuses per message: even the longest ones stay below the frame limit.
const KNOWN_PER_MESSAGE: usize = 48;

/// The most linked nodes that a node is told of at once, and that are told of one node.
const TABLE: usize = 512;
const TOLD_AT_ONCE: usize = 64;
/// The most links on which the table is repeated at once.
const REPEATED_AT_ONCE: usize = 64;

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
        let Some(node) = self.links.get(&link).map(|entry| entry.node.clone()) else { return };
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let Some(known) = &mut peer.status else { return };
        let stale = heard.version < known.version;
        if heard.id != node || peer.linked_as != Some(heard.incarnation) || stale {
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
        let introduced = self.links.change(link, |entry| std::mem::replace(&mut entry.introduced, true));
        if introduced == Some(false) {
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
        let arrived = |entry: &mut LinkEntry| {
            entry.known_arrived = true;
            entry.node.clone()
        };
        let Some(teller) = self.links.change(link, arrived) else { return };
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
        if self.peers.get(&heard.id).is_some_and(|known| known.link.is_some()) {
            return;
        }
        if !self.has_room_for(teller, &heard, out) {
            return;
        }
        let Some(peer) = self.entry(now, &heard.id, first_dial) else { return };
        peer.vouch(teller);
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
        }
        for event in events {
            out.push(Command::Announce(event.clone()));
            self.drop_onlooker(event.status(), out);
        }
    }

    /// Whether there is room for what a linked node tells of another one: within its quota, and within what all may take.
    /// A node that has told of less than others takes the place of what they told.
    fn has_room_for(&mut self, teller: &NodeId, heard: &NodeStatus, out: &mut Outbox<Command>) -> bool {
        self.peers.settle();
        let known = self.peers.get(&heard.id);
        if known.is_some_and(|known| known.charged_to().is_none()) {
            return true;
        }
        let is_new = known.is_none();
        let more = weight_of(heard).saturating_sub(known.map_or(0, PeerEntry::weight));
        if !self.peers.may_tell(teller, more, is_new) {
            return false;
        }
        let is_full = is_new && self.peers.len() >= MAX_PEERS;
        if !is_full && !self.peers.is_full_of_hearsay(more) {
            return true;
        }
        let Some(other) = self.peers.heard_too_much(teller, more).filter(|_| is_new) else { return false };
        self.forget(other, "displaced", out);
        true
    }

    /// Drops an observer that left: every listing command is one, and they would pile up.
    pub(super) fn drop_onlooker(&mut self, status: &NodeStatus, out: &mut Outbox<Command>) {
        if is_past_onlooker(status) && self.peers.remove(&status.id).is_some() {
            out.push(Command::Forget(status.id.clone()));
        }
    }

    /// Reports to linked nodes except the one concerned: to all of them while they are few, else to those that follow
    /// this node in the order of ids. Other nodes that see the same tell the rest.
    pub(super) fn tell_others(&self, node: &NodeId, status: &NodeStatus, out: &mut Outbox<Command>) {
        let others = self.peers.linked_from(&self.settings.me).filter(|(id, _)| *id != node);
        let mut links: Vec<LinkKey> = others.take(TOLD_AT_ONCE).map(|(_, link)| link).collect();
        links.sort_unstable();
        for link in links {
            out.push(Command::Send { link, words: ControlMessage::Known(vec![status.clone()]) });
        }
    }

    /// Nodes that this node is linked to or saw leave, in messages of bounded length; at least one message.
    pub(super) fn table_for(&self, node: &NodeId) -> Vec<Vec<NodeStatus>> {
        let left = self.peers.once_linked().take(TABLE).filter(|(_, p)| p.is_witnessed() && !p.is_live());
        let mut table = self.tell_of(node, left);
        if table.is_empty() {
            table.push(Vec::new());
        }
        table
    }

    /// Reports to linked nodes again which other nodes are linked to this one.
    ///
    /// Two nodes that could not reach each other eventually forget each other; a node that is linked to both
    /// reintroduces them. With many links, some are told at a time.
    pub(super) fn repeat_table(&mut self, now: Time, out: &mut Outbox<Command>) {
        if now < self.next_repeat() {
            return;
        }
        self.table_sent = now;
        let last = self.repeated_to.as_ref().unwrap_or(&self.settings.me);
        let next: Vec<(NodeId, LinkKey)> = self
            .peers
            .linked_from(last)
            .take(REPEATED_AT_ONCE)
            .map(|(id, link)| (id.clone(), link))
            .collect();
        self.repeated_to = next.last().map(|(id, _)| id.clone());
        let mut told = next;
        told.sort_unstable_by_key(|(_, link)| *link);
        for (node, link) in told {
            for known in self.tell_of(&node, std::iter::empty()) {
                out.push(Command::Send { link, words: ControlMessage::Known(known) });
            }
        }
    }

    pub(super) fn next_repeat(&self) -> Time {
        if self.links.is_empty() {
            return Time::NEVER;
        }
        let times = u32::try_from(self.links.len().div_ceil(REPEATED_AT_ONCE)).unwrap_or(u32::MAX);
        self.table_sent + REPEAT_AFTER / times.max(1)
    }

    /// What is known about linked peers except `node` and about some others, in messages of bounded length. With many
    /// links these are the peers that follow this node in the order of ids: a node that meets those hears of the next
    /// from them.
    fn tell_of<'a>(
        &'a self,
        node: &NodeId,
        others: impl Iterator<Item = (&'a NodeId, &'a PeerEntry)>,
    ) -> Vec<Vec<NodeStatus>> {
        let linked = self.peers.linked_from(&self.settings.me).take(TABLE + 1);
        let linked = linked.filter_map(|(id, _)| Some((id, self.peers.get(id)?)));
        let all: BTreeMap<&NodeId, &PeerEntry> = linked.chain(others).filter(|(id, _)| *id != node).collect();
        let table: Vec<NodeStatus> =
            all.into_values().filter_map(|p| p.status.clone()).filter(is_modest).collect();
        table.chunks(KNOWN_PER_MESSAGE).map(<[NodeStatus]>::to_vec).collect()
    }
}

fn is_past_onlooker(status: &NodeStatus) -> bool {
    status.kind == NodeKind::Observer && matches!(status.state, NodeState::Stopped)
}

/// Whether a status is short enough for others to accept it.
pub(crate) fn is_modest(status: &NodeStatus) -> bool {
    text_len(status) <= MAX_TEXT && status.uses.len() <= MAX_USES
}

/// About how many bytes the parts of a status take that have no fixed length.
pub(super) fn text_len(status: &NodeStatus) -> usize {
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
    // Ids of nodes have a bounded length, so the uses take what their number says.
    let uses = size_of_val(&status.uses[..]);
    names.chain(devices).chain(addresses).sum::<usize>() + reason + store + uses
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
