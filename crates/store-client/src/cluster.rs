//! The servers that a client talks to: one, or the nodes of a cluster.

use crate::StoreError;
use crate::address::StoreAddress;
use crate::backend::words;
use crate::connection::{Command, Connection, checked};
use crate::dial::Dial;
use crate::memory::Mapped;
use crate::node_link::{NodeLink, sent};
use crate::redirect::{Attempts, Next, Obstacle, Redirect};
use crate::slot_map::SlotMap;
use bytes::Bytes;
use phalanx_resp::{Reply, slot};
use phalanx_shared::WORTH_SHARING;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a node may take to say which node has which slot.
const LEARNING: Duration = Duration::from_secs(5);

/// Commands that may be sent again when their reply was lost: doing them twice is doing them once.
const REPEATABLE: [&str; 14] = [
    "AI.TENSORGET",
    "AI.TENSORSET",
    "EXISTS",
    "GET",
    "HEXISTS",
    "HGET",
    "HGETALL",
    "HMGET",
    "HSET",
    "INFO",
    "LLEN",
    "LRANGE",
    "PHALANX.WAIT",
    "TYPE",
];

/// A command and the key that decides which node carries it out.
#[derive(Debug, Clone)]
pub(crate) struct Keyed {
    pub(crate) key: Bytes,
    pub(crate) command: Command,
}

/// How commands are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sending {
    /// As they are; a reply must come within the time, if one is given.
    Plain(Option<Duration>),
    /// They only read: large values may be lent.
    Lend,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Servers {
    dial: Dial,
    /// Whether memory may be shared with servers.
    is_sharing: bool,
    links: BTreeMap<String, NodeLink>,
    /// Empty for one server.
    map: SlotMap,
}

/// A command without an answer.
#[derive(Debug)]
struct Open {
    at: usize,
    keyed: Keyed,
    target: Target,
}

#[derive(Debug)]
enum Target {
    Owner,
    /// A node that another one named.
    Moved(String),
    /// The same, to be asked with `ASKING`.
    Ask(String),
}

/// What one attempt left to do.
#[derive(Debug, Default)]
struct Remaining {
    open: Vec<Open>,
    trouble: Option<(Obstacle, StoreError)>,
}

impl Remaining {
    /// Leaves a command for the next attempt. The worst obstacle of all counts.
    fn add(&mut self, open: Open, obstacle: Obstacle, problem: impl FnOnce() -> StoreError) {
        self.open.push(open);
        match &self.trouble {
            Some((worst, _)) if *worst >= obstacle => {}
            _ => self.trouble = Some((obstacle, problem())),
        }
    }
}

impl Servers {
    pub(crate) fn connect(dial: Dial, is_sharing: bool) -> Result<Self, StoreError> {
        let mut servers = Self { dial, is_sharing, links: BTreeMap::new(), map: SlotMap::default() };
        match &servers.dial.address {
            StoreAddress::Cluster(_) => servers.learn_slots()?,
            one => {
                let node = one.to_string();
                servers.link(&node)?;
            }
        }
        Ok(servers)
    }

    /// What connects to the same servers again.
    pub(crate) fn dial(&self) -> &Dial {
        &self.dial
    }

    /// Links that are opened from now on share memory, or do not.
    pub(crate) fn set_sharing(&mut self, is_sharing: bool) {
        self.is_sharing = is_sharing;
        self.links.clear();
    }

    /// Whether large values go through shared memory, as far as is known.
    pub(crate) fn is_sharing(&self) -> bool {
        self.is_sharing && self.links.values().all(NodeLink::is_sharing)
    }

    /// Treats the only server as a node of a cluster.
    pub(crate) fn become_cluster(&mut self) -> Result<(), StoreError> {
        if let StoreAddress::Tcp(node) = &self.dial.address {
            self.dial.address = StoreAddress::Cluster(vec![node.clone()]);
            self.learn_slots()?;
        }
        Ok(())
    }

    /// Learns which node has which slot, from the first node that answers.
    fn learn_slots(&mut self) -> Result<(), StoreError> {
        let StoreAddress::Cluster(seeds) = self.dial.address.clone() else { return Ok(()) };
        let known: BTreeSet<String> = self.map.nodes().into_iter().map(str::to_owned).collect();
        let (linked, others): (Vec<_>, Vec<_>) =
            known.into_iter().chain(seeds).partition(|node| self.links.contains_key(node));
        let mut problem = StoreError::Unexpected { what: "a cluster without nodes" };
        for node in linked.into_iter().chain(others) {
            match self.ask_slots(&node) {
                Ok(map) => {
                    self.map = map;
                    return Ok(());
                }
                Err(error) => {
                    self.links.remove(&node);
                    problem = error;
                }
            }
        }
        Err(problem)
    }

    fn ask_slots(&mut self, node: &str) -> Result<SlotMap, StoreError> {
        let replies = self.link(node)?.call(vec![words([b"CLUSTER", b"SLOTS"])], Some(LEARNING))?;
        let map = SlotMap::read(checked(replies.into_iter().next())?, node);
        map.ok_or(StoreError::Unexpected { what: "slots of a cluster" })
    }

