//! How much hypervolume a candidate is expected to add to a front, if each of its objectives may independently become
//! any of a few equally likely values. Exact for these values and any number of objectives.
//!
//! The part below the reference that the front does not dominate is cut into boxes, once per front. A candidate at Y
//! adds, of a box from l to u, the product over the objectives of max(u − Y, 0) − max(l − Y, 0); the mean of a product
//! of independent factors is the product of their means.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Improvement {
    /// Per objective the values at which boxes begin and end, ascending; the last is the reference.
    axes: Vec<Vec<f64>>,
    /// Box after box, per objective the places on its axis where it begins and ends. 0 is before the axis: −∞.
    edges: Vec<[u32; 2]>,
    /// Per objective the mean of max(t − Y, 0) at −∞ and at each place of its axis.
    shortfalls: Vec<Vec<f64>>,
}

impl Improvement {
    /// `front` need not be one: what is dominated or beyond the reference does not matter.
    pub(super) fn over(front: &[Vec<f64>], reference: &[f64]) -> Self {
        let inside = |point: &&Vec<f64>| point.iter().zip(reference).all(|(value, end)| value < end);
        let front: Vec<&Vec<f64>> = front.iter().filter(inside).collect();
        let axis = |(objective, &end): (usize, &f64)| {
            let mut axis: Vec<f64> = front.iter().map(|point| point[objective]).chain([end]).collect();
            axis.sort_by(f64::total_cmp);
            axis.dedup();
            axis
        };
        let axes: Vec<Vec<f64>> = reference.iter().enumerate().map(axis).collect();
        let place = |(axis, value): (&Vec<f64>, &f64)| 1 + axis.partition_point(|other| other < value) as u32;
        let places: Vec<Vec<u32>> =
            front.iter().map(|point| axes.iter().zip(point.iter()).map(place).collect()).collect();
        let ends: Vec<u32> = axes.iter().map(|axis| axis.len() as u32).collect();
        let points: Vec<&[u32]> = places.iter().map(Vec::as_slice).collect();
        let edges = boxes(&points, &ends).into_iter().flatten().collect();
        let shortfalls = axes.iter().map(|axis| vec![0.0; axis.len() + 1]).collect();
        Self { axes, edges, shortfalls }
    }

    /// Of a candidate with these equally likely values per objective, ascending.
    pub(super) fn expected(&mut self, outcomes: &[Vec<f64>]) -> f64 {
        for ((axis, shortfall), outcome) in self.axes.iter().zip(&mut self.shortfalls).zip(outcomes) {
            let (mut below, mut sum) = (0, 0.0);
            for (t, shortfall) in axis.iter().zip(&mut shortfall[1..]) {
                while let Some(value) = outcome.get(below).filter(|value| *value < t) {
                    sum += value;
                    below += 1;
                }
                *shortfall = (below as f64 * t - sum) / outcome.len() as f64;
            }
        }
        let side = |(shortfall, edge): (&Vec<f64>, &[u32; 2])| {
            shortfall[edge[1] as usize] - shortfall[edge[0] as usize]
        };
        let of_box = |edges: &[[u32; 2]]| self.shortfalls.iter().zip(edges).map(side).product::<f64>();
        self.edges.chunks_exact(self.axes.len().max(1)).map(of_box).sum()
    }
}

type Edges = Vec<[u32; 2]>;

/// Cuts what `points` do not dominate into boxes. `ends` has the place of the reference per objective.
fn boxes(points: &[&[u32]], ends: &[u32]) -> Vec<Edges> {
    match *ends {
        [] => Vec::new(),
        [end] => vec![vec![[0, points.iter().map(|point| point[0]).min().unwrap_or(end)]]],
        [first, second] => stairs(points, first, second),
        [ref others @ .., last] => slices(points, others, last),
    }
}

fn stairs(points: &[&[u32]], first: u32, second: u32) -> Vec<Edges> {
    let mut sorted: Vec<[u32; 2]> = points.iter().map(|point| [point[0], point[1]]).collect();
    sorted.sort_unstable();
    let (mut from, mut height) = (0, second);
    let mut boxes = Vec::with_capacity(sorted.len() + 1);
    for [x, y] in sorted.into_iter().filter(|[_, y]| *y < second).chain([[first, 0]]) {
        if y >= height {
            continue;
        }
        if x > from {
            boxes.push(vec![[from, x], [0, height]]);
        }
        (from, height) = (x, y);
    }
    boxes
}

