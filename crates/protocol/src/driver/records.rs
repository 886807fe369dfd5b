//! Reports on their way into the records of a run.
//!
//! The first rank reports a step when it has applied it. If it is lost then, the others may not have: so its last step
//! is held back until another one follows, or until a new group says how far it is. Records are written in one order:
//! step, its validation, its checkpoint, next step. After a loss several ranks repeat what they remember, each over its
//! own link, so a step waits for the validation that is due before it.

use super::{DriverCommand, Notice, Ticket};
use crate::bugs::{RunBug, planted};
use crate::progress::Place;
use crate::{PassLengths, Passes};
use phalanx_types::{Outbox, Time};
use phalanx_wire::train::{Recorded, SealedPass, StepReport, ValidSums};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Reports that are held back, at most: a node that reports without end reports nothing that counts.
const MOST_WAITING: usize = 1 << 21;

/// With this many steps after one that is missing, no rank will report it.
const MOST_BEHIND: usize = 1024;

/// How long steps are held back for a validation that is due before them. The ranks that remember it have reported it
/// when their group began.
const VALIDATION_PATIENCE: Duration = Duration::from_secs(10);

/// Reports that are not recorded yet, and what is.
#[derive(Debug)]
pub(super) struct PendingRecords {
    passes: Passes,
    /// Whether there is data to validate with.
    validates: bool,
    recorded: Recorded,
    began_at: u64,
    /// Steps up to this one have happened.
    sure: u64,
    steps: BTreeMap<u64, StepReport>,
    validations: BTreeMap<u64, ValidSums>,
    /// Steps whose state is on its way.
    snapshots: BTreeSet<u64>,
    /// Steps that are recorded and whose state is on its way.
    drafts: BTreeSet<u64>,
    /// States of steps that are not recorded yet, by step.
    states: BTreeMap<u64, Vec<Ticket>>,
    /// Since when a missing validation holds steps back.
    blocked: Option<Time>,
    /// The last step whose validation was given up.
    given_up: u64,
}

impl PendingRecords {
    /// A run goes on after a step; it was validated last after `validated`.
    pub(super) fn new(passes: Passes, validates: bool, step: u64, validated: u64) -> Self {
        let validated = if planted(RunBug::ForgetsTheLastValidation) { 0 } else { validated };
        let step = if planted(RunBug::SkipsAStepAfterRestart) && step > 0 { step + 1 } else { step };
        Self {
            passes,
            validates,
            recorded: Recorded { step, validated, saved: step },
            began_at: step,
            sure: step,
            steps: BTreeMap::new(),
            validations: BTreeMap::new(),
            snapshots: BTreeSet::new(),
            drafts: BTreeSet::new(),
            states: BTreeMap::new(),
            blocked: None,
            given_up: 0,
        }
    }

    /// What is recorded.
    pub(super) fn recorded(&self) -> Recorded {
        self.recorded
    }

    /// The last step that is recorded.
    pub(super) fn step(&self) -> u64 {
        self.recorded.step
    }

    /// Whether a step was recorded since the run was taken up.
    pub(super) fn has_begun(&self) -> bool {
        self.recorded.step > self.began_at
    }

    /// Whether the validation that is due after a step is missing.
    pub(super) fn owes_validation(&self, step: u64) -> bool {
        // What no report said of its pass was not validated either.
        let due = self.passes.progress(step, Time::ZERO).is_ok_and(|progress| progress.due_here().validate);
        due && self.validates && self.recorded.validated < step
    }

    /// The passes of the run, as far as reports have told.
    pub(super) fn passes(&self) -> &Passes {
        &self.passes
    }

    /// A group has come to the end of a pass; no report that is known may name it.
    pub(super) fn on_ended(&mut self, step: u64, pass: Option<SealedPass>) {
        let ends_here = |pass: &SealedPass| pass.start.checked_add(pass.steps) == Some(step);
        if let Some(pass) = pass.filter(ends_here) {
            self.passes.learn(pass);
        }
    }

