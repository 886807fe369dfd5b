//! MO-BANANAS: an ensemble of small networks predicts the objectives of mutants of the best results; one draw of every
//! prediction ranks the mutants, and one of the first rank is tried.
//!
//! The ensemble is trained on the results up to the last full batch, so the mutants of one batch are chosen by one
//! ensemble whatever came in between, and a resumed search trains the same one again from its history.
//!
//! Differences to the published method: a network is trained with 100 steps of 16 results, not 2,000 of all, so that an
//! ask stays short; inputs and targets are standardised; mutants are ranked together with the front so far, because what
//! is known exactly of them would else bring dominated ones forward; one mutant is chosen when a node is free, instead of
//! a batch.

mod ensemble;
mod network;

use self::ensemble::{Ensemble, Training};
use super::evolution_pareto::resample;
use super::ranked::{comparable, rank};
use super::unseen::{first_unseen, propose_random};
use super::{Algorithm, AlgorithmSettings, History, Proposal};
use crate::core::dice::Dice;
use crate::core::objective::Objective;
use crate::core::pareto;
use crate::core::space::{Genes, Space};
use std::collections::BTreeSet;

/// Mutants of one parent that are tried for each one wanted.
const TRIES: usize = 10;

#[derive(Debug)]
pub struct Bananas {
    start: usize,
    batch: usize,
    parents: usize,
    mutations: usize,
    mutation_rate: f64,
    training: Training,
    trained: Option<Trained>,
}

/// An ensemble and what it was trained on.
#[derive(Debug)]
struct Trained {
    inputs: Vec<Vec<f64>>,
    targets: Vec<Vec<f64>>,
    ensemble: Ensemble,
}

/// A candidate that may be chosen, and the result it was made from.
struct Mutant {
    genes: Genes,
    parent: Genes,
}

impl Bananas {
    pub fn new(settings: &AlgorithmSettings) -> Self {
        let training = Training {
            networks: settings.networks.unwrap_or(5).max(1),
            layers: settings.layers.unwrap_or(5),
            width: settings.width.unwrap_or(64).max(1),
            steps: settings.training_steps.unwrap_or(100),
        };
        Self {
            start: settings.start.unwrap_or(10).max(1),
            batch: settings.batch.unwrap_or(10).max(1),
            parents: settings.parents.unwrap_or(10).max(1),
            mutations: settings.mutations.unwrap_or(5).max(1),
            mutation_rate: settings.mutation_rate.unwrap_or(0.3),
            training,
            trained: None,
        }
    }

    /// The ensemble for the results up to the last full batch; trained anew if these are others than before.
    fn ensemble(&mut self, space: &Space, results: &[(&Genes, Vec<f64>)], expensive: &[usize]) -> &Ensemble {
        let full = (results.len() / self.batch * self.batch).max(self.batch.min(results.len()));
        let results = &results[..full];
        let inputs: Vec<Vec<f64>> = results.iter().map(|(genes, _)| encode(space, genes)).collect();
        let targets: Vec<Vec<f64>> = results
            .iter()
            .map(|(_, point)| expensive.iter().filter_map(|&o| point.get(o).copied()).collect())
            .collect();
        let trained = self.trained.take().filter(|old| old.inputs == inputs && old.targets == targets);
        let trained = trained.unwrap_or_else(|| {
            let ensemble = Ensemble::train(&self.training, &inputs, &targets);
            Trained { inputs, targets, ensemble }
        });
        &self.trained.insert(trained).ensemble
    }

    /// Unseen mutants of the best results, each once.
    fn mutants(&self, history: &History<'_>, results: &[(&Genes, Vec<f64>)], dice: &mut Dice) -> Vec<Mutant> {
        let mut mutants = Vec::new();
        let mut drawn = BTreeSet::new();
        for parent in rank(results).iter().take(self.parents) {
            for _ in 0..self.mutations {
                let make = || resample(history.space, parent.genes, self.mutation_rate, dice);
                let Some(genes) = first_unseen(history, TRIES, make) else { continue };
                if drawn.insert(genes.clone()) {
                    mutants.push(Mutant { genes, parent: parent.genes.clone() });
                }
            }
        }
        mutants
    }
}

impl Algorithm for Bananas {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        let results = comparable(history.objectives, history.results);
        if history.seen.len() < self.start || results.is_empty() {
            return propose_random(history, dice);
        }
        let mutants = self.mutants(history, &results, dice);
        if mutants.is_empty() {
            return propose_random(history, dice);
        }
        let expensive: Vec<usize> =
            (0..history.objectives.len()).filter(|&o| !history.objectives[o].cheap).collect();
        let ensemble = self.ensemble(history.space, &results, &expensive);
        let mut points: Vec<Vec<f64>> = mutants
            .iter()
            .map(|mutant| {
                let predicted = ensemble.predict(&encode(history.space, &mutant.genes));
                let drawn = predicted.iter().map(|p| p.mean + p.deviation * normal(dice)).collect();
                with_known(history, &mutant.genes, drawn)
            })
            .collect();
        points.extend(results.iter().map(|(_, point)| point.clone()));
        let first = pareto::fronts(&points).into_iter().find_map(|mut front| {
            front.retain(|&index| index < mutants.len());
            (!front.is_empty()).then_some(front)
        })?;
        let chosen = mutants.get(*dice.pick(&first)?)?;
        Some(Proposal { genes: chosen.genes.clone(), parents: vec![chosen.parent.clone()] })
    }
}

/// All objectives of a candidate, less is better: the drawn ones, and the cheap ones as they are known.
fn with_known(history: &History<'_>, genes: &Genes, drawn: Vec<f64>) -> Vec<f64> {
    let known = history.known.known(genes).unwrap_or_default();
    let (mut known, mut drawn) = (known.into_iter(), drawn.into_iter());
    let value = |objective: &Objective| match objective.cheap {
        true => known.next().map_or(0.0, |value| objective.lower_is_better(value)),
        false => drawn.next().unwrap_or(0.0),
    };
    history.objectives.iter().map(value).collect()
}

/// A gene that a candidate does not use is −1.
fn encode(space: &Space, genes: &Genes) -> Vec<f64> {
    space.encode(genes).into_iter().map(|value| if value.is_nan() { -1.0 } else { value }).collect()
}

/// A draw from the standard normal distribution, by Box and Muller.
fn normal(dice: &mut Dice) -> f64 {
    let (radius, angle) = (1.0 - dice.unit(), dice.unit());
    (-2.0 * libm::log(radius)).sqrt() * libm::cos(std::f64::consts::TAU * angle)
}
