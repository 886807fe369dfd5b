//! The nodes registered at a relay, and the calls that wait for an answer.

use super::super::lock;
use crate::security::RelayToken;
use phalanx_types::NodeId;
use phalanx_wire::relay::{DomainTag, FromRelay, RelayRefusal};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

/// The most calls that wait for the called node.
const MAX_TICKETS: usize = 256;
/// The most calls that a registered node may be behind.
const MAX_CALLS: usize = 64;

/// The permits of a connection: one of the relay's and one of its domain's.
pub(super) type Places = (OwnedSemaphorePermit, OwnedSemaphorePermit);
/// A connection of a node that answered a call, with its permits.
pub(super) type Answered = (TcpStream, Places);

struct Registered {
    number: u64,
    calls: mpsc::Sender<FromRelay>,
}

struct Domain {
    token: RelayToken,
    nodes: BTreeMap<NodeId, Registered>,
    changed: watch::Sender<()>,
    /// Its share of the relay's connections.
    places: Arc<Semaphore>,
}

struct Ticket {
    tag: DomainTag,
    to: NodeId,
    answered: oneshot::Sender<Answered>,
}

#[derive(Default)]
struct RegistryState {
    domains: BTreeMap<DomainTag, Domain>,
    tickets: BTreeMap<u64, Ticket>,
    next: u64,
}

pub(super) struct Registry(Mutex<RegistryState>);

/// A node's entry in the registry while its connection lasts.
pub(super) struct Registration {
    pub(super) number: u64,
    pub(super) calls: mpsc::Receiver<FromRelay>,
    pub(super) changed: watch::Receiver<()>,
}

impl Registry {
    pub(super) fn new(tokens: Vec<RelayToken>, max_connections: usize) -> Self {
        let share = share(max_connections, tokens.len());
        let domain = |token| Domain {
            token,
            nodes: BTreeMap::new(),
            changed: watch::Sender::new(()),
            places: Arc::new(Semaphore::new(share)),
        };
        let domains = tokens.into_iter().map(|token| (*token.tag(), domain(token))).collect();
        Self(Mutex::new(RegistryState { domains, tickets: BTreeMap::new(), next: 0 }))
    }

    pub(super) fn token(&self, tag: &DomainTag) -> Option<RelayToken> {
        lock(&self.0).domains.get(tag).map(|d| d.token.clone())
    }

    /// Takes one of the permits of a domain.
    pub(super) fn enter(&self, tag: &DomainTag) -> Option<OwnedSemaphorePermit> {
        let places = lock(&self.0).domains.get(tag)?.places.clone();
        places.try_acquire_owned().ok()
    }

    /// Registers a node; an older registration of the same node ends.
    pub(super) fn register(&self, tag: &DomainTag, node: &NodeId) -> Option<Registration> {
        let mut state = lock(&self.0);
        state.next += 1;
        let number = state.next;
        let domain = state.domains.get_mut(tag)?;
        let (sender, calls) = mpsc::channel(MAX_CALLS);
        domain.nodes.insert(node.clone(), Registered { number, calls: sender });
        domain.changed.send_replace(());
        let mut changed = domain.changed.subscribe();
        changed.mark_changed();
        Some(Registration { number, calls, changed })
    }

    pub(super) fn leave(&self, tag: &DomainTag, node: &NodeId, number: u64) {
        let mut state = lock(&self.0);
        let Some(domain) = state.domains.get_mut(tag) else { return };
        if domain.nodes.get(node).is_some_and(|r| r.number == number) {
            domain.nodes.remove(node);
            domain.changed.send_replace(());
        }
    }

    pub(super) fn present(&self, tag: &DomainTag, but: &NodeId) -> Vec<NodeId> {
        let state = lock(&self.0);
        let nodes = state.domains.get(tag).map(|d| d.nodes.keys().filter(|n| *n != but).cloned().collect());
        nodes.unwrap_or_default()
    }

    /// Calls a node and returns the ticket that its answer will carry.
    pub(super) fn call(
        &self,
        tag: &DomainTag,
        from: NodeId,
        to: &NodeId,
        ticket: u64,
    ) -> Result<oneshot::Receiver<Answered>, RelayRefusal> {
        let mut state = lock(&self.0);
        let of_domain = state.tickets.values().filter(|t| t.tag == *tag).count();
        if state.tickets.len() >= MAX_TICKETS || of_domain >= share(MAX_TICKETS, state.domains.len()) {
            return Err(RelayRefusal::Busy);
        }
        let registered = state.domains.get(tag).and_then(|d| d.nodes.get(to));
        let Some(registered) = registered else { return Err(RelayRefusal::NotPresent { node: to.clone() }) };
        if registered.calls.try_send(FromRelay::Incoming { ticket, from }).is_err() {
            return Err(RelayRefusal::NoAnswer { node: to.clone() });
        }
        let (answered, answer) = oneshot::channel();
        state.tickets.insert(ticket, Ticket { tag: *tag, to: to.clone(), answered });
        Ok(answer)
    }

    pub(super) fn forget(&self, ticket: u64) {
        lock(&self.0).tickets.remove(&ticket);
    }

    /// Redeems the ticket that a called node answers with; only that node has it.
    pub(super) fn redeem(
        &self,
        tag: &DomainTag,
        node: &NodeId,
        ticket: u64,
    ) -> Option<oneshot::Sender<Answered>> {
        let mut state = lock(&self.0);
        state.tickets.get(&ticket).filter(|t| t.tag == *tag && t.to == *node)?;
        state.tickets.remove(&ticket).map(|t| t.answered)
    }
}

/// The connections that one domain may use, so that it cannot keep out the others.
fn share(all: usize, domains: usize) -> usize {
    if domains > 1 { all / 2 } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_domain_takes_half_at_most() {
        let token = |n| RelayToken::new([n; 32], [n; 32]);
        let tags = [*token(1).tag(), *token(2).tag()];
        let registry = Registry::new(vec![token(1), token(2)], 4);
        let places: Vec<_> = (0..3).map(|_| registry.enter(&tags[0])).collect();
        assert_eq!(places.iter().flatten().count(), 2);
        assert!(registry.enter(&tags[1]).is_some());

        let [from, to] = ["a", "b"].map(|id| NodeId::new(id).unwrap());
        let call = |tag, ticket| registry.call(tag, from.clone(), &to, ticket);
        let mut waiting = Vec::new();
        for ticket in 0..MAX_TICKETS as u64 / 2 {
            // A new registration for each, so that none is behind with its calls.
            let _registered = registry.register(&tags[0], &to).unwrap();
            waiting.push(call(&tags[0], ticket).unwrap());
        }
        let _registered = tags.map(|tag| registry.register(&tag, &to).unwrap());
        assert_eq!(call(&tags[0], 1000).unwrap_err(), RelayRefusal::Busy);
        assert!(call(&tags[1], 1001).is_ok());
    }
}