    /// Whether the checkpoint of a step waits for reports.
    pub(super) fn holds_back(&self, step: u64) -> bool {
        self.snapshots.contains(&step) && self.recorded.step < step
    }

    /// Ranks have ended after a step: if they train from a stream, it has no more samples for the run.
    pub(super) fn on_run_done(&mut self, step: u64) {
        if self.passes.plan().passes == PassLengths::Sealed && !self.passes.is_done(step) {
            self.passes.on_stream_ended(step);
        }
    }

    /// The stream has no more samples after a step.
    pub(super) fn on_stream_ended(&mut self, step: u64) {
        self.passes.on_stream_ended(step);
    }

    pub(super) fn on_step(&mut self, report: StepReport) {
        let of_pass = |pass: &SealedPass| {
            pass.start < report.step && report.step <= pass.start.saturating_add(pass.steps)
        };
        if let Some(pass) = report.sealed.filter(of_pass) {
            self.passes.learn(pass);
        }
        if report.step > self.recorded.step && self.steps.len() < MOST_WAITING {
            self.steps.entry(report.step).or_insert(report);
        }
    }

    /// Steps that are done again after a loss are not validated again.
    pub(super) fn on_valid(&mut self, step: u64, sums: ValidSums) {
        if step > self.recorded.validated && self.validations.len() < MOST_WAITING {
            self.validations.entry(step).or_insert(sums);
        }
    }

    /// A checkpoint says how long the records were when the run stood there: there is none of a step that is done
    /// again when more has been recorded, unless it was drafted the first time.
    pub(super) fn on_snapshot(&mut self, step: u64) {
        // The group before may have made it, too.
        let known = step <= self.recorded.saved || self.drafts.contains(&step);
        if step >= self.recorded.step && !known && self.snapshots.len() < MOST_WAITING {
            self.snapshots.insert(step);
        }
    }

    /// A state has come. Nothing more will be reported of it when its group is over.
    pub(super) fn on_state(
        &mut self,
        step: u64,
        states: Vec<Ticket>,
        over: bool,
        out: &mut Outbox<DriverCommand>,
    ) {
        if self.drafts.remove(&step) {
            if step <= self.recorded.saved {
                // This state, or a newer one, was saved meanwhile.
                out.push(DriverCommand::DropDraft { step });
                discard(states, out);
            } else {
                self.save(step, states, out);
            }
        } else if self.snapshots.contains(&step)
            || !(over || step < self.recorded.step || step <= self.recorded.saved)
        {
            let before = self.states.insert(step, states);
            discard(before.unwrap_or_default(), out);
        } else {
            discard(states, out);
        }
    }

    fn save(&mut self, step: u64, states: Vec<Ticket>, out: &mut Outbox<DriverCommand>) {
        self.on_saved(step);
        out.push(DriverCommand::Save { step, states });
    }

    /// A state does not come.
    pub(super) fn forget_draft(&mut self, step: u64, out: &mut Outbox<DriverCommand>) {
        if self.drafts.remove(&step) {
            out.push(DriverCommand::DropDraft { step });
        }
        self.snapshots.remove(&step);
    }

    /// There is a checkpoint of a step.
    pub(super) fn on_saved(&mut self, step: u64) {
        self.recorded.saved = self.recorded.saved.max(step);
    }

    /// A group begins after a step: what was reported of later ones has not happened.
    pub(super) fn forget_after(&mut self, step: u64, out: &mut Outbox<DriverCommand>) {
        let next = step.saturating_add(1);
        self.steps.split_off(&next);
        self.validations.split_off(&next);
        self.snapshots.split_off(&next);
        let states = self.states.split_off(&next);
        states.into_values().for_each(|states| discard(states, out));
        (self.sure, self.blocked) = (self.sure.min(step), None);
    }

