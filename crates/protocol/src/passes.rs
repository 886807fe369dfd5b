//! How many steps each pass over the data has: as many as any other, or as many as the store sealed.
//!
//! The samples of a file make passes of one length. A stream grows: how many steps a pass has is known only when the
//! store has sealed it. Every rank asks the store and gets the same answer; every report of a step names the pass that
//! it is of, so a driver learns the passes in any order in which reports come, also from ranks that repeat them.

use crate::Length;
use crate::progress::{Place, Plan, Progress};
use phalanx_types::Time;
use phalanx_wire::train::{PassStart, SealedPass};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Passes that are remembered. Runs go back to their newest checkpoint at most, which is rarely so far away.
const REMEMBERED: usize = 4096;

/// How many steps a pass over the data has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PassLengths {
    /// Every pass has the same number, at least one.
    Fixed(u64),
    /// Each has its own number, which is known when the store has sealed it.
    Sealed,
}

/// The pass that a step belongs to is not known: the store has not sealed it, or it is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pass that step {step} belongs to is not known")]
pub struct NotSealed {
    /// Steps that are done before it.
    pub step: u64,
}

/// The passes of a run, as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passes {
    plan: Plan,
    /// Where the first pass begins that is not forgotten.
    first: PassStart,
    /// By number; all but some that no rank could report follow each other.
    sealed: VecDeque<SealedPass>,
    /// The stream has no more samples after this step.
    ended: Option<u64>,
}

impl Passes {
    /// The passes of a run that goes on from a place.
    pub fn new(plan: Plan, start: Place) -> Self {
        let mut passes = Self { plan, first: PassStart::default(), sealed: VecDeque::new(), ended: None };
        passes.restart(start);
        passes
    }

    /// Goes back to a place: what is known is kept, unless it does not reach that far back.
    pub fn restart(&mut self, start: Place) {
        let is_known = |known: Place| {
            (known.pass, known.batch) == (start.pass, start.batch)
                && (start.sealed.is_none() || start.sealed == known.sealed)
        };
        if self.place(start.step).is_ok_and(is_known) {
            return;
        }
        self.sealed.clear();
        self.first = PassStart { pass: start.pass, step: start.step.saturating_sub(start.batch) };
        if let Some(pass) = start.sealed {
            self.learn(pass);
        }
    }

    /// How long the run is, and when it validates and saves.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// The place of the run after some steps.
    ///
    /// # Errors
    /// The pass is not known.
    pub fn place(&self, step: u64) -> Result<Place, NotSealed> {
        if let PassLengths::Fixed(batches) = self.plan.passes {
            let batches = batches.max(1);
            return Ok(Place { step, pass: step / batches, batch: step % batches, sealed: None });
        }
        if let Some(pass) = self.pass_of(step) {
            return Ok(Place { step, pass: pass.pass, batch: step - pass.start, sealed: Some(pass) });
        }
        let ended = self.sealed.iter().rev().find(|pass| end(pass) == step).map(|pass| pass.pass + 1);
        let begins = (self.first.step == step).then_some(self.first.pass);
        match ended.or(begins) {
            Some(pass) => Ok(Place { step, pass, batch: 0, sealed: None }),
            None => Err(NotSealed { step }),
        }
    }

    /// The sealed pass that has the step after `step` steps.
    pub fn pass_of(&self, step: u64) -> Option<SealedPass> {
        let next = self.sealed.partition_point(|pass| pass.start <= step);
        let pass = self.sealed.get(next.checked_sub(1)?)?;
        (step < end(pass)).then_some(*pass)
    }

    /// Where the run stands after some steps.
    ///
    /// # Errors
    /// The pass is not known.
    pub fn progress(&self, step: u64, now: Time) -> Result<Progress, NotSealed> {
        let mut progress = Progress::new(self.plan, self.place(step)?, now);
        if self.has_ended(step) {
            progress.on_stream_ended();
        }
        Ok(progress)
    }

