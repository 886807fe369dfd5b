//! The default: learns from all results what a candidate will be worth, and proposes the one that is expected to add
//! most to the hypervolume of the front.
//!
//! ```text
//! results ─ scale ─ squash ─┬─ fit (now and then) ─ kernel per objective
//!                           └─ model: Gaussian process ─┐
//! fronts ─ candidates ──────────── prediction ──────────┴─ expected improvement ─┬─ the best
//!              └────────────── variants of the most promising ─────────────────────┘
//! ```
//!
//! Cheap objectives are not predicted: their values are known. Candidates that are being tried count as results with
//! the values that are expected of them. Candidates near results that were copies of others count less.

mod candidates;
mod copies;
mod data;
mod expect;
mod factor;
mod fit;
mod forecast;
mod improvement;
mod kernel;
mod model;
mod scale;
#[cfg(test)]
mod tests;

use super::unseen::propose_random;
use super::{Algorithm, AlgorithmSettings, History, Proposal};
use crate::core::dice::Dice;
use crate::core::space::Genes;
use candidates::{Candidate, KnownValues, Pool};
use copies::Copies;
use data::{Data, Results};
use expect::{Judge, order};
use forecast::Forecast;
use kernel::{Coordinates, Kernel};
use model::Kept;
use serde::{Deserialize, Serialize};

/// Results that a fit looks at: the newest.
const FIT_RESULTS: usize = 300;
/// With more results than that the kernel changes little, and a fit takes this share of its steps.
const LATE_STEPS: usize = 8;
/// The window of newest results moves by so many at once, so that factors can be kept for as long.
const WINDOW_STEP: usize = 50;
/// In each round of refinement so many variants of the most promising candidates are looked at.
const VARIANTS: usize = 64;
/// Candidates that are varied.
const PROMISING: usize = 5;

#[derive(Debug)]
pub struct Guided {
    start: usize,
    candidates: usize,
    rounds: usize,
    fit_every: usize,
    fit_steps: usize,
    all_until: usize,
    newest: usize,
    learned: Learned,
    kept: Vec<Kept>,
    known: KnownValues,
}

/// What was learned of the objectives.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Learned {
    /// The number of results at the last fit.
    results: usize,
    /// Per objective; cheap ones have none.
    kernels: Vec<Option<Kernel>>,
}

impl Guided {
    pub fn new(settings: &AlgorithmSettings) -> Self {
        Self {
            start: settings.start.unwrap_or(20).max(2),
            candidates: settings.candidates.unwrap_or(600).max(1),
            rounds: settings.rounds.unwrap_or(10),
            fit_every: settings.fit_every.unwrap_or(5).max(1),
            fit_steps: settings.fit_steps.unwrap_or(40),
            all_until: settings.all_until.unwrap_or(600),
            newest: settings.newest.unwrap_or(500).max(2),
            learned: Learned::default(),
            kept: Vec::new(),
            known: KnownValues::default(),
        }
    }

    /// The results that the models are made of, in an order that changes little from one choice to the next.
    fn modelled(&self, results: &Results<'_>) -> Vec<usize> {
        let count = results.genes.len();
        if count <= self.all_until {
            return (0..count).collect();
        }
        let oldest = count.saturating_sub(self.newest) / WINDOW_STEP * WINDOW_STEP;
        let front = results.fronts.first().map_or(&[][..], Vec::as_slice);
        (oldest..count).chain(front.iter().copied().filter(|&index| index < oldest)).collect()
    }

    /// Fits the kernels if enough results have come.
    fn learn(&mut self, history: &History<'_>, data: &Data, count: usize, dice: &mut Dice) {
        let genes = history.space.genes.len();
        let fits = |(kernel, objective): (&Option<Kernel>, &crate::core::objective::Objective)| match kernel {
            Some(kernel) => !objective.cheap && kernel.is_valid(genes),
            None => objective.cheap,
        };
        let known = self.learned.kernels.len() == history.objectives.len()
            && self.learned.kernels.iter().zip(history.objectives).all(fits);
        if known && (self.learned.results..self.learned.results + self.fit_every).contains(&count) {
            return;
        }
        let newest = data.points.len().saturating_sub(FIT_RESULTS);
        let steps = if newest == 0 { self.fit_steps } else { self.fit_steps.div_ceil(LATE_STEPS) };
        let previous = if known { std::mem::take(&mut self.learned.kernels) } else { Vec::new() };
        let mut kernels = Vec::new();
        for (index, objective) in history.objectives.iter().enumerate() {
            let points = &data.points[newest..];
            let values = &data.values[index][newest..];
            kernels.push(match previous.get(index) {
                _ if objective.cheap => None,
                Some(Some(kernel)) => {
                    let mut kernel = kernel.clone();
                    fit::improve(&mut kernel, points, values, steps, dice);
                    Some(kernel)
                }
                _ => Some(fit::first_fit(points, values, genes)),
            });
        }
        self.learned = Learned { results: count, kernels };
    }

