//! Curves with fewer points: each bucket keeps its least, most, mean, first and last value.

use serde::Serialize;

/// A recorded value of a series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    pub step: u64,
    /// Milliseconds since 1970, if the line says so.
    pub unix_ms: Option<u64>,
    /// May be infinite, or not a number.
    pub value: f64,
}

/// By what a curve is cut into buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    #[default]
    Step,
    /// Milliseconds since 1970; points without a time are left out.
    Time,
}

/// Which part of a curve is asked for, and how fine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    pub axis: Axis,
    /// The first value of the axis that counts.
    pub from: Option<u64>,
    /// The last value of the axis that counts.
    pub to: Option<u64>,
    /// At most this many buckets; `None` for every point as it was recorded.
    pub buckets: Option<usize>,
}

/// A part of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bucket {
    /// The axis value of its first and last point.
    pub from: u64,
    pub to: u64,
    pub count: u64,
    /// Of the finite values; `None` if there are none.
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub mean: Option<f64>,
    pub first: f64,
    pub last: f64,
    /// The step and time of its last point.
    pub last_step: u64,
    pub last_ms: Option<u64>,
    /// Values that are infinite or not a number.
    pub non_finite: u64,
}

/// A curve, reduced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    pub axis: Axis,
    /// How many points are behind it.
    pub points: u64,
    pub buckets: Vec<Bucket>,
}

/// Cuts a range of the axis into buckets of equal width.
#[derive(Debug)]
pub struct Reducer {
    axis: Axis,
    /// `None`: a bucket for every point.
    grid: Option<Grid>,
    points: u64,
    open: Option<Open>,
    done: Vec<Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Grid {
    from: u64,
    to: u64,
    buckets: u64,
}

impl Grid {
    /// The bucket of a value of the axis.
    fn index(self, at: u64) -> u64 {
        let width = u128::from(self.to.saturating_sub(self.from)) + 1;
        let offset = u128::from(at.clamp(self.from, self.to) - self.from);
        u64::try_from(offset * u128::from(self.buckets) / width).unwrap_or(u64::MAX)
    }
}

/// The bucket that is being filled.
#[derive(Debug)]
struct Open {
    index: u64,
    bucket: Bucket,
    sum: f64,
    finite: u64,
}

impl Reducer {
    /// For points between `from` and `to`, which are both in the range.
    pub fn new(axis: Axis, from: u64, to: u64, buckets: Option<usize>) -> Self {
        let grid = buckets.map(|buckets| Grid { from, to: to.max(from), buckets: (buckets as u64).max(1) });
        Self { axis, grid, points: 0, open: None, done: Vec::new() }
    }

    /// Takes the next point, in the order of the axis.
    pub fn push(&mut self, point: Point) {
        let at = match self.axis {
            Axis::Step => point.step,
            Axis::Time => match point.unix_ms {
                Some(ms) => ms,
                None => return,
            },
        };
        let index = self.grid.map_or(self.points, |grid| grid.index(at));
        self.points += 1;
        if self.open.as_ref().is_none_or(|open| open.index != index) {
            self.close();
            let bucket = Bucket {
                from: at,
                to: at,
                count: 0,
                min: None,
                max: None,
                mean: None,
                first: point.value,
                last: point.value,
                last_step: point.step,
                last_ms: point.unix_ms,
                non_finite: 0,
            };
            self.open = Some(Open { index, bucket, sum: 0.0, finite: 0 });
        }
        let Some(open) = &mut self.open else { return };
        open.bucket.count += 1;
        open.bucket.to = at;
        open.bucket.last = point.value;
        (open.bucket.last_step, open.bucket.last_ms) = (point.step, point.unix_ms);
        if point.value.is_finite() {
            open.finite += 1;
            open.sum += point.value;
            open.bucket.min = Some(open.bucket.min.map_or(point.value, |least| least.min(point.value)));
            open.bucket.max = Some(open.bucket.max.map_or(point.value, |most| most.max(point.value)));
        } else {
            open.bucket.non_finite += 1;
        }
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            // Halves first, if the sum of large values overflows.
            let mean = open.sum / open.finite as f64;
            let middle = open.bucket.min.zip(open.bucket.max).map(|(min, max)| min / 2.0 + max / 2.0);
            let mean = if mean.is_finite() { Some(mean) } else { middle };
            self.done.push(Bucket { mean, ..open.bucket });
        }
    }

    pub fn finish(mut self) -> Curve {
        self.close();
        Curve { axis: self.axis, points: self.points, buckets: self.done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: u64, value: f64) -> Point {
        Point { step, unix_ms: Some(step * 10), value }
    }

    #[test]
    fn extremes_survive_and_counts_add_up() {
        let mut reducer = Reducer::new(Axis::Step, 1, 1000, Some(10));
        for step in 1..=1000 {
            reducer.push(point(step, if step == 555 { 99.0 } else { step as f64 / 1000.0 }));
        }
        let curve = reducer.finish();
        assert_eq!((curve.buckets.len(), curve.points), (10, 1000));
        assert!(curve.buckets.iter().all(|bucket| bucket.count == 100));
        assert_eq!((curve.buckets[5].max, curve.buckets[5].min), (Some(99.0), Some(0.501)));
        assert_eq!((curve.buckets[0].first, curve.buckets[9].last), (0.001, 1.0));
        assert_eq!((curve.buckets[9].from, curve.buckets[9].to), (901, 1000));
        assert_eq!((curve.buckets[4].last_step, curve.buckets[4].last_ms), (500, Some(5000)));
    }

    #[test]
    fn values_that_are_not_finite_are_counted_and_do_not_spread() {
        let mut reducer = Reducer::new(Axis::Step, 0, 3, Some(1));
        for (step, value) in [2.0, f64::NAN, f64::INFINITY, 4.0].into_iter().enumerate() {
            reducer.push(point(step as u64, value));
        }
        let bucket = reducer.finish().buckets[0];
        assert_eq!((bucket.min, bucket.max, bucket.mean), (Some(2.0), Some(4.0), Some(3.0)));
        assert_eq!((bucket.count, bucket.non_finite), (4, 2));
        let mut reducer = Reducer::new(Axis::Step, 0, 1, Some(1));
        reducer.push(point(0, f64::MAX));
        reducer.push(point(1, f64::MAX));
        assert_eq!(reducer.finish().buckets[0].mean, Some(f64::MAX));
    }

    #[test]
    fn a_range_of_any_size_can_be_cut() {
        for (from, to) in [(0, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (7, 3)] {
            let mut reducer = Reducer::new(Axis::Step, from, to, Some(100));
            reducer.push(point(from / 20, 1.0));
            reducer.push(Point { step: to, unix_ms: None, value: 2.0 });
            assert_eq!(reducer.finish().points, 2);
        }
        let mut all = Reducer::new(Axis::Time, 0, 100, None);
        (0..7).for_each(|step| all.push(point(step / 2, 1.0)));
        all.push(Point { step: 9, unix_ms: None, value: 1.0 });
        assert_eq!(all.finish().buckets.len(), 7);
    }
}
