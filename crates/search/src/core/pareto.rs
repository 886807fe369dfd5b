//! Fronts, crowding and hypervolume. Every value is better the lower it is; NaN counts as infinity, the worst there is.
//!
//! Equal points do not dominate each other: they share a front, and together they cover no more than one of them.

mod hypervolume;

pub use hypervolume::hypervolume;

use std::cmp::Ordering;

/// Whether `a` is nowhere worse than `b` and somewhere better.
pub fn dominates(a: &[f64], b: &[f64]) -> bool {
    let mut better = false;
    for (&a, &b) in a.iter().zip(b) {
        let (a, b) = (cost(a), cost(b));
        if a > b {
            return false;
        }
        better |= a < b;
    }
    better
}

/// The points that no other point dominates, by position, ascending. O(n log n) for one and two objectives.
pub fn first_front(points: &[Vec<f64>]) -> Vec<usize> {
    let mut front: Vec<usize> = Vec::new();
    for &point in &lexicographic(points) {
        // A dominating point comes earlier in this order. The last member of a front of two objectives has the
        // smallest second value so far, so that it dominates whatever any other member dominates.
        let rivals = if flat(points) { front.len().saturating_sub(1) } else { 0 };
        if !front[rivals..].iter().any(|&rival| dominates(&points[rival], &points[point])) {
            front.push(point);
        }
    }
    front.sort_unstable();
    front
}

/// All points in layers: those that nothing dominates, those that only the first layer dominates, and so on. Positions
/// within a layer ascend. O(n log n) for one and two objectives.
pub fn fronts(points: &[Vec<f64>]) -> Vec<Vec<usize>> {
    let mut fronts: Vec<Vec<usize>> = Vec::new();
    for &point in &lexicographic(points) {
        let beaten_by = |front: &Vec<usize>| {
            let rivals = if flat(points) { front.len() - 1 } else { 0 };
            front[rivals..].iter().any(|&rival| dominates(&points[rival], &points[point]))
        };
        // Whatever a layer's member dominates, a member of every earlier layer dominates too.
        let layer = fronts.partition_point(beaten_by);
        match fronts.get_mut(layer) {
            Some(front) => front.push(point),
            None => fronts.push(vec![point]),
        }
    }
    fronts.iter_mut().for_each(|front| front.sort_unstable());
    fronts
}

/// How far each member of a front is from its neighbours, in the order of `front`: per objective the gap between the
/// two neighbours as a share of the front's range, summed. The two ends of an objective are infinitely far; of equal
/// ends, the one that comes first in `front`. An objective in which all are equal counts nothing.
pub fn crowding(points: &[Vec<f64>], front: &[usize]) -> Vec<f64> {
    let mut distances = vec![0.0; front.len()];
    let objectives = front.first().map_or(0, |&point| points[point].len());
    let of_member = |member: usize| &points[front[member]];
    for objective in 0..objectives {
        let value = |member: usize| cost(of_member(member)[objective]);
        let mut order: Vec<usize> = (0..front.len()).collect();
        order.sort_by(|&a, &b| value(a).total_cmp(&value(b)));
        let (Some(&first), Some(&last)) = (order.first(), order.last()) else { continue };
        let range = value(last) - value(first);
        if range <= 0.0 {
            continue;
        }
        let last = order.iter().copied().find(|&member| value(member) == value(last)).unwrap_or(last);
        distances[first] = f64::INFINITY;
        distances[last] = f64::INFINITY;
        if range.is_finite() {
            for around in order.windows(3) {
                distances[around[1]] += (value(around[2]) - value(around[0])) / range;
            }
        }
    }
    if front.len() == 1 { vec![f64::INFINITY] } else { distances }
}

/// A value that can be compared: NaN is the worst, and both zeros are the same.
fn cost(value: f64) -> f64 {
    if value.is_nan() { f64::INFINITY } else { value + 0.0 }
}

fn flat(points: &[Vec<f64>]) -> bool {
    points.iter().take(1).all(|point| point.len() <= 2)
}

