//! What one run recorded, in columns, for runs that the ledger does not have. Pure: fed with entries, asked for reduced
//! curves.

use crate::curve::{Curve, SeriesInfo, bounded, finite};
use crate::entry::{Entry, Line};
use phalanx_ledger::{Axis, Point, Reducer, Window};
use phalanx_records::history::LoggedEvent;
use std::collections::BTreeMap;

/// The most names. A run with a name for every step would take memory without a bound.
const MOST_SERIES: usize = 4096;

/// A recorded step or validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    step: u64,
    unix_ms: Option<u64>,
}

/// The values of one name, each with its row.
#[derive(Debug, Clone, Default, PartialEq)]
struct Series {
    rows: Vec<u32>,
    values: Vec<f64>,
}

/// The records of a run so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunView {
    rows: Vec<Row>,
    series: BTreeMap<String, Series>,
    pub(crate) events: Vec<LoggedEvent>,
}

impl RunView {
    pub(crate) fn push(&mut self, entry: Entry) {
        match entry {
            Entry::Event(event) => self.events.push(event),
            Entry::Cut { step, .. } => self.cut(step),
            Entry::Line(line) => self.line(line),
            Entry::Annotation(..) => {}
        }
    }

    fn line(&mut self, line: Line) {
        let Ok(number) = u32::try_from(self.rows.len()) else { return };
        self.rows.push(Row { step: line.step, unix_ms: line.unix_ms });
        for (name, value) in line.values {
            if self.series.len() >= MOST_SERIES && !self.series.contains_key(&name) {
                continue;
            }
            let series = self.series.entry(name).or_default();
            series.rows.push(number);
            series.values.push(value);
        }
    }

    /// Takes back everything after a step.
    fn cut(&mut self, step: u64) {
        let kept = self.rows.partition_point(|row| row.step <= step);
        self.rows.truncate(kept);
        for series in self.series.values_mut() {
            let kept = series.rows.partition_point(|row| (*row as usize) < kept);
            series.rows.truncate(kept);
            series.values.truncate(kept);
        }
    }

    pub(crate) fn infos(&self) -> Vec<SeriesInfo> {
        let info = |(name, series): (&String, &Series)| {
            let finite_values = || series.values.iter().copied().filter(|value| value.is_finite());
            SeriesInfo {
                name: name.clone(),
                points: series.values.len() as u64,
                last: series.values.last().copied().and_then(finite),
                min: finite_values().reduce(f64::min),
                max: finite_values().reduce(f64::max),
            }
        };
        self.series.iter().filter(|(_, series)| !series.values.is_empty()).map(info).collect()
    }

    /// A curve in at most as many buckets as asked for; `None` if no value has this name.
    pub(crate) fn curve(&self, name: &str, window: Window) -> Option<Curve> {
        let window = bounded(window);
        let series = self.series.get(name).filter(|series| !series.values.is_empty())?;
        let at = |point: usize| self.rows[series.rows[point] as usize];
        let along = |point: usize| match window.axis {
            Axis::Step => at(point).step,
            Axis::Time => at(point).unix_ms.unwrap_or(0),
        };
        let points = series.values.len();
        let begin = window.from.map_or(0, |from| first(points, |point| along(point) >= from));
        let end = window.to.map_or(points, |to| first(points, |point| along(point) > to)).max(begin);
        // The part of the axis that is cut into buckets.
        let (low, high) = (along(0), along(points - 1));
        let (from, to) = (window.from.unwrap_or(low).max(low), window.to.unwrap_or(high).min(high));
        let mut reducer = Reducer::new(window.axis, from, to, window.buckets);
        for point in begin..end {
            let Row { step, unix_ms } = at(point);
            reducer.push(Point { step, unix_ms, value: series.values[point] });
        }
        Some(Curve::new(name, reducer.finish()))
    }
}

/// The first of `0..len` for which an ordered condition holds, or `len`.
fn first(len: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64, loss: f64) -> Entry {
        let values = vec![("loss".to_owned(), loss)];
        Entry::Line(Line { at: step, step, unix_ms: Some(1000 + step), values })
    }

    fn view(steps: u64) -> RunView {
        let mut view = RunView::default();
        (1..=steps).for_each(|step| view.push(line(step, step as f64)));
        view
    }

    fn window(buckets: usize) -> Window {
        Window { buckets: Some(buckets), ..Window::default() }
    }

    #[test]
    fn buckets_keep_extremes_and_count_every_point_once() {
        let mut view = view(1000);
        view.push(line(1001, 1e6));
        let curve = view.curve("loss", window(10)).unwrap();
        assert_eq!((curve.points, curve.count.iter().sum::<u64>()), (1001, 1001));
        assert_eq!((curve.min[0], curve.max[9], curve.step[9]), (Some(1.0), Some(1e6), 1001));
        assert_eq!(curve.last[9], Some(1e6), "not the mean");
        let curve = view.curve("loss", window(5000)).unwrap();
        assert!(curve.count.iter().all(|count| *count == 1) && curve.mean.len() == 1001);
        assert!(view.curve("nothing", window(10)).is_none());
    }

    #[test]
    fn a_window_is_cut_out_by_step_or_time() {
        let view = view(100);
        let by_step = Window { from: Some(11), to: Some(20), ..window(100) };
        let curve = view.curve("loss", by_step).unwrap();
        assert_eq!((curve.points, curve.step[0], curve.step[9]), (10, 11, 20));
        let by_time = Window { axis: Axis::Time, from: Some(1011), to: Some(1020), ..window(100) };
        assert_eq!(view.curve("loss", by_time).unwrap().step, curve.step);
        let empty = Window { from: Some(50), to: Some(40), ..window(10) };
        assert_eq!(view.curve("loss", empty).unwrap().points, 0);
    }

    #[test]
    fn what_a_resumed_run_cut_does_not_count() {
        let mut view = view(10);
        view.push(Entry::Cut { step: 4, metrics_bytes: 0 });
        view.push(line(5, 50.0));
        let curve = view.curve("loss", window(10)).unwrap();
        assert_eq!((curve.points, curve.mean[4]), (5, Some(50.0)));
    }

    #[test]
    fn a_value_that_is_not_finite_is_a_gap() {
        let mut view = view(1);
        view.push(line(2, f64::NAN));
        let curve = view.curve("loss", window(10)).unwrap();
        assert_eq!(curve.mean, [Some(1.0), None]);
        assert_eq!(view.infos()[0].last, None);
    }
}
