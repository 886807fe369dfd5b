//! What a replica remembers of steps that are done, for a driver that has not heard of them.
//!
//! One rank reports for all. Should it be lost before its words have left it, the others still know them.

use super::worker::Report;
use phalanx_types::Epoch;
use phalanx_wire::train::{Recorded, StepReport, ValidSums};
use std::collections::VecDeque;

/// Steps that are remembered, at least.
const STEPS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Memory {
    steps: VecDeque<StepReport>,
    /// The last validation, and the step it came after.
    valid: Option<(u64, ValidSums)>,
}

impl Memory {
    /// Remembers a step, and at least as many before it as are reported together.
    pub(super) fn on_step(&mut self, report: StepReport, together: usize) {
        if self.steps.len() >= STEPS.max(together) {
            self.steps.pop_front();
        }
        self.steps.push_back(report);
    }

    pub(super) fn on_valid(&mut self, step: u64, sums: ValidSums) {
        self.valid = Some((step, sums));
    }

    /// The run has gone back to a step.
    pub(super) fn forget_after(&mut self, step: u64) {
        self.steps.retain(|report| report.step <= step);
        self.valid.take_if(|(of, _)| *of > step);
    }

    /// The reports of the steps after one.
    pub(super) fn since(&self, step: u64) -> Vec<StepReport> {
        self.steps.iter().filter(|report| report.step > step).cloned().collect()
    }

    /// What is not recorded, of the steps up to `done`.
    pub(super) fn unheard(&self, epoch: Epoch, recorded: Recorded, done: u64) -> Vec<Report> {
        let mut steps = self.since(recorded.step);
        steps.retain(|report| report.step <= done);
        let steps = (!steps.is_empty()).then_some(Report::Steps { epoch, steps });
        let new = self.valid.as_ref().filter(|(step, _)| *step > recorded.validated && *step <= done);
        let valid = new.map(|(step, sums)| Report::Validated { epoch, step: *step, sums: sums.clone() });
        steps.into_iter().chain(valid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Memory {
        let mut memory = Memory::default();
        let report = |step| StepReport { step, ..StepReport::default() };
        (1..=20).for_each(|step| memory.on_step(report(step), 1));
        memory.on_valid(17, ValidSums::default());
        memory
    }

    fn said(memory: &Memory, recorded: (u64, u64), done: u64) -> (Vec<u64>, Option<u64>) {
        let recorded = Recorded { step: recorded.0, validated: recorded.1, saved: 0 };
        let (mut steps, mut valid) = (Vec::new(), None);
        for report in memory.unheard(Epoch(1), recorded, done) {
            match report {
                Report::Steps { steps: said, .. } => steps.extend(said.iter().map(|report| report.step)),
                Report::Validated { step, .. } => valid = Some(step),
                other => panic!("{other:?}"),
            }
        }
        (steps, valid)
    }

    #[test]
    fn what_the_driver_has_not_recorded_is_said_again() {
        let memory = memory();
        assert_eq!(said(&memory, (18, 0), 20), (vec![19, 20], Some(17)));
        assert_eq!(said(&memory, (18, 17), 19), (vec![19], None));
        assert_eq!(said(&memory, (20, 17), 20), (vec![], None));
    }

    #[test]
    fn what_is_undone_is_forgotten() {
        let mut memory = memory();
        memory.forget_after(15);
        assert_eq!(said(&memory, (14, 0), 20), (vec![15], None));
    }

    #[test]
    fn a_whole_round_is_remembered_however_long_it_is() {
        let mut memory = Memory::default();
        for step in 1..=1000 {
            memory.on_step(StepReport { step, ..StepReport::default() }, 700);
        }
        assert_eq!(memory.since(0).len(), 700);
    }
}