/// Slices along the last objective: a slice is cut by the points that begin before it, in one objective less. A box that
/// the next slice has, too, goes on.
fn slices(points: &[&[u32]], others: &[u32], last: u32) -> Vec<Edges> {
    let count = others.len();
    let mut sorted = points.to_vec();
    sorted.sort_by_key(|point| point[count]);
    let mut open: BTreeMap<Edges, u32> = boxes(&[], others).into_iter().map(|edges| (edges, 0)).collect();
    let mut closed = Vec::new();
    let mut close = |mut edges: Edges, from: u32, to: u32| {
        edges.push([from, to]);
        closed.push(edges);
    };
    let mut begun: Vec<&[u32]> = Vec::new();
    for level in sorted.chunk_by(|a, b| a[count] == b[count]) {
        let at = level[0][count];
        let before = begun.len();
        for point in level {
            let projected = &point[..count];
            let covers = |a: &[u32], b: &[u32]| a.iter().zip(b).all(|(a, b)| a <= b);
            if !begun.iter().any(|rival| covers(rival, projected)) {
                begun.retain(|rival| !covers(projected, rival));
                begun.push(projected);
            }
        }
        if begun.len() == before && level.iter().all(|point| !begun.contains(&&point[..count])) {
            continue;
        }
        let mut next = BTreeMap::new();
        for edges in boxes(&begun, others) {
            let from = open.remove(&edges).unwrap_or(at);
            next.insert(edges, from);
        }
        open.into_iter().for_each(|(edges, from)| close(edges, from, at));
        open = next;
    }
    open.into_iter().for_each(|(edges, from)| close(edges, from, last));
    closed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dice::Dice;
    use crate::core::pareto::hypervolume;
    use phalanx_types::Seed;

    fn point(objectives: usize, least: f64, dice: &mut Dice) -> Vec<f64> {
        (0..objectives).map(|_| least + (1.0 - least) * dice.unit()).collect()
    }

    fn outcomes(objectives: usize, dice: &mut Dice) -> Vec<Vec<f64>> {
        let spread = |dice: &mut Dice| {
            let (centre, width) = (dice.unit(), dice.unit());
            let mut nodes: Vec<f64> = (0..16).map(|_| centre + width * (dice.unit() - 0.5)).collect();
            nodes.sort_by(f64::total_cmp);
            nodes
        };
        (0..objectives).map(|_| spread(dice)).collect()
    }

    fn expected(front: &[Vec<f64>], outcomes: &[Vec<f64>]) -> f64 {
        let mut improvement = Improvement::over(front, &vec![1.1; outcomes.len()]);
        improvement.expected(outcomes)
    }

    fn gain(front: &[Vec<f64>], point: Vec<f64>) -> f64 {
        let reference = vec![1.1; point.len()];
        let with: Vec<Vec<f64>> = front.iter().cloned().chain([point]).collect();
        hypervolume(&with, &reference) - hypervolume(front, &reference)
    }

    #[test]
    fn one_certain_outcome_gains_what_the_hypervolume_gains() {
        let mut dice = Dice::new(Seed(7));
        for objectives in 1..=5 {
            for size in [0, 1, 2, 7, 15] {
                let front: Vec<Vec<f64>> = (0..size).map(|_| point(objectives, 0.2, &mut dice)).collect();
                for _ in 0..10 {
                    let at = point(objectives, -0.1, &mut dice);
                    let certain: Vec<Vec<f64>> = at.iter().map(|&value| vec![value]).collect();
                    let (found, wanted) = (expected(&front, &certain), gain(&front, at));
                    assert!((found - wanted).abs() < 1e-12, "{objectives}, {size}: {found}, not {wanted}");
                }
            }
        }
    }

    #[test]
    fn expectations_agree_with_samples() {
        let mut dice = Dice::new(Seed(8));
        for objectives in 2..=4 {
            for _ in 0..3 {
                let front: Vec<Vec<f64>> = (0..10).map(|_| point(objectives, 0.3, &mut dice)).collect();
                let outcomes = outcomes(objectives, &mut dice);
                let draws = 20_000;
                let sampled: f64 = (0..draws)
                    .map(|_| {
                        let at = outcomes.iter().map(|nodes| nodes[dice.below(16)]).collect();
                        gain(&front, at)
                    })
                    .sum::<f64>()
                    / f64::from(draws);
                let found = expected(&front, &outcomes);
                let tolerance = 0.03 * sampled + 0.001;
                assert!((found - sampled).abs() < tolerance, "{objectives}: {found}, sampled {sampled}");
            }
        }
    }

    #[test]
    fn expectations_of_two_objectives_are_the_sum_over_all_outcomes() {
        let mut dice = Dice::new(Seed(9));
        for size in [1, 4, 20] {
            let front: Vec<Vec<f64>> = (0..size).map(|_| point(2, 0.2, &mut dice)).collect();
            let outcomes = outcomes(2, &mut dice);
            let pairs = outcomes[0].iter().flat_map(|&a| outcomes[1].iter().map(move |&b| vec![a, b]));
            let wanted = pairs.map(|at| gain(&front, at)).sum::<f64>() / 256.0;
            let found = expected(&front, &outcomes);
            assert!((found - wanted).abs() < 1e-12, "{size}: {found}, not {wanted}");
        }
    }

    #[test]
    fn boxes_of_three_objectives_are_few() {
        let mut dice = Dice::new(Seed(10));
        let sphere = |dice: &mut Dice| {
            let at: Vec<f64> = (0..3).map(|_| dice.unit()).collect();
            let length = at.iter().map(|v| v * v).sum::<f64>().sqrt();
            at.into_iter().map(|value| 1.0 - value / length).collect()
        };
        let front: Vec<Vec<f64>> = (0..100).map(|_| sphere(&mut dice)).collect();
        // Slices that were not joined would give some thousands.
        let count = Improvement::over(&front, &[1.1; 3]).edges.len() / 3;
        assert!(count < 350, "{count} boxes");
    }
}
