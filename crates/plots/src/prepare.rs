//! What is drawn of a chart: smoothed, and with no more points than the picture can show.

use crate::{Chart, Line};

/// Curves in the form in which they are drawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prepared {
    pub(crate) label: String,
    /// The points without the gaps, in pieces.
    pub(crate) pieces: Vec<Vec<(f64, f64)>>,
    /// The same before smoothing, if that makes a difference.
    pub(crate) behind: Vec<Vec<(f64, f64)>>,
}

/// The smallest rectangle with all points, with some room where it would have no area.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bounds {
    pub(crate) x: (f64, f64),
    pub(crate) y: (f64, f64),
}

/// Prepares the lines of a panel for a picture with `columns` columns.
pub(crate) fn prepare(chart: &Chart, lines: &[Line], columns: usize) -> Vec<Prepared> {
    let of_line = |line: &Line| {
        let raw = pieces(&line.points, chart.log);
        let is_smoothed = chart.smoothing > 0.0;
        let smooth = |piece: &Vec<(f64, f64)>| smoothed(piece, chart.smoothing);
        let front: Vec<_> = if is_smoothed { raw.iter().map(smooth).collect() } else { raw.clone() };
        let bounds = bounds_of(raw.iter().flatten().copied(), chart.log);
        let reduce = |pieces: Vec<Vec<(f64, f64)>>| -> Vec<Vec<(f64, f64)>> {
            let Some(bounds) = bounds else { return Vec::new() };
            pieces.into_iter().map(|piece| reduced(&piece, bounds.x, columns)).collect()
        };
        Prepared {
            label: crate::printable(&line.label),
            pieces: reduce(front),
            behind: if is_smoothed { reduce(raw) } else { Vec::new() },
        }
    };
    lines.iter().map(of_line).collect()
}

/// Larger numbers are gaps, too, and so are their reciprocals on a logarithmic axis: differences and quotients of what
/// is drawn must be numbers.
const LARGEST: f64 = 1e100;
/// An axis spans at least this part of its numbers: ticks must differ by more than the rounding error.
const LEAST_SPAN: f64 = 1e-6;

/// Whether a point can be drawn on axes that are not logarithmic.
pub(crate) fn is_drawn((x, y): (f64, f64)) -> bool {
    x.abs() <= LARGEST && y.abs() <= LARGEST
}

/// Cuts a curve at what cannot be drawn.
fn pieces(points: &[(f64, f64)], log: bool) -> Vec<Vec<(f64, f64)>> {
    let drawn = |point: &(f64, f64)| is_drawn(*point) && (!log || point.1 >= LARGEST.recip());
    points.split(|point| !drawn(point)).filter(|piece| !piece.is_empty()).map(<[_]>::to_vec).collect()
}

/// The exponential mean of values, without the pull of its beginning to zero.
pub fn smoothed(points: &[(f64, f64)], weight: f64) -> Vec<(f64, f64)> {
    let weight = weight.clamp(0.0, 0.999_999);
    let (mut mean, mut known) = (0.0, 0.0);
    let step = |(x, y): &(f64, f64)| {
        mean = weight * mean + (1.0 - weight) * y;
        known = weight * known + (1.0 - weight);
        (*x, mean / known)
    };
    points.iter().map(step).collect()
}

/// At most four points for each column of the picture: the first, the least, the greatest and the last.
fn reduced(points: &[(f64, f64)], (left, right): (f64, f64), columns: usize) -> Vec<(f64, f64)> {
    if points.len() <= columns.saturating_mul(4) {
        return points.to_vec();
    }
    let width = (right - left) / columns.max(1) as f64;
    let column = |x: f64| ((x - left) / width) as usize;
    let mut kept = Vec::new();
    for bucket in points.chunk_by(|a, b| column(a.0) == column(b.0)) {
        let by_y = |a: &usize, b: &usize| bucket[*a].1.total_cmp(&bucket[*b].1);
        let all = || 0..bucket.len();
        let mut at: Vec<usize> = [Some(0), all().min_by(by_y), all().max_by(by_y), all().next_back()]
            .into_iter()
            .flatten()
            .collect();
        at.sort_unstable();
        at.dedup();
        kept.extend(at.into_iter().map(|at| bucket[at]));
    }
    kept
}

/// Where all these curves lie; `None` if there is no point.
pub(crate) fn bounds(lines: &[Prepared], log: bool) -> Option<Bounds> {
    bounds_of(lines.iter().flat_map(|line| line.pieces.iter().chain(&line.behind)).flatten().copied(), log)
}