    /// Learns of a sealed pass; false if it contradicts what is known, or says nothing new.
    pub fn learn(&mut self, new: SealedPass) -> bool {
        let sound = new.steps > 0 && new.start.checked_add(new.steps).is_some();
        if self.plan.passes != PassLengths::Sealed || !sound || new.start < self.first.step {
            return false;
        }
        let at = self.sealed.partition_point(|pass| pass.pass < new.pass);
        let before = at.checked_sub(1).and_then(|before| self.sealed.get(before));
        let after = self.sealed.get(at);
        let fits = before.is_none_or(|before| end(before) <= new.start)
            && after.is_none_or(|after| after.pass != new.pass && end(&new) <= after.start);
        if !fits || new.pass < self.first.pass {
            return false;
        }
        self.sealed.insert(at, new);
        if self.sealed.len() > REMEMBERED
            && let Some(oldest) = self.sealed.pop_front()
        {
            self.first = PassStart { pass: oldest.pass + 1, step: end(&oldest) };
        }
        true
    }

    /// Learns that the stream has no more samples after a step.
    pub fn on_stream_ended(&mut self, step: u64) {
        self.ended = Some(step);
    }

    /// Whether the stream is known to have no more samples after a step.
    pub fn has_ended(&self, step: u64) -> bool {
        self.ended.is_some_and(|ended| step >= ended)
    }

    /// The sealed pass that ends after a step.
    pub fn pass_before(&self, step: u64) -> Option<SealedPass> {
        self.sealed.iter().rev().find(|pass| end(pass) == step).copied()
    }

    /// Whether a run has nothing left to do after some steps.
    pub fn is_done(&self, step: u64) -> bool {
        let done = match self.plan.length {
            Length::Steps(steps) => step >= steps,
            Length::Passes(passes) => self.place(step).is_ok_and(|place| place.pass >= passes),
        };
        done || self.plan.has_until_at(step) || self.has_ended(step)
    }

    /// Where a pass begins no later than after `step` steps: the newest one that is known.
    pub fn start_before(&self, step: u64) -> PassStart {
        if let Ok(place) = self.place(step) {
            return PassStart { pass: place.pass, step: step - place.batch };
        }
        let known = self.sealed.iter().rev().find(|pass| end(pass) <= step);
        known.map_or(self.first, |pass| PassStart { pass: pass.pass + 1, step: end(pass) })
    }
}

