//! Nodes, their processes and their links to the driver.

use phalanx_protocol::{ReportLog, Wish};
use phalanx_types::{Epoch, NodeId, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::train::{FromReplica, HoldRef, Ops, Recorded, Start};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A process: a node and which of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) node: usize,
    pub(super) life: u16,
}

impl Process {
    /// Its name in the domain; names are in the order of nodes.
    pub(super) fn id(self) -> NodeId {
        let name = format!("n{:05}", self.node);
        NodeId::with_suffix(&name, self.life).expect("letters and digits make a name")
    }
}

/// Something on its way to the driver.
#[derive(Debug, Clone)]
pub(super) enum Upward {
    Up { link: u32 },
    Says(FromReplica),
    Down,
}

/// One place in the cluster, where one process after the other takes part.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) life: u16,
    pub(super) up: bool,
    /// Counts the links between its processes and drivers.
    pub(super) link: u32,
    /// Whether there is one.
    pub(super) connected: bool,
    /// Until then it has not noticed that the driver of the run before is gone.
    pub(super) busy_until: Time,
    pub(super) rank: Rank,
}

/// A link from a process to the driver: it keeps the order, and outlives the process until the driver has noticed.
#[derive(Debug, Default)]
pub(super) struct Uplink {
    /// With the time at which it arrives.
    pub(super) queue: VecDeque<(Time, Upward)>,
    /// Nothing arrives before what was sent earlier.
    pub(super) last: Time,
}

/// All that a process holds.
#[derive(Debug, Default)]
pub(super) struct Rank {
    pub(super) part: Option<Part>,
    /// Copies of parts: operators and step.
    pub(super) copies: Vec<(Ops, u64)>,
    pub(super) log: ReportLog,
    /// Steps and validations that it took part in: its log must know them.
    pub(super) seen_steps: BTreeSet<u64>,
    pub(super) seen_validations: BTreeSet<u64>,
    pub(super) prepared: Option<Epoch>,
    /// The group it is in, as far as it knows.
    pub(super) group: Option<Epoch>,
    /// What it was told when the group began.
    pub(super) recorded: Recorded,
    pub(super) wish: (Epoch, Wish),
    /// Parts of the state that it was told to give: to whom, and of which step.
    pub(super) gives: BTreeMap<(Epoch, NodeId, Ops), u64>,
    /// With what it begins in its group.
    pub(super) start: Option<Start>,
    /// How long it waits for that.
    pub(super) waits_until: Time,
    /// States that the driver has not fetched, with the group they are of.
    pub(super) untaken: BTreeMap<BlobId, (Epoch, Ops, u64)>,
    /// Parts of the state of its group that have come while it catches up.
    pub(super) caught: BTreeSet<u32>,
    /// Queries to its group that it has not answered.
    pub(super) queries: Vec<(Epoch, u64)>,
    /// Microseconds of a sample in the last round; 0 before the first.
    pub(super) cost: f64,
}

/// The part of the model that a process trains: all of it where replicas are not cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) ops: Ops,
    pub(super) step: u64,
    /// It has the gradients of the next step, and does not know whether all ranks had theirs.
    pub(super) pending: bool,
}

/// The norm of the gradients of a step: the same on every rank.
pub(super) fn norm_of(step: u64) -> Option<u64> {
    (step > 0).then_some(step << 8)
}

impl Rank {
    pub(super) fn holds(&self) -> Vec<HoldRef> {
        let own = self.part.map(|part| HoldRef {
            ops: part.ops,
            step: part.step,
            norm: norm_of(part.step),
            pending: part.pending,
        });
        let copy = |(ops, step): &(Ops, u64)| HoldRef { ops: *ops, step: *step, norm: None, pending: false };
        own.into_iter().chain(self.copies.iter().map(copy)).collect()
    }

    /// Notes a step and how many are reported together: a log remembers that many, and no fewer than 256.
    pub(super) fn see_step(&mut self, step: u64, together: usize) {
        self.seen_steps.insert(step);
        while self.seen_steps.len() > together.max(256) {
            self.seen_steps.pop_first();
        }
        let oldest = self.seen_steps.first().copied().unwrap_or(0);
        while self.seen_validations.len() > 1 && self.seen_validations.first() < Some(&oldest) {
            self.seen_validations.pop_first();
        }
    }

    pub(super) fn keep_copy(&mut self, ops: Ops, step: u64) {
        self.copies.retain(|copy| *copy != (ops, step));
        self.copies.push((ops, step));
    }

    /// Applies an update that others have seen, or takes back half a step.
    pub(super) fn resolve(&mut self, step: u64, norm: Option<u64>) {
        if let Some(part) = &mut self.part {
            if part.pending && norm.is_some() && part.step + 1 == step {
                part.step = step;
            }
            part.pending = false;
        }
    }

    /// Whether it holds an operator after a step.
    pub(super) fn has(&self, operator: u32, step: u64) -> bool {
        let own = self.part.filter(|part| !part.pending).map(|part| (part.ops, part.step));
        let mut all = self.copies.iter().copied().chain(own);
        all.any(|(ops, of)| of == step && ops.start <= operator && operator < ops.end)
    }

    pub(super) fn has_all(&self, ops: Ops, step: u64) -> bool {
        (ops.start..ops.end).all(|operator| self.has(operator, step))
    }
}