pub(crate) fn bounds_of(points: impl Iterator<Item = (f64, f64)>, log: bool) -> Option<Bounds> {
    let mut found: Option<Bounds> = None;
    for (x, y) in points {
        let now = found.get_or_insert(Bounds { x: (x, x), y: (y, y) });
        now.x = (now.x.0.min(x), now.x.1.max(x));
        now.y = (now.y.0.min(y), now.y.1.max(y));
    }
    let mut found = found?;
    if is_narrow(found.x) {
        let room = (found.x.0.abs() * LEAST_SPAN).max(0.5);
        found.x = (found.x.0 - room, found.x.1 + room);
    }
    if is_narrow(found.y) {
        let room = found.y.0.abs().max(1e-12) * 0.05;
        found.y = if log { (found.y.0 / 1.1, found.y.1 * 1.1) } else { (found.y.0 - room, found.y.1 + room) };
    }
    Some(found)
}

fn is_narrow((low, high): (f64, f64)) -> bool {
    high - low <= low.abs().max(high.abs()) * LEAST_SPAN
}

/// A number for an axis: with as many digits as tell neighbours apart.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e6).contains(&size) {
        return short_exponent(value);
    }
    let digits = if size >= 100.0 {
        1
    } else if size >= 1.0 {
        3
    } else {
        5
    };
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn short_exponent(value: f64) -> String {
    let text = format!("{value:.2e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    format!("{}e{exponent}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// A time on an axis: `40 s`, `12 min`, `3.5 h`.
pub(crate) fn seconds(value: f64, span: f64) -> String {
    if span < 180.0 {
        format!("{} s", number(value))
    } else if span < 3.0 * 3600.0 {
        format!("{} min", number(value / 60.0))
    } else {
        format!("{} h", number(value / 3600.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::XAxis;

    fn chart(log: bool, smoothing: f64) -> Chart {
        Chart { title: String::new(), x: XAxis::Step, log, smoothing, panels: Vec::new() }
    }

    fn line(points: Vec<(f64, f64)>) -> Line {
        Line { label: "a".to_owned(), points }
    }

    #[test]
    fn gaps_and_values_without_a_logarithm_cut_a_curve() {
        let points = vec![(1.0, 1.0), (2.0, f64::NAN), (3.0, 2.0), (4.0, 0.0), (5.0, 3.0)];
        let drawn = |log| prepare(&chart(log, 0.0), &[line(points.clone())], 10)[0].pieces.clone();
        assert_eq!(drawn(false), [vec![(1.0, 1.0)], vec![(3.0, 2.0), (4.0, 0.0), (5.0, 3.0)]]);
        assert_eq!(drawn(true), [vec![(1.0, 1.0)], vec![(3.0, 2.0)], vec![(5.0, 3.0)]]);
    }

    #[test]
    fn a_million_points_become_few_and_keep_their_spike() {
        let mut points: Vec<(f64, f64)> = (0..1_000_000).map(|x| (f64::from(x), 1.0)).collect();
        points[333_333].1 = 50.0;
        let lines = prepare(&chart(false, 0.0), &[line(points)], 800);
        assert!(lines[0].pieces[0].len() <= 4 * 801, "{}", lines[0].pieces[0].len());
        assert_eq!(bounds(&lines, false).unwrap().y, (1.0, 50.0));
    }

    #[test]
    fn the_mean_begins_with_the_first_value() {
        let mean = smoothed(&[(0.0, 4.0), (1.0, 4.0), (2.0, 0.0)], 0.5);
        assert_eq!(mean[..2], [(0.0, 4.0), (1.0, 4.0)]);
        assert!((mean[2].1 - 12.0 / 7.0).abs() < 1e-12, "{mean:?}");
    }

    #[test]
    fn one_point_has_room_around_it() {
        let lines = prepare(&chart(true, 0.0), &[line(vec![(3.0, 1e-7)])], 10);
        let bounds = bounds(&lines, true).unwrap();
        assert!(bounds.x.0 < 3.0 && bounds.x.1 > 3.0 && bounds.y.0 > 0.0 && bounds.y.0 < 1e-7);
        assert_eq!(super::bounds(&[], false), None);
    }

    #[test]
    fn numbers_are_short() {
        let said: Vec<String> = [0.0, 0.25, 1.5, 1234.0, 2e7, 1.25e-5].map(number).to_vec();
        assert_eq!(said, ["0", "0.25", "1.5", "1234", "2e7", "1.25e-5"]);
        assert_eq!(
            [seconds(40.0, 60.0), seconds(720.0, 900.0), seconds(12_600.0, 2e4)],
            ["40 s", "12 min", "3.5 h"]
        );
    }
}