    /// The best candidates that can be found, best first.
    fn choose(
        &mut self,
        history: &History<'_>,
        results: &Results<'_>,
        data: &Data,
        place: impl Fn(&Genes) -> Coordinates,
        dice: &mut Dice,
    ) -> Vec<Candidate> {
        let Self { known, learned, kept, .. } = self;
        let fronts = results.fronts.iter().take(2);
        let fronts: Vec<Vec<&Genes>> =
            fronts.map(|front| front.iter().map(|&index| results.genes[index]).collect()).collect();
        let cheap = history.objectives.iter().any(|objective| objective.cheap);
        // Without cheap objectives, whether a candidate can be tried is asked for only once it is chosen.
        let mut possible = |candidates: Vec<Candidate>, most: usize| -> Vec<Candidate> {
            let with_values = |mut candidate: Candidate| {
                if cheap {
                    candidate.cheap = known.of(&candidate.genes, history)?;
                }
                Some(candidate)
            };
            candidates.into_iter().filter_map(with_values).take(most).collect()
        };
        let tried: Vec<Candidate> = history
            .pending
            .iter()
            .map(|genes| Candidate { genes: genes.clone(), parents: Vec::new(), cheap: Vec::new() })
            .collect();
        let tried = possible(tried, usize::MAX);
        kept.resize_with(history.objectives.len(), Kept::default);
        let mut forecast = Forecast::of(history, results, data, learned, kept);
        let believed = forecast.believe(&tried, &place);
        let front = results.fronts.first().map_or(&[][..], Vec::as_slice);
        let front = front.iter().map(|&index| results.scaled[index].clone());
        let front: Vec<Vec<f64>> = front.chain(believed).collect();
        let mut judge = Judge::new(&front, history.objectives.len());
        let copies = Copies::among(results, data);
        let discount = |gains: Vec<f64>, candidates: &[Candidate]| -> Vec<f64> {
            let Some(copies) = &copies else { return gains };
            let places: Vec<Coordinates> = candidates.iter().map(|choice| place(&choice.genes)).collect();
            gains.iter().zip(copies.novelty(&places)).map(|(gain, novelty)| gain * novelty).collect()
        };

        let mut pool = Pool::new(history);
        let mut choices = possible(pool.draw(&fronts, self.candidates, dice), self.candidates);
        let mut gains = discount(judge.first_gains(&forecast.outlooks(&choices, &place)), &choices);
        let rounds = if data.points.len() > FIT_RESULTS { self.rounds.div_ceil(2) } else { self.rounds };
        for _ in 0..rounds {
            let best = order(&gains).into_iter().take(PROMISING).map(|index| &choices[index]);
            let variants = possible(pool.vary(&best.collect::<Vec<_>>(), VARIANTS, dice), VARIANTS);
            gains.extend(discount(judge.gains(&forecast.outlooks(&variants, &place)), &variants));
            choices.extend(variants);
        }
        let mut choices: Vec<Option<Candidate>> = choices.into_iter().map(Some).collect();
        order(&gains).into_iter().filter_map(|index| choices[index].take()).collect()
    }
}

impl Algorithm for Guided {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        let tried = history.results.len() + history.pending.len();
        let results = Results::of(history);
        if tried < self.start || results.genes.len() < self.start.div_ceil(2) {
            return propose_random(history, dice);
        }
        let ordered: Vec<bool> =
            (0..history.space.genes.len()).map(|gene| history.space.is_ordered(gene)).collect();
        let place = |genes: &Genes| Coordinates::of(history.space, &ordered, genes);
        let data = Data::of(&results, &self.modelled(&results), place);
        self.learn(history, &data, results.genes.len(), dice);
        let mut choices = self.choose(history, &results, &data, place, dice).into_iter();
        // What is known may have changed: a candidate must not be tried any more if the same network was.
        match choices.find(|choice| history.known.known(&choice.genes).is_some()) {
            Some(Candidate { genes, parents, .. }) => Some(Proposal { genes, parents }),
            None => propose_random(history, dice),
        }
    }

    fn state(&self) -> Option<serde_json::Value> {
        (!self.learned.kernels.is_empty()).then(|| serde_json::to_value(&self.learned).ok()).flatten()
    }

    fn restore(&mut self, state: &serde_json::Value) -> bool {
        let learned = Learned::deserialize(state);
        learned.map(|learned| self.learned = learned).is_ok()
    }
}