    pub(crate) fn link(&mut self, node: &str) -> Result<&mut NodeLink, StoreError> {
        if !self.links.contains_key(node) {
            let address = match &self.dial.address {
                StoreAddress::Cluster(_) => StoreAddress::Tcp(node.to_owned()),
                one => one.clone(),
            };
            let connection = Connection::open(&address, &self.dial.access)?;
            self.links.insert(node.to_owned(), NodeLink::new(connection, self.is_sharing));
        }
        self.links.get_mut(node).ok_or(StoreError::Unexpected { what: "no connection" })
    }

    pub(crate) fn is_cluster(&self) -> bool {
        !self.map.is_empty()
    }

    /// The nodes that have keys.
    pub(crate) fn masters(&self) -> Vec<String> {
        match self.is_cluster() {
            true => self.map.masters().into_iter().map(str::to_owned).collect(),
            false => vec![self.dial.address.to_string()],
        }
    }

    fn owner(&self, key: &[u8]) -> Option<String> {
        match self.is_cluster() {
            true => self.map.owner(key).map(str::to_owned),
            false => Some(self.dial.address.to_string()),
        }
    }

    /// Sends a command to one node.
    ///
    /// # Errors
    /// The node cannot be reached.
    pub(crate) fn call_at(&mut self, node: &str, command: Command) -> Result<Reply, StoreError> {
        checked(Some(self.call_node(node, command, None)?))
    }

    /// The same with a bound for how long the reply may take, and the reply may be the node's refusal.
    pub(crate) fn call_node(
        &mut self,
        node: &str,
        command: Command,
        patience: Option<Duration>,
    ) -> Result<Reply, StoreError> {
        let called = self.link(node)?.call(vec![command], patience);
        let mut replies = called.inspect_err(|_lost| drop(self.links.remove(node)))?;
        replies.pop().ok_or(StoreError::Unexpected { what: "no reply" })
    }

