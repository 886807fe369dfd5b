//! The default: learns from all results what a candidate will be worth, and proposes the one that is expected to add
//! most to the hypervolume of the front.
//!
//! ```text
//! results ─ scale ─ squash ─┬─ fit (now and then) ─ kernel per objective
//!                           └─ model: Gaussian process ─┐
//! fronts ─ candidates ──────────── prediction ──────────┴─ expected improvement ─ the best
//! ```
//!
//! Cheap objectives are not predicted: their values are known. Candidates that are being tried count as results with
//! the values that are expected of them.

mod candidates;
mod expect;
mod factor;
mod fit;
mod improvement;
mod kernel;
mod model;
mod scale;
#[cfg(test)]
mod tests;

use super::unseen::propose_random;
use super::{Algorithm, AlgorithmSettings, History, Proposal};
use crate::core::dice::Dice;
use crate::core::pareto::fronts;
use crate::core::space::Genes;
use candidates::{Candidate, KnownValues};
use expect::{Outlook, rank};
use factor::LANES;
use kernel::{Coordinates, Kernel};
use model::{Kept, Model};
use scale::{Scale, Squash};
use serde::{Deserialize, Serialize};

/// Results that a fit looks at: the newest.
const FIT_RESULTS: usize = 300;
/// With more results than that the kernel changes little, and a fit takes this share of its steps.
const LATE_STEPS: usize = 8;
/// The window of newest results moves by so many at once, so that factors can be kept for as long.
const WINDOW_STEP: usize = 50;

#[derive(Debug)]
pub struct Guided {
    start: usize,
    candidates: usize,
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

/// The results as an algorithm sees them: lower is better, and those without a value left out.
struct Results<'a> {
    genes: Vec<&'a Genes>,
    /// Per objective from 0, the best so far, to 1, the worst.
    scaled: Vec<Vec<f64>>,
    scales: Vec<Scale>,
    fronts: Vec<Vec<usize>>,
}

impl<'a> Results<'a> {
    fn of(history: &History<'a>) -> Self {
        let count = history.objectives.len();
        let complete = history
            .results
            .iter()
            .filter(|result| result.values.len() == count && result.values.iter().all(|v| v.is_finite()));
        let turned = |values: &[f64]| -> Vec<f64> {
            values
                .iter()
                .zip(history.objectives)
                .map(|(&v, objective)| objective.lower_is_better(v))
                .collect()
        };
        let (genes, values): (Vec<&Genes>, Vec<Vec<f64>>) =
            complete.map(|result| (&result.genes, turned(&result.values))).unzip();
        let scales: Vec<Scale> =
            (0..count).map(|objective| Scale::of(values.iter().map(move |point| point[objective]))).collect();
        let scale = |point: &Vec<f64>| scales.iter().zip(point).map(|(scale, &v)| scale.apply(v)).collect();
        let scaled: Vec<Vec<f64>> = values.iter().map(scale).collect();
        let fronts = fronts(&scaled);
        Self { genes, scaled, scales, fronts }
    }
}

