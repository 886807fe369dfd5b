//! Passes over a stream: each has a length of its own, and ranks may have to wait before one begins.

use super::group::{LeftBy, Todo};
use super::options::{Options, Stream};
use super::pace::{Pace, RoundTimes};
use super::world::World;
use crate::dice::Dice;
use phalanx_protocol::progress::{Place, Plan};
use phalanx_protocol::{Length, PassLengths, PassStart, Passes, SealedPass, Wish};
use phalanx_types::Time;
use phalanx_wire::train::FromReplica;
use std::collections::BTreeSet;
use std::time::Duration;

/// After this time a group makes a checkpoint again that the store still lacks.
const SAVE_AGAIN: Duration = Duration::from_secs(10);
/// When nothing fails any more, the store hears of the checkpoint of a group that waits within this time.
const LONGEST_COMMIT: Duration = Duration::from_secs(120);

/// The passes that the store will seal, whoever asks when, and the last step of the run.
pub(super) fn passes_of(seed: u64, options: &Options, plan: Plan) -> (Passes, u64) {
    let Some(stream) = options.stream else {
        return (Passes::new(plan, Place::default()), options.steps);
    };
    let mut dice = Dice::new(seed, "passes");
    let mut sealed = Vec::new();
    let (mut start, wanted) = (0, if stream == Stream::Samples { options.steps / 2 } else { options.steps });
    while start < wanted {
        let (pass, steps) = (sealed.len() as u64, dice.number(1..options.pass + 1));
        let samples = steps * options.batch as u64;
        sealed.push(SealedPass { pass, start, steps, samples, base: 0, horizon: samples });
        start += steps;
    }
    let length = match stream {
        Stream::Passes => Length::Passes(sealed.len() as u64),
        Stream::Steps | Stream::Samples => plan.length,
    };
    let plan = Plan { passes: PassLengths::Sealed, length, ..plan };
    let mut passes = Passes::new(plan, Place::default());
    sealed.into_iter().for_each(|pass| assert!(passes.learn(pass), "{pass:?}"));
    (passes, if stream == Stream::Steps { options.steps } else { start })
}

/// Where passes begin that the store cannot seal before the run has committed all steps before them: producers wait
/// for the room that samples of these steps take.
pub(super) fn passes_that_need_room(
    seed: u64,
    options: &Options,
    passes: &Passes,
    last_step: u64,
) -> BTreeSet<u64> {
    if !options.frees {
        return BTreeSet::new();
    }
    let mut dice = Dice::new(seed, "room");
    let starts = (1..last_step).filter(|step| passes.place(*step).is_ok_and(|place| place.batch == 0));
    starts.filter(|_| dice.chance(1, 2)).collect()
}

