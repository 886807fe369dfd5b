//! Trainers join, do their shares, and are lost; a step is committed when all have done it.

use super::group::Member;
use super::{StreamCore, StreamOutbox, tell_trainer};
use crate::bugs::{StreamBug, planted};
use crate::command::{Assignment, StreamCommand, StreamReport, ToTrainer};
use crate::cursor::Cursor;
use crate::event::{ReaderLife, TrainerLife};
use crate::fact::{Fact, ReaderEnding};
use crate::refusal::StreamRefusal;
use crate::settings::MAX_TRAINERS;
use phalanx_types::{Epoch, Incarnation, ReaderId, Time, TrainerId};
use std::time::Duration;

impl StreamCore {
    pub(super) fn on_trainer_joined(&mut self, now: Time, trainer: TrainerLife, out: &mut StreamOutbox) {
        if let Err(refusal) = self.may_join(&trainer) {
            return tell_trainer(trainer, ToTrainer::Refused(refusal), out);
        }
        let reader = &trainer.reader.id;
        if self.knows(&trainer) {
            self.heard(now, &trainer);
            return self.answer(&trainer, out);
        }
        let Some(state) = self.state.reader(reader) else { return };
        if let Some(ending) = state.ending() {
            return tell_trainer(trainer, ToTrainer::Finished(ending), out);
        }
        let between = state.open_pass().is_none();
        let Some(group) = self.groups.get_mut(reader) else { return };
        let replaced = group.seen.insert(trainer.id.clone(), trainer.incarnation);
        let was_member = group.members.remove(&trainer.id).is_some();
        if let Some(incarnation) = replaced.filter(|before| *before < trainer.incarnation) {
            let old = TrainerLife { incarnation, ..trainer.clone() };
            let fenced = StreamRefusal::Fenced { incarnation, current: trainer.incarnation };
            tell_trainer(old, ToTrainer::Refused(fenced), out);
        }
        group.joining.insert(trainer.id.clone(), Member::new(now, trainer.incarnation));
        group.idle_since = None;
        let nobody_computes = group.members.is_empty();
        if was_member || nobody_computes || between {
            self.regroup(reader, out);
        }
    }

