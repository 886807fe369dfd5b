//! How the ranks of a group learn together. A session chooses its [`SyncStrategy`] once and asks it from then on.
//!
//! The contract: *local work on some data → a delta → an aggregate → a new state*.
//!
//! | | gradients | a round |
//! |---|---|---|
//! | local work | one step; gradients are exchanged while backward computes | [`Round::steps`] steps alone, in order or overlapping ([`LocalWork`]) |
//! | gives | gradients of its samples, as a part of the whole batch's | a [`Delta`](phalanx_train::round::Delta), and from how many samples it was learned |
//! | takes | sums of gradients, applied after the ballot | the average delta; [`Merge::next`] makes the next state of it |
//! | goes back to | the statistics of batch norm before the step | the anchor: the state before the round, held in memory |
//!
//! A step or a round happens on all ranks or on none. In a round, deltas come together through [`Combine`], which does
//! not require that members are linked to each other, or learn from equally many samples. Asynchronous stages of one
//! replica have rounds without a [`Merge`]: there is no other member to learn from.

mod combine;
#[cfg(test)]
mod tests;

pub(super) use combine::{Combine, Linked};

use phalanx_protocol::aggregate::Aggregate;
use phalanx_protocol::progress::Progress;
use phalanx_train::config::{ExchangeOf, RunConfig};
use phalanx_train::round::Merge;

/// What a strategy follows from besides the run file.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupFacts {
    /// Other replicas hold the same parameters.
    pub(super) has_rings: bool,
    /// The driver planned which rank holds what.
    pub(super) is_planned: bool,
    pub(super) has_driver: bool,
    /// The model has statistics of batch norm.
    pub(super) has_buffers: bool,
}

/// What a rank does between exchanges, what it gives, and what it takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SyncStrategy {
    /// All ranks take every step together: the sum of their gradients is the gradient of the whole batch.
    Gradients { statistics: Statistics, verify: u64 },
    /// Several steps are one: no rank hears of a step before the last of them is done.
    Rounds(Round),
}

/// How replicas that exchange gradients come to the same statistics of batch norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statistics {
    /// There is nothing to do: one replica, or no batch norm.
    Own,
    /// Each batch is normalised over all replicas.
    Shared,
    /// Replicas keep their own, and average them before the model is used.
    Averaged,
}

/// Steps that are one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Round {
    pub(super) local: LocalWork,
    /// It has no more steps than these.
    most: u64,
    /// How the delta of this member and those of others become the next state, where there are others.
    pub(super) merge: Option<Merge>,
}

/// In which order a rank computes the steps of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocalWork {
    /// One step after the other.
    InOrder,
    /// Asynchronous stages: forwards of the next steps go on while gradients of the last ones come back.
    Overlapping,
}

impl SyncStrategy {
    pub(super) fn new(config: &RunConfig, group: GroupFacts) -> Self {
        let (sync, formation) = (&config.sync, &config.formation);
        let has_members = group.has_rings || (!group.is_planned && group.has_driver);
        let overlaps = group.is_planned && formation.is_asynchronous();
        let local = if overlaps { LocalWork::Overlapping } else { LocalWork::InOrder };
        let averages = |aggregate: Aggregate| {
            let names = config.train.optimizer.state_names();
            let optimizer = if sync.average_optimizer { names } else { &[] };
            Self::Rounds(Round { local, most: sync.every, merge: Some(Merge { aggregate, optimizer }) })
        };
        match sync.exchange {
            ExchangeOf::Parameters if has_members => averages(Aggregate::Mean),
            ExchangeOf::Outer if has_members => {
                averages(Aggregate::Outer { lr: sync.outer_lr, momentum: sync.outer_momentum })
            }
            _ if overlaps && !has_members => {
                Self::Rounds(Round { local, most: formation.unit(), merge: None })
            }
            _ => {
                let statistics = match group.has_rings {
                    true if sync.shared_statistics && !group.is_planned => Statistics::Shared,
                    true if group.has_buffers => Statistics::Averaged,
                    _ => Statistics::Own,
                };
                let verify = if group.is_planned || !group.has_driver { 0 } else { sync.verify };
                Self::Gradients { statistics, verify }
            }
        }
    }

    /// How many steps the next exchange is of.
    pub(super) fn steps(&self, progress: Progress) -> u64 {
        match self {
            Self::Gradients { .. } => 1,
            Self::Rounds(round) => round.steps(progress),
        }
    }

    /// What replicas do about the statistics of batch norm outside of rounds, which average them.
    pub(super) fn statistics(&self) -> Statistics {
        match self {
            Self::Gradients { statistics, .. } => *statistics,
            Self::Rounds(_) => Statistics::Own,
        }
    }

    /// Whether ranks compare their parameters before a step.
    pub(super) fn verifies(&self, step: u64) -> bool {
        match self {
            Self::Gradients { verify: every @ 1.., .. } => step.is_multiple_of(*every),
            Self::Gradients { .. } | Self::Rounds(_) => false,
        }
    }
}

impl Round {
    /// How many steps the next round has. It ends early where the model is to be looked at; stages of one replica also
    /// where it is to be saved, because what is lost with a stage is done again. It follows from the run file and the
    /// steps done so far, never from time: the same seed gives the same numbers, also after going back to an anchor.
    pub(super) fn steps(&self, progress: Progress) -> u64 {
        match self.merge {
            Some(_) => progress.until_looked_at(self.most),
            None => progress.until_saved(self.most),
        }
    }
}
