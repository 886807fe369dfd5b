//! The records of a simulated run, and whether they may be written as the driver wants.

use phalanx_protocol::Passes;
use phalanx_protocol::driver::Ticket;
use phalanx_types::Time;
use phalanx_wire::train::{Ops, StepReport};
use std::collections::{BTreeMap, BTreeSet};

/// One line of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Step(u64),
    Valid(u64),
}

/// What a checkpoint says of the records.
#[derive(Debug, Clone, Copy)]
struct Mark {
    step: u64,
    lines: usize,
    validated: u64,
}

/// The run directory.
#[derive(Debug)]
pub(super) struct Book {
    passes: Passes,
    pub(super) lines: Vec<Line>,
    step: u64,
    validated: u64,
    drafts: BTreeMap<u64, Mark>,
    checkpoints: Vec<Mark>,
    /// Steps of checkpoints that were ever written.
    pub(super) saved: BTreeSet<u64>,
    /// States that were fetched: operators and step.
    pub(super) fetched: BTreeMap<Ticket, (Ops, u64)>,
    /// Steps and validations that every rank that knew them is lost with.
    pub(super) unknown_steps: BTreeSet<u64>,
    pub(super) unknown_validations: BTreeSet<u64>,
}

impl Book {
    pub(super) fn new(passes: Passes) -> Self {
        Self {
            passes,
            lines: Vec::new(),
            step: 0,
            validated: 0,
            drafts: BTreeMap::new(),
            checkpoints: Vec::new(),
            saved: BTreeSet::new(),
            fetched: BTreeMap::new(),
            unknown_steps: BTreeSet::new(),
            unknown_validations: BTreeSet::new(),
        }
    }

    pub(super) fn is_validation_due(&self, step: u64) -> bool {
        self.passes.progress(step, Time::ZERO).is_ok_and(|progress| progress.due_here().validate)
    }

    fn lacks_validation(&self, step: u64) -> bool {
        self.is_validation_due(step) && self.validated < step && !self.unknown_validations.contains(&step)
    }

    /// Appends a step; `seen` is what its batch must add up to.
    pub(super) fn on_step(&mut self, report: &StepReport, seen: u64, batch: usize) -> Result<(), String> {
        let step = report.step;
        let missing = (self.step + 1..step).find(|step| !self.unknown_steps.contains(step));
        if step <= self.step || missing.is_some() {
            return Err(format!("step {step} is recorded after step {}", self.step));
        }
        if self.lacks_validation(self.step) {
            let last = self.step;
            return Err(format!("step {step} is recorded before the validation of step {last}"));
        }
        let samples: u64 = report.ranks.iter().map(|rank| u64::from(rank.samples)).sum();
        // Reports of large groups leave their ranks out.
        let counted = report.ranks.is_empty() || samples == batch as u64;
        if report.seen != seen || !counted {
            return Err(format!("step {step} has {samples} samples, not every one of {batch} once"));
        }
        self.step = step;
        self.lines.push(Line::Step(step));
        Ok(())
    }

    /// Nothing will be recorded of the steps up to this one.
    pub(super) fn skip_to(&mut self, step: u64) {
        self.step = self.step.max(step);
    }

    pub(super) fn on_valid(&mut self, step: u64) -> Result<(), String> {
        // One that was given up may come after all.
        let late = self.unknown_validations.contains(&step);
        if step <= self.validated || step > self.step || (step < self.step && !late) {
            let (last, validated) = (self.step, self.validated);
            return Err(format!(
                "the validation of step {step} comes after step {last} and that of {validated}"
            ));
        }
        if !self.is_validation_due(step) {
            return Err(format!("a validation of step {step} was not asked for"));
        }
        self.validated = step;
        self.lines.push(Line::Valid(step));
        Ok(())
    }

    pub(super) fn on_draft(&mut self, step: u64) -> Result<(), String> {
        if step != self.step {
            return Err(format!("a checkpoint of step {step} is drafted after step {}", self.step));
        }
        let (lines, validated) = (self.lines.len(), self.validated);
        match self.drafts.insert(step, Mark { step, lines, validated }) {
            Some(_) => Err(format!("step {step} is drafted twice")),
            None => Ok(()),
        }
    }

    pub(super) fn drop_draft(&mut self, step: u64) -> Result<(), String> {
        self.drafts.remove(&step).map(drop).ok_or_else(|| format!("there is no draft of step {step}"))
    }

    pub(super) fn on_save(&mut self, step: u64, states: &[Ticket], operators: u32) -> Result<(), String> {
        let mark =
            self.drafts.remove(&step).ok_or_else(|| format!("step {step} is saved without a draft"))?;
        self.write(mark, states, operators)
    }

