//! Results as the models see them.

use super::kernel::Coordinates;
use super::scale::{Scale, Squash};
use crate::core::algorithm::History;
use crate::core::pareto::fronts;
use crate::core::space::Genes;

/// The results as an algorithm sees them: lower is better, and those without a value left out.
pub(super) struct Results<'a> {
    pub(super) genes: Vec<&'a Genes>,
    /// Per objective from 0, the best so far, to 1, the worst.
    pub(super) scaled: Vec<Vec<f64>>,
    pub(super) scales: Vec<Scale>,
    pub(super) fronts: Vec<Vec<usize>>,
}

impl<'a> Results<'a> {
    pub(super) fn of(history: &History<'a>) -> Self {
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

/// What the models are made of.
pub(super) struct Data {
    /// Which of the results.
    pub(super) rows: Vec<usize>,
    pub(super) points: Vec<Coordinates>,
    /// Per objective, standardised.
    pub(super) values: Vec<Vec<f64>>,
    pub(super) squashes: Vec<Squash>,
}

impl Data {
    pub(super) fn of(
        results: &Results<'_>,
        modelled: &[usize],
        place: impl Fn(&Genes) -> Coordinates,
    ) -> Self {
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
        Self { rows: modelled.to_vec(), points, values, squashes }
    }
}
