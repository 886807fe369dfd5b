//! Decides when a run validates, saves a checkpoint and ends. Time and the wish to stop are arguments.

use crate::{Every, Length, PassLengths};
use phalanx_types::Time;
use phalanx_wire::train::SealedPass;
use serde::{Deserialize, Serialize};

/// How far a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Optimizer steps.
    pub step: u64,
    /// Whole passes over the data.
    pub pass: u64,
    /// Batches done in the current pass.
    pub batch: u64,
    /// The current pass, where the samples come from a stream and the store has sealed it.
    pub sealed: Option<SealedPass>,
}

/// How long a run is, and when it validates and saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub passes: PassLengths,
    pub length: Length,
    pub validate: Every,
    pub checkpoint: Every,
    /// The step at which training ends for now although the run is longer: what depends on the length of the run, such
    /// as its learning rates, is that of the whole.
    pub until: Option<u64>,
}

impl Plan {
    /// Steps of the whole run, if they are known before it has begun. A stream may end before.
    pub fn steps(&self) -> Option<u64> {
        match (self.length, self.passes) {
            (Length::Steps(steps), _) => Some(steps),
            (Length::Passes(passes), PassLengths::Fixed(batches)) => Some(passes.saturating_mul(batches)),
            (Length::Passes(_), PassLengths::Sealed) => None,
        }
    }

    /// Steps of every pass, if all have the same number.
    pub fn batches_per_pass(&self) -> Option<u64> {
        match self.passes {
            PassLengths::Fixed(batches) => Some(batches),
            PassLengths::Sealed => None,
        }
    }

    /// Whether nothing is left to do at a place. A stream may have ended before.
    pub fn is_done(&self, place: Place) -> bool {
        let done = match self.length {
            Length::Steps(steps) => place.step >= steps,
            Length::Passes(passes) => place.pass >= passes,
        };
        done || self.has_until_at(place.step)
    }

    /// Whether training ends for now after so many steps, if not before.
    pub fn has_until_at(&self, step: u64) -> bool {
        self.until.is_some_and(|until| step >= until)
    }
}

/// What is due after a step, in this order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Due {
    pub validate: bool,
    pub checkpoint: bool,
    pub end: Option<End>,
}

/// How the loop ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// All steps were done.
    Finished,
    /// The user asked to stop.
    Interrupted,
}

/// A run that moves step by step.
#[derive(Debug, Clone)]
pub struct Progress {
    plan: Plan,
    place: Place,
    /// The stream has no more samples.
    stream_ended: bool,
    /// When the last checkpoint was written.
    saved_at: Time,
}

impl Progress {
    /// A run that continues from a place.
    pub fn new(plan: Plan, start: Place, now: Time) -> Self {
        let mut progress = Self { plan, place: start, stream_ended: false, saved_at: now };
        // A checkpoint at the end of a pass and one at the start of the next mean the same.
        progress.end_pass();
        progress
    }

    /// Goes on to the next pass at the end of one; returns whether it did.
    fn end_pass(&mut self) -> bool {
        let Place { step, pass, batch, sealed } = self.place;
        let batches = match self.plan.passes {
            PassLengths::Fixed(batches) => Some(batches),
            PassLengths::Sealed => sealed.map(|pass| pass.steps),
        };
        let ended = batches.is_some_and(|batches| batch >= batches);
        if ended {
            self.place = Place { step, pass: pass + 1, batch: 0, sealed: None };
        }
        ended
    }

    /// The store has sealed the pass that begins here.
    pub fn on_sealed(&mut self, pass: SealedPass) {
        if self.place.batch == 0 {
            self.place.sealed = Some(pass);
        }
    }

    /// The stream has no more samples: the run ends here.
    pub fn on_stream_ended(&mut self) {
        self.stream_ended = true;
    }

    pub fn place(&self) -> Place {
        self.place
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.stream_ended || self.plan.is_done(self.place)
    }

    /// Counts a step; says what is due after it.
    pub fn on_step(&mut self, now: Time, asked_to_stop: bool) -> Due {
        self.place.step += 1;
        self.place.batch += 1;
        let pass_ended = self.end_pass();
        let finished = self.is_done();
        let end = match (finished, asked_to_stop) {
            (true, _) => Some(End::Finished),
            (false, true) => Some(End::Interrupted),
            (false, false) => None,
        };
        let validate = self.is_due(self.plan.validate, pass_ended, now);
        // The final model is always validated, whatever the interval is.
        let last = finished && self.plan.validate != Every::Never;
        let checkpoint = end.is_some() || self.is_due(self.plan.checkpoint, pass_ended, now);
        Due { validate: validate || last, checkpoint, end }
    }