    /// The run has gone back to a checkpoint.
    pub(super) fn rewind(&mut self, place: Place, validated: u64, out: &mut Outbox<DriverCommand>) {
        std::mem::take(&mut self.drafts)
            .into_iter()
            .for_each(|step| out.push(DriverCommand::DropDraft { step }));
        std::mem::take(&mut self.states).into_values().for_each(|states| discard(states, out));
        let mut passes = self.passes.clone();
        passes.restart(place);
        *self = Self::new(passes, self.validates, place.step, validated);
    }

    /// Records everything up to a step, as far as it is known.
    pub(super) fn commit(&mut self, now: Time, upto: u64, out: &mut Outbox<DriverCommand>) {
        self.sure = self.sure.max(upto);
        loop {
            self.write_after_step(out);
            if self.steps.len() >= MOST_BEHIND {
                self.give_up(u64::MAX, out);
            }
            let next = self.recorded.step + 1;
            if next > upto || !self.steps.contains_key(&next) {
                return;
            }
            if self.waits_for_validation() {
                self.blocked.get_or_insert(now);
                return;
            }
            self.blocked = None;
            let Some(report) = self.steps.remove(&next) else { return };
            out.push(DriverCommand::RecordStep(report));
            self.recorded.step = next;
        }
    }

    /// Records everything up to the newest step whose whole state is here, which is written then. No group may go on
    /// from an earlier step after that.
    pub(super) fn commit_whole(&mut self, now: Time, out: &mut Outbox<DriverCommand>) {
        if let Some(step) = self.states.last_key_value().map(|(step, _)| *step) {
            self.commit_all(now, step, out);
        }
    }

    /// Records what was held back, when what was missing has come.
    pub(super) fn commit_more(&mut self, now: Time, out: &mut Outbox<DriverCommand>) {
        self.commit(now, self.sure, out);
    }

    fn waits_for_validation(&self) -> bool {
        let step = self.recorded.step;
        self.given_up < step && self.owes_validation(step)
    }

    /// Records everything up to a step of which no rank will say more.
    pub(super) fn commit_all(&mut self, now: Time, upto: u64, out: &mut Outbox<DriverCommand>) {
        loop {
            self.commit(now, upto, out);
            if !self.give_up(upto, out) {
                return;
            }
        }
    }

    /// Records what was reported after the last recorded step.
    fn write_after_step(&mut self, out: &mut Outbox<DriverCommand>) {
        while let Some((step, sums)) = first_upto(&mut self.validations, self.recorded.step) {
            if step > self.recorded.validated {
                self.recorded.validated = step;
                out.push(DriverCommand::RecordValidation { step, sums });
            }
        }
        while let Some(step) = self.snapshots.first().copied().filter(|step| *step <= self.recorded.step) {
            self.snapshots.remove(&step);
            out.push(DriverCommand::Draft { step });
            match self.states.remove(&step) {
                Some(states) => self.save(step, states, out),
                None => drop(self.drafts.insert(step)),
            }
        }
    }

    /// When [`Self::on_tick`] is due, if ever.
    pub(super) fn next_tick(&self) -> Option<Time> {
        self.blocked.map(|since| since + VALIDATION_PATIENCE)
    }

    /// Stops waiting for a validation that does not come; returns whether it did.
    pub(super) fn on_tick(&mut self, now: Time, out: &mut Outbox<DriverCommand>) -> bool {
        self.next_tick().is_some_and(|due| due <= now) && self.give_up(u64::MAX, out)
    }

