//! Clients that ask the model something while it is being trained.

use super::cluster::Process;
use super::event::Event;
use super::pace::Pace;
use super::reasons;
use super::shell::Fetch;
use super::world::World;
use phalanx_protocol::driver::DriverEvent;
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::train::{AskRef, FromReplica, StateRef, ToReplica};
use std::collections::BTreeSet;

/// Queries by their numbers.
#[derive(Debug, Default)]
pub(super) struct Queries {
    asked: u64,
    /// Queries that wait for an answer.
    waiting: BTreeSet<u64>,
    answered: u64,
}

impl Queries {
    pub(super) fn answered(&self) -> u64 {
        self.answered
    }

    /// The driver is gone, and with it the links of its clients.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

impl<P: Pace> World<'_, P> {
    pub(super) fn schedule_query(&mut self) {
        if let Some(mean) = self.options.queries {
            let at = self.now + self.exponential(mean);
            self.schedule(at, Event::Query);
        }
    }

    pub(super) fn on_query(&mut self) {
        self.schedule_query();
        if self.driver.up {
            self.ask();
        }
    }

    fn ask(&mut self) {
        self.queries.asked += 1;
        let query = self.queries.asked;
        self.queries.waiting.insert(query);
        self.schedule(self.now, Event::ToDriver(Box::new(DriverEvent::QueryAsked { query })));
    }

    /// The driver hands a query to a node; some clients wait no longer.
    pub(super) fn forward_query(&mut self, query: u64, node: &NodeId, epoch: Epoch) -> Option<DriverEvent> {
        if !self.queries.waiting.contains(&query) {
            self.violate(format!("query {query} is forwarded, and no client waits for it"));
        }
        if self.dice.driver.chance(1, 6) {
            self.queries.waiting.remove(&query);
            return Some(DriverEvent::QueryDropped { query });
        }
        let ask = AskRef { number: query, samples: 1, batch: 1, bytes: 4, blob: BlobId(0) };
        self.tell(node, ToReplica::Compute { run: self.run_id(), epoch, ask });
        None
    }

    /// Ranks answer what they were asked, between two rounds.
    pub(super) fn answer_queries(&mut self) {
        let Some(group) = &self.group else { return };
        let (epoch, step, first) = (group.epoch, group.step, group.members[0]);
        let run = self.run_id();
        for (of, number) in std::mem::take(&mut self.nodes[first.node].rank.queries) {
            if of != epoch {
                continue;
            }
            let answer = match self.dice.nodes.chance(1, 8) {
                true => reasons::not_computed(run, number),
                false => {
                    self.blobs += 1;
                    let outputs = StateRef { step, bytes: 4, blob: BlobId(self.blobs) };
                    FromReplica::Computed { run, number, shape: vec![1], outputs }
                }
            };
            self.say(first, answer);
        }
    }

    pub(super) fn fetch_answer(&mut self, query: u64, node: &NodeId) {
        if !self.queries.waiting.remove(&query) {
            self.violate(format!("query {query} has a second answer"));
        }
        self.fetch(node, Fetch::Answer);
    }

    /// The outputs are here, or their node is gone: the client then asks again.
    pub(super) fn on_answer(&mut self, process: Option<Process>) {
        match process.is_some_and(|process| self.lives(process)) {
            true => self.queries.answered += 1,
            false => self.ask(),
        }
    }

    pub(super) fn refuse_query(&mut self, query: u64) {
        if !self.queries.waiting.remove(&query) {
            self.violate(format!("query {query} is refused, and no client waits for it"));
        }
    }
}
