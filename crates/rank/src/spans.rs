//! What this replica did when, for `--trace`.

use phalanx_types::Time;
use phalanx_wire::train::{Activity, Span};
use std::time::{Duration, Instant};

/// This many spans are reported at once.
const MANY: usize = 512;

/// Spans since the group began, which all of its replicas saw at the same moment, but for the time that each took to
/// wake.
#[derive(Debug)]
pub(super) struct Spans {
    /// Reports say how long things took. No clock is read where the time is not used.
    timed: bool,
    traced: bool,
    began: Instant,
    spans: Vec<Span>,
}

impl Spans {
    pub(super) fn new(timed: bool, traced: bool) -> Self {
        Self { timed, traced, began: Instant::now(), spans: Vec::new() }
    }

    /// The group begins now.
    pub(super) fn begin(&mut self) {
        self.began = Instant::now();
        self.spans.clear();
    }

    /// Since then.
    pub(super) fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// Now, for something of which reports say how long it takes.
    pub(super) fn if_timed(&self) -> Option<Instant> {
        self.timed.then(Instant::now)
    }

    /// Now, for something that is only seen in traces.
    pub(super) fn if_traced(&self) -> Option<Instant> {
        self.traced.then(Instant::now)
    }

    /// Notes something that ends now; says how long it took, or zero if the time is not used.
    pub(super) fn end(&mut self, what: Activity, step: u64, began: Option<Instant>) -> Duration {
        let Some(began) = began else { return Duration::ZERO };
        let now = Instant::now();
        self.add_between(what, step, began, now);
        now.saturating_duration_since(began)
    }

    /// Notes something that began and ended then.
    pub(super) fn add_between(&mut self, what: Activity, step: u64, began: Instant, ended: Instant) {
        if self.traced {
            let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            let start_us = micros(began.saturating_duration_since(self.began));
            let len_us = u32::try_from(micros(ended.saturating_duration_since(began))).unwrap_or(u32::MAX);
            self.spans.push(Span { what, step, start_us, len_us });
        }
    }

    /// Those that are due to be told.
    pub(super) fn take(&mut self, all: bool) -> Option<Vec<Span>> {
        let due = !self.spans.is_empty() && (all || self.spans.len() >= MANY);
        due.then(|| std::mem::take(&mut self.spans))
    }
}
