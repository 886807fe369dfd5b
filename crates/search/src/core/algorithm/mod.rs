//! What is tried next: algorithms that are asked for one candidate whenever a node is free, in any order of results.

pub mod bananas;
pub mod evolution_pareto;
pub mod grid;
pub mod guided;
pub mod halving;
pub mod local;
pub mod nsga2;
pub mod random;
mod ranked;
pub mod regularized;
mod settings;
mod unseen;

pub use settings::{AlgorithmKind, AlgorithmSettings, UnknownAlgorithm};

use super::dice::Dice;
use super::objective::{Known, Objective};
use super::space::{Genes, Space};
use std::collections::BTreeSet;
use std::fmt;

/// A candidate that was tried, with the values of all objectives as they were measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    pub genes: Genes,
    /// In the order of the objectives, not turned.
    pub values: Vec<f64>,
}

/// All that an algorithm may look at.
#[derive(Clone, Copy)]
pub struct History<'a> {
    pub space: &'a Space,
    pub objectives: &'a [Objective],
    /// In the order in which results came.
    pub results: &'a [Observation],
    /// Candidates that are being tried.
    pub pending: &'a [Genes],
    /// Every candidate that must not be proposed again: tried, being tried, failed.
    pub seen: &'a BTreeSet<Genes>,
    pub known: &'a dyn Known,
}

impl fmt::Debug for History<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History")
            .field("results", &self.results.len())
            .field("pending", &self.pending.len())
            .field("seen", &self.seen.len())
            .finish_non_exhaustive()
    }
}

/// A proposed candidate, and the candidates it was made from.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub genes: Genes,
    pub parents: Vec<Genes>,
}

/// A way to choose candidates. Its answer follows from its state, the history and the dice alone.
pub trait Algorithm: std::fmt::Debug + Send {
    /// A candidate that was not seen and can be built; `None` if it finds none.
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal>;

    /// Whether trials go on to the next rung only when all that can reach their rung have reached it.
    fn waits_for_rungs(&self) -> bool {
        false
    }

    /// What it has learned and cannot derive from the history at once, for a search that is resumed.
    fn state(&self) -> Option<serde_json::Value> {
        None
    }

    /// Takes back what [`Algorithm::state`] gave; `false` if it is not understood, and then it is learned again.
    fn restore(&mut self, _state: &serde_json::Value) -> bool {
        true
    }
}

/// The algorithm of that name. Settings that are not its own do not matter.
pub fn make(kind: AlgorithmKind, settings: &AlgorithmSettings) -> Box<dyn Algorithm> {
    match kind {
        AlgorithmKind::Guided => Box::new(guided::Guided::new(settings)),
        AlgorithmKind::EvolutionPareto => Box::new(evolution_pareto::EvolutionPareto::new(settings)),
        AlgorithmKind::Nsga2 => Box::new(nsga2::Nsga2::new(settings)),
        AlgorithmKind::Regularized => Box::new(regularized::Regularized::new(settings)),
        AlgorithmKind::Local => Box::new(local::Local::new(settings)),
        AlgorithmKind::SuccessiveHalving => Box::new(halving::SuccessiveHalving),
        AlgorithmKind::Random | AlgorithmKind::Asha => Box::new(random::Random::new(settings)),
        AlgorithmKind::Grid => Box::new(grid::Grid::new(settings)),
        AlgorithmKind::Bananas => Box::new(bananas::Bananas::new(settings)),
    }
}