fn compare(a: &[f64], b: &[f64]) -> Ordering {
    let values = a.iter().zip(b).map(|(&a, &b)| cost(a).total_cmp(&cost(b)));
    values.fold(Ordering::Equal, Ordering::then)
}

/// Positions sorted by the first value, then the second, and so on.
fn lexicographic(points: &[Vec<f64>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|&a, &b| compare(&points[a], &points[b]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dice::Dice;
    use phalanx_types::Seed;

    /// Points on a coarse grid, so that many are equal in a value and some in all.
    fn grid(count: usize, objectives: usize, dice: &mut Dice) -> Vec<Vec<f64>> {
        (0..count).map(|_| (0..objectives).map(|_| dice.below(9) as f64 / 4.0).collect()).collect()
    }

    fn fronts_by_definition(points: &[Vec<f64>]) -> Vec<Vec<usize>> {
        let mut left: Vec<usize> = (0..points.len()).collect();
        let mut fronts = Vec::new();
        while !left.is_empty() {
            let beaten = |&i: &usize| left.iter().any(|&j| dominates(&points[j], &points[i]));
            let (rest, front): (Vec<usize>, Vec<usize>) = left.iter().partition(|i| beaten(i));
            fronts.push(front);
            left = rest;
        }
        fronts
    }

    #[test]
    fn fronts_are_those_of_the_definition() {
        let mut dice = Dice::new(Seed(1));
        for objectives in 1..=4 {
            for count in 0..60 {
                let mut points = grid(count, objectives, &mut dice);
                if count > 40 {
                    points[3][0] = f64::NAN;
                    points[5][objectives - 1] = f64::INFINITY;
                    points[7][0] = -0.0;
                }
                let expected = fronts_by_definition(&points);
                assert_eq!(fronts(&points), expected);
                assert_eq!(first_front(&points), expected.first().cloned().unwrap_or_default());
            }
        }
    }

    #[test]
    fn equal_points_share_a_front_and_nan_is_worst() {
        let points =
            vec![vec![1.0, 2.0], vec![2.0, 1.0], vec![1.0, 2.0], vec![f64::NAN, 0.0], vec![1.0, f64::NAN]];
        assert_eq!(first_front(&points), [0, 1, 2, 3]);
        assert_eq!(fronts(&points), [vec![0, 1, 2, 3], vec![4]]);
        assert!(!dominates(&[1.0, 2.0], &[1.0, 2.0]));
        assert!(dominates(&[1.0, 2.0], &[1.0, f64::NAN]));
    }

    #[test]
    fn ends_are_never_crowded_and_equal_points_are() {
        let points = vec![vec![0.0, 4.0], vec![1.0, 3.0], vec![4.0, 0.0], vec![9.0, 9.0], vec![3.0, 1.0]];
        let inf = f64::INFINITY;
        assert_eq!(crowding(&points, &[0, 1, 2, 4]), [inf, 1.5, inf, 1.5]);
        let twins = vec![vec![0.0, 1.0], vec![0.0, 1.0], vec![1.0, 0.0], vec![1.0, 0.0]];
        assert_eq!(crowding(&twins, &[0, 1, 2, 3]), [inf, 1.0, inf, 1.0]);
        assert_eq!(crowding(&[vec![2.0, 2.0], vec![2.0, 2.0]], &[0, 1]), [0.0, 0.0]);
        assert_eq!(crowding(&points, &[3]), [inf]);
    }

    #[test]
    fn two_objectives_take_no_quadratic_time() {
        // A front of 200,000: compared pair by pair this would take minutes.
        let points: Vec<Vec<f64>> = (0..200_000).map(|i| vec![f64::from(i), f64::from(-i)]).collect();
        assert_eq!(first_front(&points).len(), points.len());
        assert_eq!(fronts(&points).len(), 1);
        let chain: Vec<Vec<f64>> = (0..200_000).map(|i| vec![f64::from(i), f64::from(i)]).collect();
        assert_eq!(fronts(&chain).len(), chain.len());
        assert!((hypervolume(&points, &[200_000.0, 0.0]) - 19_999_900_000.0).abs() < 1.0);
    }
}
