//! A search on one worker whose trials are looked up.

use super::problem::{Beforehand, Problem};
use phalanx_search::core::algorithm::{AlgorithmKind, AlgorithmSettings, History, Observation, make};
use phalanx_search::core::dice::Dice;
use phalanx_types::Seed;
use std::collections::BTreeSet;

/// The values of the candidates that an algorithm tries one after the other, in this order. Fewer if it finds no more.
pub(crate) fn search(problem: &Problem, kind: AlgorithmKind, seed: u64, trials: usize) -> Vec<Vec<f64>> {
    let mut algorithm = make(kind, &AlgorithmSettings::default());
    let mut results: Vec<Observation> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut known = Beforehand::of(problem);
    while results.len() < trials {
        let history = History {
            space: &problem.space,
            objectives: &problem.objectives,
            results: &results,
            pending: &[],
            seen: &seen,
            known: &known,
        };
        let mut dice = Dice::of(Seed(seed), "ask", results.len() as u64);
        let Some(proposal) = algorithm.ask(&history, &mut dice) else { break };
        let Some(values) = problem.evaluate(&proposal.genes) else { break };
        known.tried(&proposal.genes);
        seen.insert(proposal.genes.clone());
        results.push(Observation { genes: proposal.genes, values });
    }
    results.into_iter().map(|result| result.values).collect()
}