impl<P: Pace> World<'_, P> {
    /// The place after some steps.
    pub(super) fn place(&self, step: u64) -> Place {
        self.passes.place(step).expect("all passes are known here")
    }

    /// The place as a checkpoint has it: of the next pass it may know nothing.
    pub(super) fn place_on_disk(&self, step: u64) -> Place {
        let place = self.place(step);
        if place.batch == 0 { Place { sealed: None, ..place } } else { place }
    }

    /// A pass begins: ranks may have to wait for it, or there is none. Returns whether the round may begin.
    pub(super) fn enter_pass(&mut self) -> bool {
        let (Some(group), Some(stream)) = (&mut self.group, self.options.stream) else { return true };
        let (epoch, step, speaker) = (group.epoch, group.step, group.members[group.speaker()]);
        if group.entered == Some(step) {
            return true;
        }
        group.entered = Some(step);
        if self.place(step).batch > 0 {
            return true;
        }
        let (run, ended) = (self.run_id(), self.passes.pass_before(step));
        if stream == Stream::Samples && step >= self.last_step {
            self.say(speaker, FromReplica::StreamEnded { run, epoch, step, ended });
            if let Some(group) = &mut self.group {
                group.todo.push_back(Todo::End(LeftBy::Done));
            }
            self.proceed();
            return false;
        }
        if self.waits_for_commit(step) {
            let wait = "steps of pass 2 from step 0 on are not committed".into();
            self.say(speaker, FromReplica::StreamWaits { run, epoch, step, wait, ended });
            self.group.iter_mut().for_each(|group| group.waits_since = Some(self.now));
            self.tally.commits_waited += 1;
            self.save_for_store();
            self.proceed();
            return false;
        }
        if !self.dice.nodes.chance(1, 3) {
            return true;
        }
        let wait = "120 of 1,024 samples have arrived".into();
        self.say(speaker, FromReplica::StreamWaits { run, epoch, step, wait, ended });
        let takes = self.dice.nodes.millis(10..5000);
        self.begin_work(Todo::Wait, RoundTimes { decided: takes, takes }, 0);
        false
    }

    /// The next pass is there, or a rank was asked for something meanwhile.
    pub(super) fn waited(&mut self) {
        let next = self.wished().unwrap_or(Todo::Round);
        self.group.iter_mut().for_each(|group| group.todo.push_back(next));
    }

    /// How a group that waits ends, if a rank was asked for that.
    fn wished(&self) -> Option<Todo> {
        let group = self.group.as_ref()?;
        let wishes = group.members.iter().map(|process| self.nodes[process.node].rank.wish);
        match wishes.filter(|(of, _)| *of == group.epoch).map(|(_, wish)| wish).max()? {
            Wish::Stop => Some(Todo::End(LeftBy::Done)),
            Wish::Reform => Some(Todo::End(LeftBy::Reform)),
            Wish::GoOn => None,
        }
    }

    /// Whether the store has no room for the samples of the next pass, as far as it has heard of checkpoints.
    fn waits_for_commit(&self, step: u64) -> bool {
        self.needs_room.contains(&step) && self.freed < step
    }

    /// A group saves for the store, then waits.
    fn save_for_store(&mut self) {
        let Some(group) = &mut self.group else { return };
        group.saved_for_store = Some(self.now);
        group.todo.extend([Todo::Snapshot, Todo::WaitForCommit]);
    }

    /// The store has heard of the checkpoint, or has not: the group makes another one after a while.
    pub(super) fn waited_for_commit(&mut self) {
        let Some(group) = &self.group else { return };
        let (waits, step) = (self.waits_for_commit(group.step), group.step);
        let since = group.waits_since.unwrap_or(self.now).max(Time::ZERO + self.options.heals_at);
        if waits && self.since(since) > LONGEST_COMMIT {
            return self
                .violate(format!("the store waits for a checkpoint of step {step}, the run for the store"));
        }
        let is_late = group.saved_for_store.is_none_or(|saved| self.since(saved) >= SAVE_AGAIN);
        match self.wished() {
            Some(end) => self.group.iter_mut().for_each(|group| group.todo.push_back(end)),
            None if waits && is_late => self.save_for_store(),
            None => {
                let next = if waits { Todo::WaitForCommit } else { Todo::Round };
                self.group.iter_mut().for_each(|group| group.todo.push_back(next));
            }
        }
    }

    /// The driver tells the store of a checkpoint. At times the store does not answer.
    pub(super) fn commit_to_store(&mut self, step: u64) {
        if !self.options.frees {
            return;
        }
        let (place, before) = (self.driver.core.place(step), self.driver.core.pass_before(step));
        let Ok(place) = place else {
            return self
                .violate(format!("a checkpoint of step {step} is written, and its pass is not known"));
        };
        // Without the pass before there is nothing that the store could be told.
        if (place.batch > 0 || before.is_some()) && (self.has_healed() || !self.dice.driver.chance(1, 10)) {
            self.freed = self.freed.max(step);
        }
    }

    /// The pass that a group is told of begins no later than the group.
    pub(super) fn check_pass(&mut self, pass: PassStart, from_step: u64) {
        let place = self.place(pass.step);
        if (place.pass, place.batch) != (pass.pass, 0) || pass.step > from_step {
            self.violate(format!("a group that begins after step {from_step} is told of {pass:?}"));
        }
    }

    /// A driver that records a step knows which pass it is of.
    pub(super) fn check_place(&mut self, step: u64) {
        let (known, place) = (self.driver.core.place(step), self.place(step));
        if known.map(|known| (known.pass, known.batch)) != Ok((place.pass, place.batch)) {
            self.violate(format!("step {step} is recorded as {known:?}, it is {place:?}"));
        }
    }
}
