//! The servers that a client talks to: one, or the nodes of a cluster.

use crate::StoreError;
use crate::address::StoreAddress;
use crate::connection::{Command, Connection, checked};
use bytes::Bytes;
use phalanx_resp::{Reply, slot};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a cluster may send a command elsewhere before that is an error.
const MOVES: usize = 5;

/// See the module.
#[derive(Debug)]
pub(crate) struct Servers {
    address: StoreAddress,
    password: Option<String>,
    links: BTreeMap<String, Connection>,
    /// The first slot of each range of a cluster, and the node that has it; empty for one server.
    slots: BTreeMap<u16, String>,
}

impl Servers {
    pub(crate) fn connect(address: StoreAddress, password: Option<String>) -> Result<Self, StoreError> {
        let mut servers = Self { address, password, links: BTreeMap::new(), slots: BTreeMap::new() };
        servers.refresh()?;
        Ok(servers)
    }

    /// Opens what is not open, and learns which node has which slot.
    fn refresh(&mut self) -> Result<(), StoreError> {
        let StoreAddress::Cluster(seeds) = self.address.clone() else {
            return self.link(&self.address.to_string()).map(|_open| ());
        };
        let mut problem = StoreError::Unexpected { what: "a cluster without nodes" };
        for seed in seeds {
            match self.learn_slots(&seed) {
                Ok(()) => return Ok(()),
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }

    fn learn_slots(&mut self, seed: &str) -> Result<(), StoreError> {
        let wrong = || StoreError::Unexpected { what: "slots of a cluster" };
        let ask = vec![Bytes::from_static(b"CLUSTER"), Bytes::from_static(b"SLOTS")];
        let reply = checked(self.link(seed)?.call(vec![ask], None)?.pop())?;
        let Reply::Array(ranges) = reply else { return Err(wrong()) };
        let mut slots = BTreeMap::new();
        for range in ranges {
            let Reply::Array(fields) = range else { return Err(wrong()) };
            let [Reply::Integer(first), Reply::Integer(_last), Reply::Array(node), ..] = &fields[..] else {
                return Err(wrong());
            };
            let [Reply::Bulk(host), Reply::Integer(port), ..] = &node[..] else { return Err(wrong()) };
            let host = match &host[..] {
                // A node that does not know its own address is the one that was asked.
                b"" => seed.rsplit_once(':').map_or(seed, |(host, _)| host).to_owned(),
                host => String::from_utf8_lossy(host).into_owned(),
            };
            slots.insert(u16::try_from(*first).ok().ok_or_else(wrong)?, format!("{host}:{port}"));
        }
        if slots.is_empty() {
            return Err(wrong());
        }
        self.slots = slots;
        Ok(())
    }

    fn link(&mut self, node: &str) -> Result<&mut Connection, StoreError> {
        if !self.links.contains_key(node) {
            let address = match &self.address {
                StoreAddress::Cluster(_) => StoreAddress::Tcp(node.to_owned()),
                one => one.clone(),
            };
            let link = Connection::open(&address, self.password.as_deref())?;
            self.links.insert(node.to_owned(), link);
        }
        self.links.get_mut(node).ok_or(StoreError::Unexpected { what: "no connection" })
    }

    /// The node that has a key.
    pub(crate) fn node_of(&self, key: &[u8]) -> String {
        let node = self.slots.range(..=slot(key)).next_back().map(|(_, node)| node.clone());
        node.unwrap_or_else(|| self.address.to_string())
    }

    pub(crate) fn is_cluster(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Sends commands that belong to one key, together; gives their replies.
    ///
    /// # Errors
    /// The node of the key cannot be reached.
    pub(crate) fn call(
        &mut self,
        key: &[u8],
        commands: Vec<Command>,
        patience: Option<Duration>,
    ) -> Result<Vec<Reply>, StoreError> {
        let mut replies: Vec<Option<Reply>> = commands.iter().map(|_| None).collect();
        let mut due =
            BTreeMap::from([(self.node_of(key), commands.into_iter().enumerate().collect::<Vec<_>>())]);
        for _ in 0..MOVES {
            let mut moved: BTreeMap<String, Vec<(usize, Command)>> = BTreeMap::new();
            for (node, commands) in std::mem::take(&mut due) {
                let called = self
                    .link(&node)?
                    .call(commands.iter().map(|(_, command)| command.clone()).collect(), patience);
                let answers = called.inspect_err(|_lost| drop(self.links.remove(&node)))?;
                let mut learned = false;
                for ((at, command), answer) in commands.into_iter().zip(answers) {
                    match moved_to(&answer).filter(|_| self.is_cluster()) {
                        Some(other) => {
                            learned = learned || self.learn_slots(&node).is_ok();
                            moved.entry(other).or_default().push((at, command));
                        }
                        None => {
                            replies.get_mut(at).into_iter().for_each(|reply| *reply = Some(answer.clone()))
                        }
                    }
                }
            }
            if moved.is_empty() {
                return Ok(replies.into_iter().flatten().collect());
            }
            due = moved;
        }
        Err(StoreError::Unexpected { what: "a cluster that sends commands in circles" })
    }

    /// Whether the one server is there and has sent nothing: a connection that ended says so.
    pub(crate) fn is_quiet(&self) -> bool {
        self.links.len() == 1 && self.links.values().all(Connection::is_quiet)
    }

    /// Whether the connection for a key was lost and not opened again.
    pub(crate) fn is_open(&self, key: &[u8]) -> bool {
        self.links.contains_key(&self.node_of(key))
    }
}

/// The node that has the slot now, of a refusal `MOVED slot host:port`.
fn moved_to(reply: &Reply) -> Option<String> {
    let Reply::Error(text) = reply else { return None };
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split(' ');
    (words.next() == Some("MOVED")).then(|| words.nth(1).map(str::to_owned)).flatten()
}
