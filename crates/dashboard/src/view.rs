//! What one run recorded, in columns, for curves and replay. Pure: fed with entries, asked for reduced curves.

use crate::entry::{Entry, Values};
use phalanx_records::history::LoggedEvent;
use phalanx_records::run_dir::Annotation;
use serde::Serialize;
use std::collections::BTreeMap;

/// A recorded step or validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) step: u64,
    pub(crate) unix_ms: Option<u64>,
}

/// The values of one name, each with its row.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Series {
    rows: Vec<u32>,
    values: Vec<f64>,
}

/// The records of a run so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunView {
    /// How often records were cut back. Positions of an earlier generation are void.
    pub(crate) generation: u64,
    pub(crate) rows: Vec<Row>,
    pub(crate) series: BTreeMap<String, Series>,
    pub(crate) events: Vec<LoggedEvent>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) notes: Vec<Note>,
}

/// A note that a user made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Note {
    pub(crate) unix_ms: u64,
    pub(crate) text: String,
}

/// A name with what is known about its values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SeriesInfo {
    pub(crate) name: String,
    pub(crate) points: usize,
    pub(crate) last: Option<f64>,
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
}

/// By what a curve is cut into buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Axis {
    #[default]
    Step,
    Time,
}

/// Which part of a curve, and how fine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    pub(crate) axis: Axis,
    /// Inclusive, in steps or in milliseconds since 1970.
    pub(crate) from: Option<u64>,
    pub(crate) to: Option<u64>,
    pub(crate) buckets: usize,
}

/// A curve reduced to buckets, in columns.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// How many values the window has.
    pub(crate) points: usize,
    /// The step and time of the last value of each bucket.
    pub(crate) step: Vec<u64>,
    pub(crate) unix_ms: Vec<Option<u64>>,
    pub(crate) min: Vec<Option<f64>>,
    pub(crate) max: Vec<Option<f64>>,
    pub(crate) mean: Vec<Option<f64>>,
    pub(crate) count: Vec<u32>,
}

impl RunView {
    pub(crate) fn push(&mut self, entry: Entry) {
        match entry {
            Entry::Event(event) => self.events.push(event),
            Entry::Cut { step } => self.cut(step),
            Entry::Annotation(unix_ms, annotation) => self.annotate(unix_ms, annotation),
            Entry::Line { step, unix_ms, values } => self.line(Row { step, unix_ms }, values),
        }
    }

    fn annotate(&mut self, unix_ms: u64, annotation: Annotation) {
        match annotation {
            Annotation::Set(tags) => self.tags.extend(tags),
            Annotation::Remove(key) => drop(self.tags.remove(&key)),
            Annotation::Note(text) => self.notes.push(Note { unix_ms, text }),
        }
    }