    /// Stores a value under a command that it is appended to.
    ///
    /// # Errors
    /// The node of the key cannot be reached, is full or refuses it.
    pub(crate) fn store_bytes(
        &mut self,
        key: Bytes,
        mut command: Command,
        value: &Bytes,
    ) -> Result<(), StoreError> {
        if value.len() >= WORTH_SHARING
            && let Some(node) = self.owner(&key)
        {
            match self.link(&node).and_then(|link| link.store_shared(&command, value)) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // It is sent again below, on a new connection.
                Err(StoreError::Lost { .. } | StoreError::Connect { .. }) => drop(self.links.remove(&node)),
                Err(error) => return Err(error),
            }
        }
        command.push(value.clone());
        let replies = self.call(vec![Keyed { key, command }], Sending::Plain(None))?;
        checked(replies.into_iter().next()).map(|_stored| ())
    }

    /// The open link to the node of a key.
    pub(crate) fn link_of(&mut self, key: &str) -> Option<(String, &mut NodeLink)> {
        let node = self.owner(key.as_bytes())?;
        let link = self.links.get_mut(&node)?;
        Some((node, link))
    }

    /// Sends commands, all that are for one node together; gives their replies.
    ///
    /// # Errors
    /// A node cannot be reached, and no other node takes its place.
    pub(crate) fn call(&mut self, commands: Vec<Keyed>, sending: Sending) -> Result<Vec<Reply>, StoreError> {
        let replies = self.call_mapped(commands, sending)?;
        Ok(replies.into_iter().map(|mapped| mapped.reply).collect())
    }

    /// The same, and says which replies have values that may be kept.
    pub(crate) fn call_mapped(
        &mut self,
        commands: Vec<Keyed>,
        sending: Sending,
    ) -> Result<Vec<Mapped>, StoreError> {
        let began = Instant::now();
        let mut attempts = Attempts::new(self.dial.takeover);
        let mut replies: Vec<Option<Mapped>> = commands.iter().map(|_| None).collect();
        let as_open = |(at, keyed)| Open { at, keyed, target: Target::Owner };
        let mut open: Vec<Open> = commands.into_iter().enumerate().map(as_open).collect();
        loop {
            let remaining = self.attempt(open, sending, &mut replies)?;
            let Some((obstacle, problem)) = remaining.trouble else {
                return Ok(replies.into_iter().flatten().collect());
            };
            open = remaining.open;
            match attempts.next(obstacle, began.elapsed()) {
                Next::Now => {}
                Next::After(pause) => {
                    std::thread::sleep(pause);
                    // While no node answers, the old map stays.
                    let _unknown = self.learn_slots();
                }
                Next::GiveUp => return Err(problem),
            }
        }
    }

    fn attempt(
        &mut self,
        open: Vec<Open>,
        sending: Sending,
        replies: &mut [Option<Mapped>],
    ) -> Result<Remaining, StoreError> {
        let mut remaining = Remaining::default();
        let mut groups: BTreeMap<(String, bool), Vec<Open>> = BTreeMap::new();
        for open in open {
            let target = match &open.target {
                Target::Owner => self.owner(&open.keyed.key).map(|node| (node, false)),
                Target::Moved(node) => Some((node.clone(), false)),
                Target::Ask(node) => Some((node.clone(), true)),
            };
            match target {
                Some(target) => groups.entry(target).or_default().push(open),
                None => {
                    let slot = slot(&open.keyed.key);
                    remaining.add(open, Obstacle::Gone { is_final: true }, || StoreError::NoNode { slot })
                }
            }
        }
        let mut is_stale = false;
        for ((node, is_asking), group) in groups {
            match self.send((&node, is_asking), &group, sending) {
                Ok(answers) => {
                    for (open, answer) in group.into_iter().zip(answers) {
                        let redirect = Redirect::read(&answer.reply, &node).filter(|_| self.is_cluster());
                        is_stale |= matches!(redirect, Some(Redirect::Moved(_)));
                        if matches!(redirect, Some(Redirect::NotNow(_))) {
                            // It may have replicas that it did not have before.
                            let _unknown = self.learn_slots();
                        }
                        match (redirect, replies.get_mut(open.at)) {
                            (Some(redirect), _) => self.redirected(&mut remaining, open, redirect),
                            (None, Some(reply)) => *reply = Some(answer),
                            (None, None) => {}
                        }
                    }
                }
                Err(error) => self.node_lost(&node, group, error, &mut remaining)?,
            }
        }
        if is_stale {
            // The nodes said where to go, with or without a new map.
            let _unknown = self.learn_slots();
        }
        Ok(remaining)
    }

    fn redirected(&self, remaining: &mut Remaining, open: Open, redirect: Redirect) {
        let circles = || StoreError::Unexpected { what: "a cluster that sends commands in circles" };
        let Open { at, keyed, .. } = open;
        match redirect {
            Redirect::Moved(node) => {
                remaining.add(Open { at, keyed, target: Target::Moved(node) }, Obstacle::Elsewhere, circles)
            }
            Redirect::Ask(node) => {
                remaining.add(Open { at, keyed, target: Target::Ask(node) }, Obstacle::Elsewhere, circles)
            }
            Redirect::NotNow(text) => {
                let is_final = text.starts_with("CLUSTERDOWN") && !self.map.any_replica();
                let open = Open { at, keyed, target: Target::Owner };
                remaining.add(open, Obstacle::Gone { is_final }, || StoreError::Down { text })
            }
        }
    }

    /// Leaves commands for the next attempt if they may be sent again.
    fn node_lost(
        &mut self,
        node: &str,
        group: Vec<Open>,
        error: StoreError,
        remaining: &mut Remaining,
    ) -> Result<(), StoreError> {
        self.links.remove(node);
        let was_sent = match &error {
            StoreError::Connect { .. } => false,
            StoreError::Lost { .. } => true,
            _ => return Err(error),
        };
        if was_sent && !group.iter().all(|open| is_repeatable(&open.keyed.command)) {
            return Err(error);
        }
        // Other nodes know of replicas that came since, and of one that has taken over.
        let _unknown = self.learn_slots();
        let obstacle = match self.is_cluster() {
            true if group.iter().all(|open| self.owner(&open.keyed.key).as_deref() != Some(node)) => {
                Obstacle::Elsewhere
            }
            true => {
                Obstacle::Gone { is_final: !group.iter().all(|open| self.map.has_replica(&open.keyed.key)) }
            }
            false if was_sent => Obstacle::Broken,
            false => Obstacle::Gone { is_final: true },
        };
        let mut error = Some(error);
        for Open { at, keyed, .. } in group {
            let problem = || error.take().unwrap_or(StoreError::Unexpected { what: "a lost node" });
            remaining.add(Open { at, keyed, target: Target::Owner }, obstacle, problem);
        }
        Ok(())
    }

    fn send(
        &mut self,
        (node, is_asking): (&str, bool),
        group: &[Open],
        sending: Sending,
    ) -> Result<Vec<Mapped>, StoreError> {
        let asking = || is_asking.then(|| words([b"ASKING"]));
        let commands: Vec<Command> =
            group.iter().flat_map(|open| asking().into_iter().chain([open.keyed.command.clone()])).collect();
        let link = self.link(node)?;
        let replies = match sending {
            Sending::Lend if !is_asking => link.read(commands)?,
            Sending::Lend => sent(link.call(commands, None)?),
            Sending::Plain(patience) => sent(link.call(commands, patience)?),
        };
        let step = if is_asking { 2 } else { 1 };
        Ok(replies.into_iter().skip(step - 1).step_by(step).collect())
    }
}

fn is_repeatable(command: &Command) -> bool {
    let name = command.first().map(|name| &name[..]).unwrap_or_default();
    REPEATABLE.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}
