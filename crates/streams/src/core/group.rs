//! The trainers of a reader.

use crate::wait::StreamWait;
use phalanx_types::{Incarnation, Time, TrainerId};
use std::collections::BTreeMap;

/// The trainers of a reader while the store runs.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// Those that share every batch, in order of their ranks.
    pub(super) members: BTreeMap<TrainerId, Member>,
    /// Those that take a share from the next step on.
    pub(super) joining: BTreeMap<TrainerId, Member>,
    /// The newest life of every trainer.
    pub(super) seen: BTreeMap<TrainerId, Incarnation>,
    /// The pass that a run asked for which shares its batches out itself.
    pub(super) wants_pass: Option<u64>,
    /// Since when there is no trainer.
    pub(super) idle_since: Option<Time>,
}

#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) incarnation: Incarnation,
    pub(super) rank: u32,
    /// How many steps of the pass it has done.
    pub(super) done: u64,
    pub(super) heard: Time,
    /// The reason it was told last, if it waits.
    pub(super) told: Option<StreamWait>,
}

impl Member {
    pub(super) fn new(now: Time, incarnation: Incarnation) -> Self {
        Self { incarnation, rank: 0, done: 0, heard: now, told: None }
    }
}

impl Group {
    pub(super) fn new(now: Time) -> Self {
        Self {
            members: BTreeMap::new(),
            joining: BTreeMap::new(),
            seen: BTreeMap::new(),
            wants_pass: None,
            idle_since: Some(now),
        }
    }

    /// All trainers that are connected.
    pub(super) fn all(&self) -> impl Iterator<Item = (&TrainerId, &Member)> {
        self.members.iter().chain(&self.joining)
    }

    pub(super) fn get_mut(&mut self, trainer: &TrainerId) -> Option<&mut Member> {
        match self.members.get_mut(trainer) {
            Some(member) => Some(member),
            None => self.joining.get_mut(trainer),
        }
    }

    /// Takes those that join in, and gives everybody a rank; `done` steps of the pass are committed.
    pub(super) fn take_in(&mut self, done: u64) {
        self.members.append(&mut self.joining);
        for (rank, member) in (0..).zip(self.members.values_mut()) {
            member.rank = rank;
            member.done = done;
            member.told = None;
        }
    }

    /// Nobody has done a step of the pass that begins.
    pub(super) fn begin_pass(&mut self) {
        for member in self.members.values_mut() {
            member.done = 0;
            member.told = None;
        }
    }

    /// How many steps of the pass all have done.
    pub(super) fn done_by_all(&self) -> Option<u64> {
        self.members.values().map(|member| member.done).min()
    }
}
