//! How long jobs take here, and what follows: how many to hold, how many to start together.

use smol_str::SmolStr;
use std::collections::BTreeMap;

/// Work in hand beyond what runs, so that a round trip to the main node never leaves a core idle.
const AHEAD_MICROS: u64 = 4_000;
/// No more than this many leases beyond the cores, however short the jobs are.
const MAX_AHEAD: u64 = 1_024;
/// A batch should take about this long; shorter ones cost more to hand over than to run.
const BATCH_MICROS: u64 = 500;
const MAX_BATCH: u64 = 64;
/// What a job is taken to last before one was seen.
const UNKNOWN_MICROS: u64 = 10_000;

/// Moving averages of run times, in eighths of a microsecond to keep fractions.
#[derive(Debug, Default)]
pub(super) struct Pace {
    overall: Option<u64>,
    by_kind: BTreeMap<SmolStr, u64>,
}

fn blend(average: Option<u64>, micros: u64) -> u64 {
    let sample = micros.min(u64::MAX / 16) * 8;
    average.map_or(sample, |a| a - a / 8 + sample / 8)
}

/// The largest window there can be.
pub(in crate::core) fn max_window(cores: u32) -> usize {
    cores as usize + usize::try_from(MAX_AHEAD).unwrap_or(usize::MAX)
}

impl Pace {
    pub(super) fn observe(&mut self, kind: &SmolStr, micros: u64) {
        self.overall = Some(blend(self.overall, micros));
        match self.by_kind.get_mut(kind) {
            Some(average) => *average = blend(Some(*average), micros),
            None => {
                self.by_kind.insert(kind.clone(), blend(None, micros));
            }
        }
    }

    /// What a job of this kind is expected to take.
    pub(super) fn expected(&self, kind: &SmolStr) -> u64 {
        self.by_kind.get(kind).map_or(UNKNOWN_MICROS, |eighths| eighths / 8)
    }

    pub(super) fn window(&self, cores: u32) -> u32 {
        let average = self.overall.map_or(UNKNOWN_MICROS, |eighths| eighths / 8).max(1);
        let ahead = (u64::from(cores) * AHEAD_MICROS / average).clamp(1, MAX_AHEAD);
        cores.saturating_add(u32::try_from(ahead).unwrap_or(u32::MAX))
    }

    pub(super) fn batch(&self, kind: &SmolStr) -> usize {
        let batch = (BATCH_MICROS / self.expected(kind).max(1)).clamp(1, MAX_BATCH);
        usize::try_from(batch).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_jobs_are_held_one_ahead_and_started_alone_short_ones_in_hundreds() {
        let (long, short) = (SmolStr::new("long"), SmolStr::new("short"));
        let mut pace = Pace::default();
        assert_eq!((pace.window(2), pace.batch(&long)), (3, 1));
        pace.observe(&long, 5_000_000);
        assert_eq!((pace.window(2), pace.batch(&long)), (3, 1));
        let mut pace = Pace::default();
        for _ in 0..100 {
            pace.observe(&short, 1);
        }
        assert_eq!((pace.window(2), pace.batch(&short)), (1_026, 64));
    }
}