impl Guided {
    pub fn new(settings: &AlgorithmSettings) -> Self {
        Self {
            start: settings.start.unwrap_or(20).max(2),
            candidates: settings.candidates.unwrap_or(600).max(1),
            fit_every: settings.fit_every.unwrap_or(5).max(1),
            fit_steps: settings.fit_steps.unwrap_or(40),
            all_until: settings.all_until.unwrap_or(1_500),
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

    /// Candidates to choose from. If some objectives are cheap, with their values; else whether a candidate can be tried
    /// is asked for only once it is chosen.
    fn choices(&mut self, history: &History<'_>, results: &Results<'_>, dice: &mut Dice) -> Vec<Candidate> {
        let fronts: Vec<Vec<&Genes>> = results
            .fronts
            .iter()
            .take(2)
            .map(|front| front.iter().map(|&index| results.genes[index]).collect())
            .collect();
        let mut drawn = candidates::draw(history, &fronts, self.candidates, dice);
        if history.objectives.iter().any(|objective| objective.cheap) {
            let known = |mut candidate: Candidate| {
                candidate.cheap = self.known.of(&candidate.genes, history)?;
                Some(candidate)
            };
            return drawn.into_iter().filter_map(known).take(self.candidates).collect();
        }
        drawn.truncate(self.candidates);
        drawn
    }

    /// What is expected of candidates that are being tried, and what each choice may become.
    fn expect(
        &mut self,
        history: &History<'_>,
        results: &Results<'_>,
        data: &Data,
        choices: &[Candidate],
        place: impl Fn(&Genes) -> Coordinates,
    ) -> (Vec<Vec<f64>>, Vec<Outlooks>) {
        let mut tried = Vec::new();
        for genes in history.pending {
            tried.extend(self.known.of(genes, history).map(|cheap| (place(genes), cheap)));
        }
        let (tried, tried_cheap): (Vec<Coordinates>, Vec<Vec<f64>>) = tried.into_iter().unzip();
        let places: Vec<Coordinates> = choices.iter().map(|candidate| place(&candidate.genes)).collect();
        let mut believed = vec![Vec::new(); tried.len()];
        let mut outlooks: Vec<Outlooks> = vec![Vec::new(); choices.len()];
        self.kept.resize_with(history.objectives.len(), Kept::default);
        let mut cheap = 0;
        for (index, objective) in history.objectives.iter().enumerate() {
            let Some(Some(kernel)) = self.learned.kernels.get(index) else {
                let value = |values: &Vec<f64>| {
                    let value = values.get(cheap).copied().unwrap_or(f64::INFINITY);
                    results.scales[index].apply(objective.lower_is_better(value))
                };
                believed.iter_mut().zip(&tried_cheap).for_each(|(point, known)| point.push(value(known)));
                let certain = |candidate: &Candidate| Outlook::Certain(value(&candidate.cheap));
                outlooks.iter_mut().zip(choices).for_each(|(outlook, choice)| outlook.push(certain(choice)));
                cheap += 1;
                continue;
            };
            let squash = data.squashes[index];
            let mut model = Model::of(kernel, &mut self.kept[index], &data.points, &data.values[index]);
            let predictions = model.believe(&tried);
            for (point, prediction) in believed.iter_mut().zip(predictions) {
                point.push(squash.undo(prediction.mean));
            }
            let predictions = places.chunks(LANES).flat_map(|group| model.predict(group));
            for (outlook, prediction) in outlooks.iter_mut().zip(predictions) {
                outlook.push(Outlook::Uncertain { prediction, squash });
            }
        }
        (believed, outlooks)
    }
}

/// A candidate's objectives.
type Outlooks = Vec<Outlook>;

/// What the models are made of.
struct Data {
    points: Vec<Coordinates>,
    /// Per objective, standardised.
    values: Vec<Vec<f64>>,
    squashes: Vec<Squash>,
}

impl Data {
    fn of(results: &Results<'_>, modelled: &[usize], place: impl Fn(&Genes) -> Coordinates) -> Self {
        let scaled = |objective: usize| -> Vec<f64> {
            modelled.iter().map(|&index| results.scaled[index][objective]).collect()
        };
        let scaled: Vec<Vec<f64>> = (0..results.scales.len()).map(scaled).collect();
        let squashes: Vec<Squash> = scaled.iter().map(|values| Squash::of(values)).collect();
        let standardise = |(values, squash): (&Vec<f64>, &Squash)| {
            values.iter().map(|&value| squash.apply(value)).collect()
        };
        let values = scaled.iter().zip(&squashes).map(standardise).collect();
        let points = modelled.iter().map(|&index| place(results.genes[index])).collect();
        Self { points, values, squashes }
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
        let choices = self.choices(history, &results, dice);

        let (believed, outlooks) = self.expect(history, &results, &data, &choices, place);
        let front = results.fronts.first().map_or(&[][..], Vec::as_slice);
        let front = front.iter().map(|&index| results.scaled[index].clone()).chain(believed).collect();
        let mut order = rank(&outlooks, front).into_iter();
        let best = order.find(|&index| self.known.of(&choices[index].genes, history).is_some());
        match best.and_then(|index| choices.into_iter().nth(index)) {
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
