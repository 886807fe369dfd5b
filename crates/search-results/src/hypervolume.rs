//! How much of the space of objectives the results cover, over time.

use crate::table::{SearchTable, TrialResult, TrialRow};
use phalanx_search::core::pareto::{dominates, first_front, hypervolume};
use phalanx_search::core::record::TrialId;
use serde::Serialize;

/// Where hypervolume is measured from: objectives are scaled to 0 (best so far) to 1 (worst so far).
const REFERENCE: f64 = 1.1;

/// What was covered after a result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HypervolumePoint {
    /// How many results there were with it, of any budget.
    pub results: usize,
    pub trial: TrialId,
    pub budget: f64,
    /// Hours since the search began.
    pub hours: f64,
    /// The covered share, from 0 to 1, of the space between the best of each objective and the reference.
    pub hypervolume: f64,
    /// The same of results of full trainings alone.
    pub full: f64,
}

/// A set of points that grows.
struct Covered {
    front: Vec<Vec<f64>>,
    reference: Vec<f64>,
    share: f64,
}

impl Covered {
    fn new(objectives: usize) -> Self {
        Self { front: Vec::new(), reference: vec![REFERENCE; objectives], share: 0.0 }
    }

    fn add(&mut self, point: &[f64]) {
        if self.front.iter().any(|member| dominates(member, point) || member == point) {
            return;
        }
        self.front.push(point.to_vec());
        let kept = first_front(&self.front);
        self.front = kept.into_iter().map(|at| self.front[at].clone()).collect();
        let whole: f64 = self.reference.iter().product();
        // A larger set never covers less: only rounding could say so.
        self.share = (hypervolume(&self.front, &self.reference) / whole).max(self.share);
    }
}

impl SearchTable {
    /// The hypervolume after each result, in the order in which they came. Every result of a trial counts, at whatever
    /// budget; trials that failed or are infeasible do not. The scale is that of all results of today, so that the
    /// whole curve changes when a result is better or worse than all before.
    pub fn hypervolume(&self) -> Vec<HypervolumePoint> {
        let mut results: Vec<(&TrialRow, &TrialResult, Vec<f64>)> = Vec::new();
        for row in self.rows_with_results().filter(|row| row.status.counts()) {
            let costs = row.results.iter().filter_map(|result| Some((row, result, self.costs(row, result)?)));
            results.extend(costs);
        }
        results.sort_by_key(|(_, result, _)| result.event);
        let objectives = self.about().objectives.len();
        let ranges: Vec<(f64, f64)> = (0..objectives)
            .map(|at| {
                let values = results.iter().map(|(_, _, costs)| costs[at]);
                values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), cost| {
                    (low.min(cost), high.max(cost))
                })
            })
            .collect();
        let scale = |(cost, (low, high)): (&f64, &(f64, f64))| {
            if high > low { (cost - low) / (high - low) } else { 0.0 }
        };
        let (mut all, mut full) = (Covered::new(objectives), Covered::new(objectives));
        let mut points = Vec::with_capacity(results.len());
        for (index, (row, result, costs)) in results.iter().enumerate() {
            let point: Vec<f64> = costs.iter().zip(&ranges).map(scale).collect();
            all.add(&point);
            if self.about().is_full(result.budget) {
                full.add(&point);
            }
            points.push(HypervolumePoint {
                results: index + 1,
                trial: row.trial,
                budget: result.budget,
                hours: self.hours_at(result.at),
                hypervolume: all.share,
                full: full.share,
            });
        }
        points
    }
}