    fn may_join(&self, trainer: &TrainerLife) -> Result<(), StreamRefusal> {
        self.check_reader(&trainer.reader)?;
        let Some(group) = self.groups.get(&trainer.reader.id) else {
            return Err(StreamRefusal::UnknownReader { reader: trainer.reader.id.clone() });
        };
        match group.seen.get(&trainer.id) {
            Some(current) if *current > trainer.incarnation => {
                Err(StreamRefusal::Fenced { incarnation: trainer.incarnation, current: *current })
            }
            None if group.seen.len() >= MAX_TRAINERS => {
                Err(StreamRefusal::TooMany { max: MAX_TRAINERS as u64 })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether this is the current life of a reader that goes on.
    pub(super) fn check_reader(&self, reader: &ReaderLife) -> Result<(), StreamRefusal> {
        let Some(state) = self.state.reader(&reader.id) else {
            return Err(StreamRefusal::UnknownReader { reader: reader.id.clone() });
        };
        if state.incarnation() > reader.incarnation {
            let current = state.incarnation();
            return Err(StreamRefusal::Fenced { incarnation: reader.incarnation, current });
        }
        if state.incarnation() < reader.incarnation {
            return Err(StreamRefusal::UnknownReader { reader: reader.id.clone() });
        }
        match state.ending() {
            Some(ReaderEnding::Closed) => Err(StreamRefusal::ReaderClosed { reader: reader.id.clone() }),
            Some(ReaderEnding::Released) => Err(StreamRefusal::ReaderReleased { reader: reader.id.clone() }),
            Some(
                ReaderEnding::PassesDone | ReaderEnding::StreamUsed | ReaderEnding::TooFewSamples { .. },
            )
            | None => Ok(()),
        }
    }

    /// Whether this life of the trainer has joined.
    fn knows(&self, trainer: &TrainerLife) -> bool {
        let group = self.groups.get(&trainer.reader.id);
        let same = |(id, member): (&TrainerId, &Member)| {
            *id == trainer.id && member.incarnation == trainer.incarnation
        };
        let current = self.state.reader(&trainer.reader.id).map(|state| state.incarnation());
        current == Some(trainer.reader.incarnation) && group.is_some_and(|group| group.all().any(same))
    }

    fn heard(&mut self, now: Time, trainer: &TrainerLife) {
        if let Some(member) = self.member_mut(&trainer.reader.id, &trainer.id) {
            member.heard = now;
        }
    }

    fn member_mut(&mut self, reader: &ReaderId, trainer: &TrainerId) -> Option<&mut Member> {
        self.groups.get_mut(reader)?.get_mut(trainer)
    }

    pub(super) fn on_trainer_heard(&mut self, now: Time, trainer: &TrainerLife) {
        if self.knows(trainer) {
            self.heard(now, trainer);
        }
    }

    /// Forms a new group of all trainers that are there: the step that was not committed begins again.
    pub(super) fn regroup(&mut self, reader: &ReaderId, out: &mut StreamOutbox) {
        let Some(state) = self.state.reader(reader) else { return };
        let (epoch, done) = (state.epoch().next(), state.cursor().map_or(0, |cursor| cursor.step));
        let Some(group) = self.groups.get_mut(reader) else { return };
        group.take_in(done);
        if group.members.is_empty() {
            return;
        }
        self.record(Fact::Regrouped { reader: reader.clone(), epoch }, out);
        self.assign(reader, out);
    }

    /// Gives every member its share of the next step, if there is one.
    pub(super) fn assign(&mut self, reader: &ReaderId, out: &mut StreamOutbox) {
        let done = self.state.reader(reader).and_then(|state| state.cursor()).map_or(0, |cursor| cursor.step);
        let Some(group) = self.groups.get_mut(reader) else { return };
        for member in group.members.values_mut().filter(|member| member.done <= done) {
            member.told = None;
        }
        for trainer in self.lives_of(reader) {
            self.tell_share(&trainer, out);
        }
    }

    /// The current lives of the trainers that are connected.
    pub(super) fn lives_of(&self, reader: &ReaderId) -> Vec<TrainerLife> {
        let incarnation = self.state.reader(reader).map_or(Incarnation(0), |state| state.incarnation());
        let life = |(id, member): (&TrainerId, &Member)| TrainerLife {
            reader: ReaderLife { id: reader.clone(), incarnation },
            id: id.clone(),
            incarnation: member.incarnation,
        };
        self.groups.get(reader).iter().flat_map(|group| group.all()).map(life).collect()
    }

    /// Tells a member its share, if it has one to do; false if it has not.
    fn tell_share(&self, trainer: &TrainerLife, out: &mut StreamOutbox) -> bool {
        let share = || {
            let state = self.state.reader(&trainer.reader.id)?;
            let (cursor, _) = state.open_pass().filter(|_| state.ending().is_none())?;
            let group = self.groups.get(&trainer.reader.id)?;
            let member = group.members.get(&trainer.id)?;
            let ranks = u32::try_from(group.members.len()).ok()?;
            let assignment = Assignment { epoch: state.epoch(), rank: member.rank, ranks, cursor };
            (member.done <= cursor.step).then_some(assignment)
        };
        let Some(assignment) = share() else { return false };
        tell_trainer(trainer.clone(), ToTrainer::Assigned(assignment), out);
        true
    }

    /// Answers a request of a trainer with where it stands; reasons to wait follow when all is settled.
    fn answer(&mut self, trainer: &TrainerLife, out: &mut StreamOutbox) {
        let ending = self.state.reader(&trainer.reader.id).and_then(|state| state.ending());
        if let Some(ending) = ending {
            return tell_trainer(trainer.clone(), ToTrainer::Finished(ending), out);
        }
        if !self.tell_share(trainer, out)
            && let Some(member) = self.member_mut(&trainer.reader.id, &trainer.id)
        {
            member.told = None;
        }
    }

    pub(super) fn on_steps_done(
        &mut self,
        now: Time,
        trainer: &TrainerLife,
        epoch: Epoch,
        pass: u64,
        steps: u64,
        out: &mut StreamOutbox,
    ) {
        let reader = &trainer.reader.id;
        if let Err(refusal) = self.may_join(trainer) {
            return tell_trainer(trainer.clone(), ToTrainer::Refused(refusal), out);
        }
        if !self.knows(trainer) {
            let refusal = StreamRefusal::NotJoined { reader: reader.clone() };
            return tell_trainer(trainer.clone(), ToTrainer::Refused(refusal), out);
        }
        self.heard(now, trainer);
        let Some(state) = self.state.reader(reader) else { return };
        let current = state.open_pass().filter(|_| state.ending().is_none());
        let Some((cursor, plan)) =
            current.filter(|(cursor, _)| epoch == state.epoch() && pass == cursor.pass)
        else {
            return self.answer(trainer, out);
        };
        if steps > plan.steps() {
            let refusal = StreamRefusal::BeyondPass { pass, steps: plan.steps(), done: steps };
            return tell_trainer(trainer.clone(), ToTrainer::Refused(refusal), out);
        }
        let Some(group) = self.groups.get_mut(reader) else { return };
        let Some(member) = group.members.get_mut(&trainer.id) else { return self.answer(trainer, out) };
        member.done = member.done.max(steps);
        let one = planted(StreamBug::CommitsOneShare).then_some(member.done);
        let Some(done) = one.or(group.done_by_all()) else { return };
        if done <= cursor.step {
            return self.answer(trainer, out);
        }
        let joins = !group.joining.is_empty();
        let fact = Fact::StepsCommitted { reader: reader.clone(), steps: done };
        if planted(StreamBug::RecordsStepsLate) {
            let applied = self.state.apply_noting(&fact, &mut self.loose);
            debug_assert_eq!(applied, Ok(()));
            self.assign(reader, out);
            out.push(StreamCommand::Record(fact));
            return;
        }
        self.record(fact, out);
        self.roll_over(reader, cursor);
        if joins { self.regroup(reader, out) } else { self.assign(reader, out) }
    }

    /// Steps of a pass that was sealed ahead count from its beginning.
    pub(super) fn roll_over(&mut self, reader: &ReaderId, before: Cursor) {
        let after = self.state.reader(reader).and_then(|state| state.cursor());
        if after.is_some_and(|after| after.pass != before.pass)
            && let Some(group) = self.groups.get_mut(reader)
        {
            group.begin_pass();
        }
    }

    pub(super) fn on_trainer_left(&mut self, now: Time, trainer: &TrainerLife, out: &mut StreamOutbox) {
        if self.knows(trainer) {
            self.remove_trainer(now, trainer, out);
        }
    }

    pub(super) fn on_trainer_lost(&mut self, now: Time, trainer: &TrainerLife, out: &mut StreamOutbox) {
        if self.knows(trainer) {
            self.lose_trainer(now, trainer, Duration::ZERO, out);
        }
    }

    pub(super) fn lose_trainer(
        &mut self,
        now: Time,
        trainer: &TrainerLife,
        silent_for: Duration,
        out: &mut StreamOutbox,
    ) {
        let (reader, id) = (trainer.reader.id.clone(), trainer.id.clone());
        // Trainers of a reader that has finished may go.
        if self.state.reader(&reader).is_some_and(|state| state.ending().is_none()) {
            out.push(StreamCommand::Report(StreamReport::TrainerLost { reader, trainer: id, silent_for }));
        }
        self.remove_trainer(now, trainer, out);
    }

    fn remove_trainer(&mut self, now: Time, trainer: &TrainerLife, out: &mut StreamOutbox) {
        let reader = &trainer.reader.id;
        let Some(group) = self.groups.get_mut(reader) else { return };
        group.joining.remove(&trainer.id);
        let was_member = group.members.remove(&trainer.id).is_some();
        if group.members.is_empty() && group.joining.is_empty() {
            group.idle_since = Some(now);
            if self.state.reader(reader).is_some_and(|state| state.ending().is_none()) {
                out.push(StreamCommand::Report(StreamReport::ReaderLost { reader: reader.clone() }));
            }
        } else if was_member && !planted(StreamBug::KeepsTheEpoch) {
            self.regroup(reader, out);
        } else if was_member {
            (0..).zip(group.members.values_mut()).for_each(|(rank, member)| member.rank = rank);
            self.assign(reader, out);
        }
    }
}