    pub(super) fn on_save_earlier(
        &mut self,
        step: u64,
        states: &[Ticket],
        operators: u32,
    ) -> Result<(), String> {
        let mark = self.mark_after(step);
        self.write(mark, states, operators)
    }

    fn mark_after(&self, step: u64) -> Mark {
        let of = |line: &Line| match line {
            Line::Step(of) | Line::Valid(of) => *of,
        };
        let lines = self.lines.iter().take_while(|line| of(line) <= step).count();
        let validated = |line: &Line| matches!(line, Line::Valid(_)).then(|| of(line));
        Mark { step, lines, validated: self.lines[..lines].iter().filter_map(validated).max().unwrap_or(0) }
    }

    fn write(&mut self, mark: Mark, states: &[Ticket], operators: u32) -> Result<(), String> {
        let step = mark.step;
        self.take_state(step, states, operators)?;
        if let Some(newer) = self.checkpoints.last().filter(|last| last.step >= step) {
            return Err(format!("a checkpoint of step {step} is written after that of step {}", newer.step));
        }
        self.checkpoints.push(mark);
        self.saved.insert(step);
        Ok(())
    }

    /// Parts of a state are all of it, after one step.
    pub(super) fn take_state(&mut self, step: u64, states: &[Ticket], operators: u32) -> Result<(), String> {
        let mut end = 0;
        for ticket in states {
            let Some((ops, of)) = self.fetched.remove(ticket) else {
                return Err(format!("{ticket:?} of step {step} was not fetched"));
            };
            if of != step || ops.start > end {
                return Err(format!("{ops:?} of step {of} is no part of a state of step {step} after {end}"));
            }
            end = end.max(ops.end);
        }
        if end < operators { Err(format!("a state of step {step} ends with operator {end}")) } else { Ok(()) }
    }

    /// Writes the checkpoint that a run ends with; the one before it may be of the same step.
    pub(super) fn save_last(&mut self, step: u64, states: &[Ticket], operators: u32) -> Result<(), String> {
        if step != self.step {
            return Err(format!("the run ends with step {step}, and step {} is recorded", self.step));
        }
        self.checkpoints.pop_if(|last| last.step == step);
        let mark = Mark { step, lines: self.lines.len(), validated: self.validated };
        self.write(mark, states, operators)
    }

    /// Goes back to the newest checkpoint: what was recorded since is cut off. Returns its step and the last validation
    /// before it.
    pub(super) fn reopen(&mut self) -> (u64, u64) {
        let mark = self.checkpoints.last().copied().unwrap_or(Mark { step: 0, lines: 0, validated: 0 });
        self.cut(mark);
        (mark.step, mark.validated)
    }

    /// A driver is gone, with its drafts and all that it has fetched.
    pub(super) fn forget_driver(&mut self) {
        self.drafts.clear();
        self.fetched.clear();
    }

    pub(super) fn cut_after(&mut self, step: u64) {
        self.cut(Mark { step, ..self.mark_after(step) });
    }

    fn cut(&mut self, mark: Mark) {
        self.lines.truncate(mark.lines);
        (self.step, self.validated) = (mark.step, mark.validated);
        self.unknown_steps.split_off(&(mark.step + 1));
        self.unknown_validations.split_off(&(mark.step + 1));
    }

    /// The step of the newest checkpoint.
    pub(super) fn newest(&self) -> u64 {
        self.checkpoints.last().map_or(0, |mark| mark.step)
    }

    /// The last step that is recorded.
    pub(super) fn step(&self) -> u64 {
        self.step
    }

    /// What is missing in the records of a run that ends after a step; `validated` is the last step whose validation
    /// must be there.
    pub(super) fn missing(&self, end: u64, validated: u64) -> Option<String> {
        let steps: BTreeSet<u64> = self
            .lines
            .iter()
            .filter_map(|line| if let Line::Step(step) = line { Some(*step) } else { None })
            .collect();
        let valid: BTreeSet<u64> = self
            .lines
            .iter()
            .filter_map(|line| if let Line::Valid(step) = line { Some(*step) } else { None })
            .collect();
        let lost = (1..=end).find(|step| !steps.contains(step) && !self.unknown_steps.contains(step));
        let owed = (1..=validated).find(|step| {
            self.is_validation_due(*step) && !valid.contains(step) && !self.unknown_validations.contains(step)
        });
        lost.map(|step| format!("step {step} is not in the records"))
            .or_else(|| owed.map(|step| format!("the validation of step {step} is not in the records")))
    }
}