    fn line(&mut self, row: Row, values: Values) {
        let Ok(number) = u32::try_from(self.rows.len()) else { return };
        self.rows.push(row);
        for (name, value) in values {
            // A run with a name for every step would take memory without a bound.
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
        if kept == self.rows.len() {
            return;
        }
        self.generation += 1;
        self.rows.truncate(kept);
        for series in self.series.values_mut() {
            let kept = series.rows.partition_point(|row| (*row as usize) < kept);
            series.rows.truncate(kept);
            series.values.truncate(kept);
        }
    }

    pub(crate) fn infos(&self) -> Vec<SeriesInfo> {
        let info = |(name, series): (&String, &Series)| {
            let finite = || series.values.iter().copied().filter(|value| value.is_finite());
            SeriesInfo {
                name: name.clone(),
                points: series.values.len(),
                last: series.values.last().copied().filter(|value| value.is_finite()),
                min: finite().reduce(f64::min),
                max: finite().reduce(f64::max),
            }
        };
        self.series.iter().filter(|(_, series)| !series.values.is_empty()).map(info).collect()
    }

    /// A curve in at most as many buckets as asked for; `None` if no value has this name.
    pub(crate) fn curve(&self, name: &str, window: &Window) -> Option<Curve> {
        let series = self.series.get(name).filter(|series| !series.values.is_empty())?;
        let at = |point: usize| self.rows[series.rows[point] as usize];
        let along = |point: usize| match window.axis {
            Axis::Step => at(point).step,
            Axis::Time => at(point).unix_ms.unwrap_or(0),
        };
        let points = series.values.len();
        let from = window.from.map_or(0, |from| first(points, |point| along(point) >= from));
        let to = window.to.map_or(points, |to| first(points, |point| along(point) > to)).max(from);
        let mut curve = Curve { name: name.to_owned(), points: to - from, ..Curve::default() };
        let buckets = window.buckets.clamp(1, MOST_BUCKETS).min(to - from);
        let mut begin = from;
        for bucket in 0..buckets {
            let end = from + ((to - from) * (bucket + 1)) / buckets;
            let last = at(end - 1);
            curve.step.push(last.step);
            curve.unix_ms.push(last.unix_ms);
            let (min, max, mean) = of_bucket(&series.values[begin..end]);
            curve.min.push(min);
            curve.max.push(max);
            curve.mean.push(mean);
            curve.count.push(u32::try_from(end - begin).unwrap_or(u32::MAX));
            begin = end;
        }
        Some(curve)
    }

    /// The values of rows from a number on, row by row.
    pub(crate) fn since(&self, row: usize) -> Vec<(Row, BTreeMap<&str, Option<f64>>)> {
        let mut lines: Vec<(Row, BTreeMap<&str, Option<f64>>)> =
            self.rows[row.min(self.rows.len())..].iter().map(|row| (*row, BTreeMap::new())).collect();
        for (name, series) in &self.series {
            let begin = series.rows.partition_point(|at| (*at as usize) < row);
            for point in begin..series.rows.len() {
                if let Some((_, values)) = lines.get_mut(series.rows[point] as usize - row) {
                    values.insert(name, finite(series.values[point]));
                }
            }
        }
        lines
    }
}

/// The most names and buckets.
const MOST_SERIES: usize = 4096;
const MOST_BUCKETS: usize = 4096;

/// The first of `0..len` for which an ordered condition holds, or `len`.
fn first(len: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// Least, greatest and mean value; values that are not finite make it one that is not.
fn of_bucket(values: &[f64]) -> (Option<f64>, Option<f64>, Option<f64>) {
    let (mut min, mut max, mut sum) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
    let mut all_finite = true;
    for value in values {
        all_finite &= value.is_finite();
        min = min.min(*value);
        max = max.max(*value);
        sum += value;
    }
    if !all_finite {
        return (None, None, None);
    }
    (finite(min), finite(max), finite(sum / values.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64, loss: f64) -> Entry {
        Entry::Line { step, unix_ms: Some(1000 + step), values: vec![("loss".to_owned(), loss)] }
    }

    fn view(steps: u64) -> RunView {
        let mut view = RunView::default();
        (1..=steps).for_each(|step| view.push(line(step, step as f64)));
        view
    }

    fn window(buckets: usize) -> Window {
        Window { axis: Axis::Step, from: None, to: None, buckets }
    }

    #[test]
    fn buckets_keep_extremes_and_count_every_point_once() {
        let mut view = view(1000);
        view.push(line(1001, 1e6));
        let curve = view.curve("loss", &window(10)).unwrap();
        assert_eq!((curve.points, curve.count.iter().sum::<u32>()), (1001, 1001));
        assert_eq!((curve.min[0], curve.max[9], curve.step[9]), (Some(1.0), Some(1e6), 1001));
        let curve = view.curve("loss", &window(5000)).unwrap();
        assert!(curve.count.iter().all(|count| *count == 1) && curve.mean.len() == 1001);
        assert!(view.curve("nothing", &window(10)).is_none());
    }

    #[test]
    fn a_window_is_cut_out_by_step_or_time() {
        let view = view(100);
        let by_step = Window { from: Some(11), to: Some(20), ..window(100) };
        let curve = view.curve("loss", &by_step).unwrap();
        assert_eq!((curve.points, curve.step[0], curve.step[9]), (10, 11, 20));
        let by_time = Window { axis: Axis::Time, from: Some(1011), to: Some(1020), ..window(100) };
        assert_eq!(view.curve("loss", &by_time).unwrap().step, curve.step);
        let empty = Window { from: Some(50), to: Some(40), ..window(10) };
        assert_eq!(view.curve("loss", &empty).unwrap().points, 0);
    }

    #[test]
    fn what_a_resumed_run_cut_does_not_count() {
        let mut view = view(10);
        view.push(Entry::Cut { step: 10 });
        assert_eq!(view.generation, 0, "nothing was cut");
        view.push(Entry::Cut { step: 4 });
        view.push(line(5, 50.0));
        assert_eq!((view.generation, view.rows.len()), (1, 5));
        assert_eq!(view.curve("loss", &window(10)).unwrap().mean[4], Some(50.0));
        let since = view.since(3);
        assert_eq!((since.len(), since[0].0.step, since[1].1["loss"]), (2, 4, Some(50.0)));
    }

    #[test]
    fn a_value_that_is_not_finite_is_a_gap() {
        let mut view = view(1);
        view.push(line(2, f64::NAN));
        let curve = view.curve("loss", &window(10)).unwrap();
        assert_eq!(curve.mean, [Some(1.0), None]);
        assert_eq!(view.infos()[0].last, None);
    }
}
