//! What this replica did when, for `--trace`.

use phalanx_types::Time;
use phalanx_wire::train::{Activity, Span};
use std::time::Instant;

/// This many spans are reported at once.
const MANY: usize = 512;

/// Spans since the group began, which all of its replicas saw at the same moment, but for the time that each took to
/// wake.
#[derive(Debug)]
pub(super) struct Spans {
    wanted: bool,
    began: Instant,
    spans: Vec<Span>,
}

impl Spans {
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted, began: Instant::now(), spans: Vec::new() }
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

    /// Notes something that began then and ends now.
    pub(super) fn add(&mut self, what: Activity, step: u64, began: Instant) {
        if self.wanted {
            self.add_between(what, step, began, Instant::now());
        }
    }

    /// Notes something that began and ended then.
    pub(super) fn add_between(&mut self, what: Activity, step: u64, began: Instant, ended: Instant) {
        if self.wanted {
            let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
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
