//! Passes over a stream: each has a length of its own, and ranks may have to wait before one begins.

use super::group::{LeftBy, Todo};
use super::options::{Options, Stream};
use super::pace::{Pace, RoundTimes};
use super::world::World;
use crate::dice::Dice;
use phalanx_protocol::progress::{Place, Plan};
use phalanx_protocol::{Length, PassLengths, PassStart, Passes, SealedPass, Wish};
use phalanx_wire::train::FromReplica;

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
        let run = self.run_id();
        if stream == Stream::Samples && step >= self.last_step {
            self.say(speaker, FromReplica::StreamEnded { run, epoch, step });
            if let Some(group) = &mut self.group {
                group.todo.push_back(Todo::End(LeftBy::Done));
            }
            self.proceed();
            return false;
        }
        if !self.dice.nodes.chance(1, 3) {
            return true;
        }
        let wait = "120 of 1,024 samples have arrived".into();
        self.say(speaker, FromReplica::StreamWaits { run, epoch, step, wait });
        let takes = self.dice.nodes.millis(10..5000);
        self.begin_work(Todo::Wait, RoundTimes { decided: takes, takes }, 0);
        false
    }

    /// The next pass is there, or a rank was asked for something meanwhile.
    pub(super) fn waited(&mut self) {
        let Some(group) = &mut self.group else { return };
        let wishes = group.members.iter().map(|process| self.nodes[process.node].rank.wish);
        let wish = wishes.filter(|(of, _)| *of == group.epoch).map(|(_, wish)| wish).max();
        group.todo.push_back(match wish.unwrap_or(Wish::GoOn) {
            Wish::Stop => Todo::End(LeftBy::Done),
            Wish::Reform => Todo::End(LeftBy::Reform),
            Wish::GoOn => Todo::Round,
        });
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
