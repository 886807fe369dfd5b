//! Regularized evolution: the best of a sample of the newest results gets a child with one gene changed. Old results cannot
//! be parents any more, however good they are, so that a lucky measurement does not stay for ever.
//!
//! With several objectives the best of the sample is the one on its first front that has the most room around it.

use super::ranked::{comparable, rank};
use super::unseen::{first_unseen, propose_random};
use super::{Algorithm, AlgorithmSettings, History, Proposal};
use crate::core::dice::Dice;

/// Mutants of one parent that are tried before the next best of the sample becomes the parent.
const TRIES: usize = 20;

#[derive(Debug, Clone)]
pub struct Regularized {
    start: usize,
    history: usize,
    sample: usize,
}

impl Regularized {
    pub fn new(settings: &AlgorithmSettings) -> Self {
        Self {
            start: settings.start.unwrap_or(10),
            history: settings.history.unwrap_or(100).max(1),
            sample: settings.sample.unwrap_or(40).max(1),
        }
    }
}

impl Algorithm for Regularized {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        if history.seen.len() < self.start {
            return propose_random(history, dice);
        }
        let mut newest = comparable(history.objectives, history.results);
        newest.drain(..newest.len().saturating_sub(self.history));
        dice.shuffle(&mut newest);
        newest.truncate(self.sample);
        for parent in rank(&newest) {
            let child = first_unseen(history, TRIES, || history.space.mutate(parent.genes, 1, dice));
            if let Some(genes) = child {
                return Some(Proposal { genes, parents: vec![parent.genes.clone()] });
            }
        }
        propose_random(history, dice)
    }
}