    /// Counts all steps up to `upto`; says what was due after any of them.
    pub fn on_steps(&mut self, upto: u64, now: Time) -> Due {
        let mut due = Due::default();
        while self.place.step < upto {
            let next = self.on_step(now, false);
            due.validate |= next.validate;
            due.checkpoint |= next.checkpoint;
            due.end = due.end.or(next.end);
        }
        due
    }

    /// Whether a checkpoint is due by time.
    pub fn is_late(&self, now: Time) -> bool {
        matches!(self.plan.checkpoint, Every::Time(_)) && self.is_due(self.plan.checkpoint, false, now)
    }

    /// Like [`Self::on_steps`], for ranks that must decide alike although their clocks differ: `late` is the answer of
    /// one rank's [`Self::is_late`], which all of them use.
    pub fn on_steps_together(&mut self, upto: u64, late: bool) -> Due {
        let due = self.on_steps(upto, self.saved_at);
        Due { checkpoint: due.checkpoint || late, ..due }
    }

    /// How many steps the next interval may have: `most`, or fewer up to the next validation or the end. Over a stream
    /// it also ends with the pass, since the next one may not be sealed.
    pub fn until_looked_at(self, most: u64) -> u64 {
        self.until(most, |due| due.validate || due.end.is_some())
    }

    /// The same, but also up to the next checkpoint that does not depend on time.
    pub fn until_saved(self, most: u64) -> u64 {
        self.until(most, |due| due.validate || due.checkpoint || due.end.is_some())
    }

    fn until(mut self, most: u64, is_it: impl Fn(Due) -> bool) -> u64 {
        let now = self.saved_at;
        let is_stream = self.plan.passes == PassLengths::Sealed;
        (1..most)
            .find(|_| {
                let due = self.on_step(now, false);
                is_it(due) || (is_stream && self.place.batch == 0)
            })
            .unwrap_or(most)
    }

    /// What was due after the last step, leaving out what depends on time.
    pub fn due_here(&self) -> Due {
        let (begun, pass_ended) = (self.place.step > 0, self.place.batch == 0);
        let now = self.saved_at;
        let due =
            |every: Every| begun && !matches!(every, Every::Time(_)) && self.is_due(every, pass_ended, now);
        let last = self.is_done() && self.plan.validate != Every::Never;
        Due { validate: due(self.plan.validate) || last, checkpoint: due(self.plan.checkpoint), end: None }
    }

    fn is_due(&self, every: Every, pass_ended: bool, now: Time) -> bool {
        match every {
            Every::Passes(n) => pass_ended && self.place.pass.is_multiple_of(n),
            Every::Steps(n) => self.place.step.is_multiple_of(n),
            Every::Time(time) => now.since(self.saved_at) >= time,
            Every::Never => false,
        }
    }

