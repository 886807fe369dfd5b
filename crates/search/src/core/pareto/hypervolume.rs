//! How much of the space below a reference point a set of points dominates.

use super::{compare, dominates};

/// The volume that `points` dominate within the box that ends at `reference`, exactly, for any number of objectives.
/// A point that does not stay below the reference in every objective adds nothing. Equal points count once.
pub fn hypervolume(points: &[Vec<f64>], reference: &[f64]) -> f64 {
    let inside = |point: &&Vec<f64>| {
        point.len() == reference.len() && point.iter().zip(reference).all(|(&value, &end)| value < end)
    };
    let mut boxes: Vec<Vec<f64>> = points.iter().filter(inside).cloned().collect();
    boxes.sort_by(|a, b| compare(a, b));
    boxes.dedup();
    match reference.len() {
        0 => 0.0,
        1 => boxes.first().map_or(0.0, |point| reference[0] - point[0]),
        2 => area(&boxes, reference),
        _ => volume(&boxes, reference),
    }
}

/// Two objectives, sorted by the first: a staircase.
fn area(sorted: &[Vec<f64>], reference: &[f64]) -> f64 {
    let mut height = reference[1];
    let mut area = 0.0;
    for point in sorted {
        if point[1] < height {
            area += (reference[0] - point[0]) * (height - point[1]);
            height = point[1];
        }
    }
    area
}

/// Cuts the space where a point begins in the first objective. Within a slice that objective does not matter, and the
/// points that began so far cover the volume of one objective less.
fn volume(sorted: &[Vec<f64>], reference: &[f64]) -> f64 {
    if reference.len() == 2 {
        return area(sorted, reference);
    }
    let mut total = 0.0;
    let mut begun: Vec<Vec<f64>> = Vec::new();
    for (position, point) in sorted.iter().enumerate() {
        keep_front(&mut begun, point[1..].to_vec());
        let end = sorted.get(position + 1).map_or(reference[0], |next| next[0]);
        if end > point[0] {
            total += (end - point[0]) * volume(&begun, &reference[1..]);
        }
    }
    total
}

/// Adds a point to a sorted front, unless it is dominated, and removes what it dominates.
fn keep_front(front: &mut Vec<Vec<f64>>, point: Vec<f64>) {
    if front.iter().any(|rival| *rival == point || dominates(rival, &point)) {
        return;
    }
    front.retain(|rival| !dominates(&point, rival));
    let at = front.partition_point(|rival| compare(rival, &point).is_lt());
    front.insert(at, point);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dice::Dice;
    use phalanx_types::Seed;

    /// The sum over all subsets, with changing sign, of the box that all of the subset cover.
    fn by_inclusion_and_exclusion(points: &[Vec<f64>], reference: &[f64]) -> f64 {
        let mut total = 0.0;
        for subset in 1_u32..1 << points.len() {
            let members: Vec<&Vec<f64>> =
                points.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1).map(|(_, p)| p).collect();
            let sides = reference.iter().enumerate().map(|(k, &end)| {
                (end - members.iter().map(|p| p[k]).fold(f64::NEG_INFINITY, f64::max)).max(0.0)
            });
            total += sides.product::<f64>() * if members.len() % 2 == 1 { 1.0 } else { -1.0 };
        }
        total
    }

    #[test]
    fn volumes_are_those_of_the_boxes() {
        let mut dice = Dice::new(Seed(4));
        for objectives in 1..=5 {
            for count in 0..10 {
                let mut points: Vec<Vec<f64>> = (0..count)
                    .map(|_| (0..objectives).map(|_| dice.below(12) as f64 / 8.0).collect())
                    .collect();
                points.extend(points.first().cloned());
                let reference = vec![1.1; objectives];
                let expected = by_inclusion_and_exclusion(&points, &reference);
                let found = hypervolume(&points, &reference);
                assert!((found - expected).abs() < 1e-9, "{objectives} objectives: {found}, not {expected}");
            }
        }
    }

    #[test]
    fn volumes_of_many_points_agree_with_samples() {
        let mut dice = Dice::new(Seed(5));
        for objectives in 2..=4 {
            let points: Vec<Vec<f64>> =
                (0..40).map(|_| (0..objectives).map(|_| 0.3 + dice.unit()).collect()).collect();
            let hits = (0..100_000)
                .filter(|_| {
                    let at: Vec<f64> = (0..objectives).map(|_| dice.unit()).collect();
                    points.iter().any(|p| p.iter().zip(&at).all(|(p, at)| p <= at))
                })
                .count();
            let found = hypervolume(&points, &vec![1.0; objectives]);
            assert!((found - hits as f64 / 100_000.0).abs() < 0.006, "{objectives} objectives: {found}");
        }
    }

    #[test]
    fn points_beyond_the_reference_add_nothing() {
        assert_eq!(hypervolume(&[vec![0.5, 1.0], vec![f64::NAN, 0.0], vec![2.0, 0.0]], &[1.0, 1.0]), 0.0);
        assert_eq!(hypervolume(&[vec![0.5, 0.5], vec![0.5, 1.0]], &[1.0, 1.0]), 0.25);
        assert_eq!(hypervolume(&[], &[1.0]), 0.0);
    }
}
