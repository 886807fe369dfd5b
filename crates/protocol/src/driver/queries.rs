//! Queries of clients to the model that is being trained. A query waits until it is answered: when a group breaks, the
//! next one is asked.

use super::{DriverCommand, DriverCore};
use phalanx_types::{Epoch, NodeId, Outbox};
use phalanx_wire::train::StateRef;
use phalanx_wire::train_reason::QueryRefusal;
use std::collections::BTreeMap;

/// Queries without an answer, and the group that was asked last.
#[derive(Debug, Default)]
pub(super) struct Queries(BTreeMap<u64, Option<Epoch>>);

impl Queries {
    pub(super) fn on_asked(&mut self, query: u64) {
        self.0.insert(query, None);
    }

    pub(super) fn on_dropped(&mut self, query: u64) {
        self.0.remove(&query);
    }
}

impl DriverCore {
    /// Passes queries on that the present group has not heard.
    pub(super) fn forward_queries(&mut self, out: &mut Outbox<DriverCommand>) {
        let Some(group) = self.group.as_ref().filter(|group| group.ended.is_none()) else { return };
        let Some(node) = group.seats.first().filter(|node| self.nodes.contains(*node)) else { return };
        for (query, asked) in self.queries.0.iter_mut().filter(|(_, asked)| **asked != Some(group.epoch)) {
            *asked = Some(group.epoch);
            let (query, node, epoch) = (*query, node.clone(), group.epoch);
            out.push(DriverCommand::ForwardQuery { query, node, epoch });
        }
    }

    /// A node has an answer; another one may have had it before.
    pub(super) fn on_computed(
        &mut self,
        node: &NodeId,
        query: u64,
        shape: Vec<u64>,
        outputs: StateRef,
        out: &mut Outbox<DriverCommand>,
    ) {
        match self.queries.0.remove(&query) {
            Some(_) => out.push(DriverCommand::FetchAnswer { query, node: node.clone(), shape, outputs }),
            None => out.push(self.taken(node, outputs.blob)),
        }
    }

    pub(super) fn on_not_computed(
        &mut self,
        query: u64,
        refusal: QueryRefusal,
        out: &mut Outbox<DriverCommand>,
    ) {
        if self.queries.0.remove(&query).is_some() {
            out.push(DriverCommand::RefuseQuery { query, refusal });
        }
    }
}