    /// Notes that a checkpoint was written.
    pub fn on_saved(&mut self, now: Time) {
        self.saved_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PLAN: Plan = Plan {
        passes: PassLengths::Fixed(3),
        length: Length::Passes(2),
        validate: Every::Passes(1),
        checkpoint: Every::Steps(2),
        until: None,
    };

    fn at_place(step: u64, pass: u64, batch: u64) -> Place {
        Place { step, pass, batch, sealed: None }
    }

    fn due(plan: Plan, start: Place, steps: usize) -> Vec<Due> {
        let mut progress = Progress::new(plan, start, Time::ZERO);
        (0..steps).map(|_| progress.on_step(Time::ZERO, false)).collect()
    }

    #[test]
    fn a_run_validates_checkpoints_and_ends_when_it_should() {
        let [idle, save] = [false, true].map(|checkpoint| Due { checkpoint, ..Due::default() });
        let validate = Due { validate: true, ..idle };
        let last = Due { validate: true, checkpoint: true, end: Some(End::Finished) };
        assert_eq!(due(PLAN, Place::default(), 6), [idle, save, validate, save, idle, last]);
    }

    #[test]
    fn a_resumed_run_does_what_was_left() {
        let whole = due(PLAN, Place::default(), 6);
        for start in [at_place(2, 0, 2), at_place(3, 1, 0)] {
            let left = 6 - start.step as usize;
            assert_eq!(due(PLAN, start, left), whole[start.step as usize..]);
        }
        let start = at_place(3, 0, 3);
        assert_eq!(Progress::new(PLAN, start, Time::ZERO).place(), at_place(3, 1, 0));
    }

    #[test]
    fn steps_end_a_run_within_a_pass_and_validate_once_more() {
        let plan = Plan { length: Length::Steps(4), validate: Every::Passes(10), ..PLAN };
        let end = due(plan, Place::default(), 4)[3];
        assert_eq!(end, Due { validate: true, checkpoint: true, end: Some(End::Finished) });
        let never = Plan { validate: Every::Never, ..plan };
        assert!(due(never, Place::default(), 4).iter().all(|due| !due.validate));
        let done = at_place(4, 1, 1);
        assert!(Progress::new(plan, done, Time::ZERO).is_done());
    }

    #[test]
    fn a_run_that_ends_for_now_validates_and_saves_and_goes_on_from_there() {
        let plan = Plan { checkpoint: Every::Never, until: Some(4), ..PLAN };
        let end = Due { validate: true, checkpoint: true, end: Some(End::Finished) };
        assert_eq!(due(plan, Place::default(), 4)[3], end);
        assert_eq!(plan.steps(), Some(6), "what depends on the length is that of the whole");
        let there = at_place(4, 1, 1);
        assert!(Progress::new(plan, there, Time::ZERO).is_done());
        let rest = Plan { until: Some(6), ..plan };
        assert_eq!(due(rest, there, 2), due(Plan { until: None, ..plan }, there, 2));
        assert_eq!(Progress::new(plan, Place::default(), Time::ZERO).until_looked_at(9), 3);
        assert_eq!(Progress::new(plan, at_place(3, 1, 0), Time::ZERO).until_looked_at(9), 1);
    }

    #[test]
    fn a_wish_to_stop_saves_first_and_the_end_comes_before_it() {
        let mut progress = Progress::new(PLAN, Place::default(), Time::ZERO);
        let stopped = Due { validate: false, checkpoint: true, end: Some(End::Interrupted) };
        assert_eq!(progress.on_step(Time::ZERO, true), stopped);
        let nearly = at_place(5, 1, 2);
        let mut progress = Progress::new(PLAN, nearly, Time::ZERO);
        assert_eq!(progress.on_step(Time::ZERO, true).end, Some(End::Finished));
    }

    #[test]
    fn steps_that_are_done_as_one_end_where_the_model_is_looked_at() {
        let at = |step: u64| Progress::new(PLAN, at_place(step, step / 3, step % 3), Time::ZERO);
        assert_eq!([0, 1, 3, 5].map(|step| at(step).until_looked_at(9)), [3, 2, 3, 1]);
        assert_eq!([0, 1, 2, 3].map(|step| at(step).until_saved(9)), [2, 1, 1, 1]);
        assert_eq!((at(0).until_looked_at(2), at(0).until_saved(1)), (2, 1));
        let by_time = Plan { checkpoint: Every::Time(Duration::from_secs(10)), ..PLAN };
        assert_eq!(Progress::new(by_time, Place::default(), Time(7)).until_saved(9), 3);
    }

    #[test]
    fn a_pass_over_a_stream_has_as_many_steps_as_were_sealed() {
        let plan = Plan { passes: PassLengths::Sealed, checkpoint: Every::Never, ..PLAN };
        let sealed = |pass, start, steps| SealedPass { pass, start, steps, ..SealedPass::default() };
        let mut progress = Progress::new(plan, Place::default(), Time::ZERO);
        progress.on_sealed(sealed(0, 0, 2));
        assert_eq!(progress.clone().until_looked_at(9), 2);
        let dues = [0, 1].map(|_| progress.on_step(Time::ZERO, false).validate);
        assert_eq!((dues, progress.place()), ([false, true], at_place(2, 1, 0)));
        progress.on_sealed(sealed(1, 2, 3));
        let never = Plan { validate: Every::Never, ..plan };
        let from = Place { sealed: Some(sealed(1, 2, 3)), ..at_place(3, 1, 1) };
        assert_eq!(Progress::new(never, from, Time::ZERO).until_saved(9), 2, "to the end of the pass");
        let ends: Vec<Option<End>> = (0..3).map(|_| progress.on_step(Time::ZERO, false).end).collect();
        assert_eq!(ends, [None, None, Some(End::Finished)]);
    }

    #[test]
    fn a_stream_that_ends_ends_the_run() {
        let plan = Plan { passes: PassLengths::Sealed, length: Length::Steps(99), ..PLAN };
        let mut progress = Progress::new(plan, at_place(7, 2, 0), Time::ZERO);
        assert!(!progress.is_done());
        progress.on_stream_ended();
        assert!(progress.is_done() && progress.due_here().validate);
    }

    #[test]
    fn time_counts_from_the_last_checkpoint() {
        let plan =
            Plan { checkpoint: Every::Time(Duration::from_secs(10)), length: Length::Steps(99), ..PLAN };
        let at = |s: u64| Time(s * 1_000_000);
        let mut progress = Progress::new(plan, Place::default(), at(5));
        assert!(!progress.on_step(at(14), false).checkpoint);
        assert!(progress.on_step(at(15), false).checkpoint);
        progress.on_saved(at(16));
        assert!(!progress.on_step(at(25), false).checkpoint);
        assert!(progress.on_step(at(26), false).checkpoint);
    }
}
