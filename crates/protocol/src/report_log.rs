//! Steps and validations that a rank remembers, for a driver that has not recorded them.
//!
//! One rank reports for its group. If it is lost before its reports are delivered, the other ranks still know them.
//! A driver on a busy machine may be many steps behind, so every validation of a remembered step is kept, too.

use crate::bugs::{RunBug, planted};
use phalanx_wire::train::{Recorded, StepReport, ValidSums};
use std::collections::{BTreeMap, VecDeque};

/// At least this many steps are remembered.
const STEPS: usize = 256;

/// The reports that a rank can repeat.
#[derive(Debug, Clone, Default)]
pub struct ReportLog {
    steps: VecDeque<StepReport>,
    /// Validations of remembered steps, and the last validation, by step.
    validations: BTreeMap<u64, ValidSums>,
}

impl ReportLog {
    /// Remembers a step. `together` steps are reported in one message, so at least that many are remembered.
    pub fn on_step(&mut self, report: StepReport, together: usize) {
        if self.steps.len() >= STEPS.max(together) {
            self.steps.pop_front();
            self.forget_old_validations();
        }
        self.steps.push_back(report);
    }

    /// Remembers a validation.
    pub fn on_valid(&mut self, step: u64, sums: ValidSums) {
        if planted(RunBug::RemembersOneValidation) {
            self.validations.clear();
        }
        self.validations.insert(step, sums);
        self.forget_old_validations();
    }

    /// Forgets reports after a step: the run has gone back to it.
    pub fn forget_after(&mut self, step: u64) {
        self.steps.retain(|report| report.step <= step);
        self.validations.retain(|of, _| *of <= step);
    }

    fn forget_old_validations(&mut self) {
        let oldest = self.steps.front().map_or(u64::MAX, |report| report.step);
        while self.validations.len() > 1
            && let Some(first) = self.validations.first_entry().filter(|entry| *entry.key() < oldest)
        {
            first.remove();
        }
    }

    /// The reports of later steps.
    pub fn since(&self, step: u64) -> Vec<StepReport> {
        let first = self.steps.partition_point(|report| report.step <= step);
        self.steps.range(first..).cloned().collect()
    }

    /// The reports of all steps, which are forgotten: they are recorded at once, so none has to be repeated.
    pub fn take_steps(&mut self) -> Vec<StepReport> {
        self.steps.drain(..).collect()
    }

    /// The reports up to step `done` that the driver has not recorded.
    pub fn unheard(&self, recorded: Recorded, done: u64) -> Unheard {
        let mut steps = self.since(recorded.step);
        steps.retain(|report| report.step <= done);
        let new = self.validations.iter().filter(|(step, _)| **step > recorded.validated && **step <= done);
        Unheard { steps, validations: new.map(|(step, sums)| (*step, sums.clone())).collect() }
    }
}

/// Reports that the driver has not recorded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Unheard {
    /// In the order of steps.
    pub steps: Vec<StepReport>,
    /// Step and sums, in the order of steps.
    pub validations: Vec<(u64, ValidSums)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> ReportLog {
        let mut log = ReportLog::default();
        let report = |step| StepReport { step, ..StepReport::default() };
        (1..=20).for_each(|step| log.on_step(report(step), 1));
        log.on_valid(17, ValidSums::default());
        log
    }

    fn said(log: &ReportLog, recorded: (u64, u64), done: u64) -> (Vec<u64>, Vec<u64>) {
        let recorded = Recorded { step: recorded.0, validated: recorded.1, saved: 0 };
        let (mut steps, mut valid) = (Vec::new(), Vec::new());
        let unheard = log.unheard(recorded, done);
        steps.extend(unheard.steps.iter().map(|report| report.step));
        valid.extend(unheard.validations.iter().map(|(step, _)| *step));
        (steps, valid)
    }

    #[test]
    fn what_the_driver_has_not_recorded_is_said_again() {
        let log = log();
        assert_eq!(said(&log, (18, 0), 20), (vec![19, 20], vec![17]));
        assert_eq!(said(&log, (18, 17), 19), (vec![19], vec![]));
        assert_eq!(said(&log, (20, 17), 20), (vec![], vec![]));
    }

    #[test]
    fn what_is_undone_is_forgotten() {
        let mut log = log();
        log.forget_after(15);
        assert_eq!(said(&log, (14, 0), 20), (vec![15], vec![]));
    }

    #[test]
    fn a_whole_round_is_remembered_however_long_it_is() {
        let mut log = ReportLog::default();
        for step in 1..=1000 {
            log.on_step(StepReport { step, ..StepReport::default() }, 700);
        }
        assert_eq!(log.since(0).len(), 700);
    }

    #[test]
    fn a_driver_that_is_far_behind_hears_of_every_validation() {
        let mut log = log();
        log.on_step(StepReport { step: 34, ..StepReport::default() }, 1);
        for step in [34, 51] {
            log.on_valid(step, ValidSums::default());
        }
        assert_eq!(said(&log, (16, 0), 60).1, [17, 34, 51]);
        assert_eq!(said(&log, (16, 17), 50).1, [34]);
    }

    #[test]
    fn validations_are_forgotten_with_their_steps_but_for_the_last() {
        let mut log = log();
        for step in 21..=(STEPS as u64 + 40) {
            log.on_step(StepReport { step, ..StepReport::default() }, 1);
        }
        assert_eq!(said(&log, (0, 0), 1000).1, [17], "the last is kept");
        log.on_valid(100, ValidSums::default());
        assert_eq!(said(&log, (0, 0), 1000).1, [100]);
    }
}
