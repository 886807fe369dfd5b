//! Curves as the page gets them: columns of buckets. The ledger's [`Reducer`](phalanx_ledger::Reducer) makes the
//! buckets, for points of the ledger and for points of files alike.

use phalanx_ledger::Window;
use serde::Serialize;

/// The most buckets of a curve.
const MOST_BUCKETS: usize = 4096;

/// A name with what is known about its values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SeriesInfo {
    pub(crate) name: String,
    pub(crate) points: u64,
    pub(crate) last: Option<f64>,
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
}

/// A curve reduced to buckets, in columns.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// How many values the window has.
    pub(crate) points: u64,
    /// The step and time of the last value of each bucket.
    pub(crate) step: Vec<u64>,
    pub(crate) unix_ms: Vec<Option<u64>>,
    /// Of finite values.
    pub(crate) min: Vec<Option<f64>>,
    pub(crate) max: Vec<Option<f64>>,
    pub(crate) mean: Vec<Option<f64>>,
    pub(crate) last: Vec<Option<f64>>,
    pub(crate) count: Vec<u64>,
}

/// A window with a number of buckets that can be answered.
pub(crate) fn bounded(window: Window) -> Window {
    Window { buckets: Some(window.buckets.unwrap_or(600).clamp(1, MOST_BUCKETS)), ..window }
}

pub(crate) fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

impl Curve {
    pub(crate) fn new(name: &str, reduced: phalanx_ledger::Curve) -> Self {
        let mut curve = Self { name: name.to_owned(), points: reduced.points, ..Self::default() };
        for bucket in reduced.buckets {
            curve.step.push(bucket.last_step);
            curve.unix_ms.push(bucket.last_ms);
            curve.min.push(bucket.min);
            curve.max.push(bucket.max);
            curve.mean.push(bucket.mean);
            curve.last.push(finite(bucket.last));
            curve.count.push(bucket.count);
        }
        curve
    }
}