/// Steps of the run after a pass.
fn end(pass: &SealedPass) -> u64 {
    pass.start.saturating_add(pass.steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Every;

    fn plan(passes: PassLengths, length: Length) -> Plan {
        Plan { passes, length, validate: Every::Passes(1), checkpoint: Every::Never, until: None }
    }

    fn sealed(pass: u64, start: u64, steps: u64) -> SealedPass {
        SealedPass { pass, start, steps, samples: steps * 8, base: 0, horizon: steps * 8 }
    }

    fn stream(passes: &[SealedPass]) -> Passes {
        let mut all = Passes::new(plan(PassLengths::Sealed, Length::Passes(3)), Place::default());
        passes.iter().for_each(|pass| assert!(all.learn(*pass), "{pass:?}"));
        all
    }

    #[test]
    fn passes_of_one_length_are_known_from_the_beginning() {
        let passes = Passes::new(plan(PassLengths::Fixed(3), Length::Passes(2)), Place::default());
        assert_eq!(passes.place(7), Ok(Place { step: 7, pass: 2, batch: 1, sealed: None }));
        assert_eq!([5, 6].map(|step| passes.is_done(step)), [false, true]);
        assert_eq!(passes.start_before(7), PassStart { pass: 2, step: 6 });
        assert_eq!(passes.plan().steps(), Some(6));
    }

    #[test]
    fn a_stream_has_places_as_far_as_its_passes_are_sealed() {
        let passes = stream(&[sealed(0, 0, 3), sealed(1, 3, 5)]);
        let place = |step: u64| passes.place(step).map(|place| (place.pass, place.batch));
        assert_eq!([0, 2, 3, 7].map(place), [Ok((0, 0)), Ok((0, 2)), Ok((1, 0)), Ok((1, 4))]);
        assert_eq!(place(8), Ok((2, 0)), "the pass after it begins here, though it is not sealed");
        assert_eq!(place(9), Err(NotSealed { step: 9 }));
        assert_eq!((passes.pass_of(8), passes.pass_of(7)), (None, Some(sealed(1, 3, 5))));
        assert_eq!(passes.start_before(20), PassStart { pass: 2, step: 8 });
        assert_eq!(passes.plan().steps(), None);
    }

    #[test]
    fn a_run_ends_with_its_last_pass_or_with_the_stream() {
        let mut passes = stream(&[sealed(0, 0, 3), sealed(1, 3, 5)]);
        assert!(!passes.is_done(8));
        passes.learn(sealed(2, 8, 2));
        assert_eq!([9, 10].map(|step| passes.is_done(step)), [false, true]);
        let mut short = stream(&[sealed(0, 0, 3)]);
        short.on_stream_ended(3);
        assert_eq!([2, 3].map(|step| short.is_done(step)), [false, true]);
        assert!(short.progress(3, Time::ZERO).unwrap().due_here().validate, "the last model is validated");
    }

    #[test]
    fn reports_may_come_twice_and_out_of_order_and_wrong_ones_change_nothing() {
        let mut passes = stream(&[sealed(0, 0, 3), sealed(2, 8, 2)]);
        assert!(!passes.learn(sealed(0, 0, 3)), "known");
        assert!(
            !passes.learn(sealed(0, 0, 4))
                && !passes.learn(sealed(1, 2, 5))
                && !passes.learn(sealed(1, 3, 6))
        );
        assert!(!passes.learn(sealed(5, u64::MAX, 2)) && !passes.learn(sealed(5, 20, 0)));
        assert_eq!(passes.place(5), Err(NotSealed { step: 5 }));
        assert_eq!(passes.start_before(5), PassStart { pass: 1, step: 3 });
        assert!(passes.learn(sealed(1, 3, 5)));
        assert_eq!(passes.place(5).unwrap().batch, 2);
    }

    #[test]
    fn a_run_goes_on_in_the_middle_of_a_pass_from_what_its_checkpoint_says() {
        let place = stream(&[sealed(0, 0, 3), sealed(1, 3, 5)]).place(6).unwrap();
        let mut resumed = Passes::new(plan(PassLengths::Sealed, Length::Passes(3)), place);
        assert_eq!(resumed.place(6), Ok(place));
        assert_eq!(resumed.place(8).unwrap().pass, 2);
        assert_eq!(resumed.place(2), Err(NotSealed { step: 2 }), "forgotten");
        resumed.restart(Place { step: 3, pass: 1, batch: 0, sealed: Some(sealed(1, 3, 5)) });
        assert_eq!(resumed.place(6), Ok(place), "it is still known");
        resumed.restart(Place { step: 1, pass: 0, batch: 1, sealed: Some(sealed(0, 0, 3)) });
        assert_eq!(resumed.place(3).unwrap().pass, 1);
        assert_eq!(resumed.place(6), Err(NotSealed { step: 6 }));
    }

    #[test]
    fn an_endless_stream_takes_bounded_memory() {
        let mut passes = Passes::new(plan(PassLengths::Sealed, Length::Steps(u64::MAX)), Place::default());
        let many = 3 * REMEMBERED as u64;
        assert!((0..many).all(|pass| passes.learn(sealed(pass, 2 * pass, 2))));
        assert_eq!(passes.sealed.len(), REMEMBERED);
        assert_eq!(passes.place(2 * many - 1).unwrap().pass, many - 1);
        assert_eq!(passes.place(1), Err(NotSealed { step: 1 }));
    }
}