    /// Goes on without what no rank can say any more, as far as steps up to one wait for it.
    fn give_up(&mut self, upto: u64, out: &mut Outbox<DriverCommand>) -> bool {
        let step = self.recorded.step;
        let known = self.steps.first_key_value().map(|(step, _)| *step).filter(|first| *first <= upto);
        // All ranks that knew the last steps may be lost, with one left that has taken over their state.
        let lost_all = known.is_none() && step < upto && self.passes.place(upto).is_ok();
        let Some(first) = known.or_else(|| upto.checked_add(1).filter(|_| lost_all)) else { return false };
        if self.waits_for_validation() {
            self.given_up = step;
            out.push(DriverCommand::Tell(Notice::ValidationUnknown { step }));
        } else if first > step + 1 {
            out.push(DriverCommand::Tell(Notice::StepsUnknown { from: step + 1, to: first - 1 }));
            self.recorded.step = first - 1;
        } else {
            return false;
        }
        self.blocked = None;
        true
    }
}

fn first_upto<T>(all: &mut BTreeMap<u64, T>, upto: u64) -> Option<(u64, T)> {
    let first = all.first_entry().filter(|first| *first.key() <= upto)?;
    Some(first.remove_entry())
}

fn discard(states: Vec<Ticket>, out: &mut Outbox<DriverCommand>) {
    states.into_iter().for_each(|ticket| out.push(DriverCommand::Discard { ticket }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Plan;
    use crate::{Every, Length};

    const PLAN: Plan = Plan {
        passes: PassLengths::Fixed(17),
        length: Length::Passes(9),
        validate: Every::Passes(1),
        checkpoint: Every::Never,
        until: None,
    };

    fn pending(step: u64, validated: u64) -> PendingRecords {
        PendingRecords::new(Passes::new(PLAN, Place::default()), true, step, validated)
    }

    fn report(step: u64) -> StepReport {
        StepReport { step, ..StepReport::default() }
    }

    fn sums() -> ValidSums {
        ValidSums { samples: 1, loss: 0.5, metrics: Vec::new() }
    }

    fn on_steps(pending: &mut PendingRecords, steps: std::ops::RangeInclusive<u64>) {
        steps.for_each(|step| pending.on_step(report(step)));
    }

    /// What was recorded: steps as they are, validations as negative steps.
    fn recorded(out: &mut Outbox<DriverCommand>) -> Vec<i64> {
        let number = |command| match command {
            DriverCommand::RecordStep(report) => Some(report.step as i64),
            DriverCommand::RecordValidation { step, .. } => Some(-(step as i64)),
            _ => None,
        };
        out.drain().filter_map(number).collect()
    }

    #[test]
    fn what_is_done_again_is_not_recorded_again() {
        let (mut pending, mut out) = (pending(10, 0), Outbox::default());
        on_steps(&mut pending, 11..=20);
        pending.on_valid(17, sums());
        pending.commit(Time::ZERO, 20, &mut out);
        let expected: Vec<i64> = (11..=17).chain([-17, 18, 19, 20]).collect();
        assert_eq!(recorded(&mut out), expected);
        // A group goes on from step 10 once more.
        pending.forget_after(10, &mut out);
        pending.on_valid(17, sums());
        pending.on_snapshot(15);
        on_steps(&mut pending, 11..=20);
        pending.commit(Time::ZERO, 20, &mut out);
        assert!(out.is_empty(), "{out:?}");
        pending.on_snapshot(20);
        pending.commit(Time::ZERO, 20, &mut out);
        assert_eq!(out.commands(), [DriverCommand::Draft { step: 20 }]);
    }

    #[test]
    fn validations_are_recorded_after_their_steps_whoever_repeats_them_first() {
        let (mut pending, mut out) = (pending(40, 34), Outbox::default());
        // One rank remembers the end only, another one all of it.
        on_steps(&mut pending, 60..=70);
        pending.on_valid(68, sums());
        on_steps(&mut pending, 41..=70);
        pending.commit(Time::ZERO, 70, &mut out);
        assert_eq!(
            recorded(&mut out),
            (41..=51).collect::<Vec<i64>>(),
            "the validation of step 51 is missing"
        );
        pending.on_valid(51, sums());
        pending.commit(Time::ZERO, 70, &mut out);
        let expected: Vec<i64> = [-51].into_iter().chain(52..=68).chain([-68, 69, 70]).collect();
        assert_eq!(recorded(&mut out), expected);
    }

    #[test]
    fn a_validation_that_nobody_knows_holds_steps_back_for_a_while_only() {
        let (mut pending, mut out) = (pending(50, 34), Outbox::default());
        on_steps(&mut pending, 51..=53);
        pending.commit(Time::ZERO, 53, &mut out);
        assert_eq!(recorded(&mut out), [51]);
        let due = pending.next_tick().unwrap();
        assert!(!pending.on_tick(due - Duration::from_millis(1), &mut out) && out.is_empty());
        assert!(pending.on_tick(due, &mut out));
        assert_eq!(out.commands(), [DriverCommand::Tell(Notice::ValidationUnknown { step: 51 })]);
        pending.commit(due, 53, &mut out);
        assert_eq!(recorded(&mut out), [52, 53]);
        assert_eq!(pending.next_tick(), None);
    }

    #[test]
    fn what_a_lost_rank_reported_stays_when_a_group_begins_later() {
        let (mut pending, mut out) = (pending(40, 34), Outbox::default());
        on_steps(&mut pending, 42..=53);
        pending.on_valid(51, sums());
        pending.forget_after(52, &mut out);
        on_steps(&mut pending, 41..=41);
        pending.commit(Time::ZERO, 53, &mut out);
        let expected: Vec<i64> = (41..=51).chain([-51, 52]).collect();
        assert_eq!(recorded(&mut out), expected, "step 53 has not happened");
    }

    #[test]
    fn the_end_does_not_wait_for_what_nobody_knows() {
        let (mut pending, mut out) = (pending(49, 34), Outbox::default());
        on_steps(&mut pending, 51..=53);
        pending.commit_all(Time::ZERO, 53, &mut out);
        let told = [Notice::StepsUnknown { from: 50, to: 50 }, Notice::ValidationUnknown { step: 51 }];
        let tells: Vec<&DriverCommand> =
            out.commands().iter().filter(|command| matches!(command, DriverCommand::Tell(_))).collect();
        assert_eq!(tells, told.map(DriverCommand::Tell).iter().collect::<Vec<_>>());
        assert_eq!(recorded(&mut out), [51, 52, 53]);
    }

    #[test]
    fn a_checkpoint_is_saved_when_its_step_is_recorded_and_its_state_is_here() {
        let (mut pending, mut out) = (pending(40, 34), Outbox::default());
        on_steps(&mut pending, 41..=42);
        pending.on_snapshot(42);
        pending.on_state(42, vec![Ticket(7)], true, &mut out);
        assert!(out.is_empty(), "{out:?}");
        pending.commit(Time::ZERO, 42, &mut out);
        let save = DriverCommand::Save { step: 42, states: vec![Ticket(7)] };
        assert_eq!(out.commands()[2..], [DriverCommand::Draft { step: 42 }, save]);
        assert_eq!(pending.recorded().saved, 42);
        out.drain();
        pending.on_state(42, vec![Ticket(8)], true, &mut out);
        assert_eq!(out.commands(), [DriverCommand::Discard { ticket: Ticket(8) }]);
    }

    #[test]
    fn a_checkpoint_does_not_wait_for_steps_that_no_rank_knows() {
        let (mut pending, mut out) = (pending(40, 34), Outbox::default());
        pending.on_snapshot(42);
        pending.on_state(42, vec![Ticket(7)], false, &mut out);
        assert!(pending.holds_back(42) && out.is_empty(), "{out:?}");
        pending.commit_all(Time::ZERO, 42, &mut out);
        let unknown = DriverCommand::Tell(Notice::StepsUnknown { from: 41, to: 42 });
        let save = DriverCommand::Save { step: 42, states: vec![Ticket(7)] };
        assert_eq!(out.commands(), [unknown, DriverCommand::Draft { step: 42 }, save]);
        assert!(!pending.holds_back(42));
    }
}
