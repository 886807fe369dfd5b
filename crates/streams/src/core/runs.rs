//! Training runs that share their batches out themselves: they ask for passes, and commit steps when a checkpoint has
//! them.

use super::passes::Next;
use super::{StreamCore, StreamOutbox};
use crate::command::{StreamCommand, ToReader};
use crate::cursor::Cursor;
use crate::event::ReaderLife;
use crate::fact::{Fact, ReaderEnding};
use crate::refusal::StreamRefusal;
use crate::settings::ReadMode;
use crate::state::ReaderState;
use crate::wait::StreamWait;
use phalanx_types::{ReaderId, Time};
use serde::{Deserialize, Serialize};

/// What a run that asks for a pass is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PassAnswer {
    /// The pass has these samples.
    Sealed(Cursor),
    /// The pass does not begin yet.
    Waiting(StreamWait),
    /// There is no such pass: the reader needs no more samples.
    Finished(ReaderEnding),
}

impl StreamCore {
    /// Takes note of the pass that a run wants. If samples are kept, the passes before it count as done: a run that
    /// goes back to a checkpoint says so when it opens the reader again.
    pub(super) fn on_pass_wanted(&mut self, reader: &ReaderLife, pass: u64, out: &mut StreamOutbox) {
        if self.check_reader(reader).is_err() {
            return;
        }
        let Some(state) = self.state.reader(&reader.id).filter(|state| state.ending().is_none()) else {
            return;
        };
        let next = state.last_sealed().map_or(0, |cursor| cursor.pass + 1);
        if pass != next {
            return;
        }
        let kept = !self.state.frees();
        let current = state.open_pass();
        if let Some(group) = self.groups.get_mut(&reader.id) {
            group.wants_pass = Some(pass);
        }
        if let Some((cursor, order)) = current.filter(|_| kept) {
            self.commit_until(&reader.id, cursor.pass, order.steps(), out);
        }
    }

    /// Whether the pass that a run wants begins, and why not.
    ///
    /// # Errors
    /// The reader is not known, or the pass is not the next one.
    pub fn pass_answer(&self, now: Time, reader: &ReaderId, pass: u64) -> Result<PassAnswer, StreamRefusal> {
        let Some(state) = self.state.reader(reader) else {
            return Err(StreamRefusal::UnknownReader { reader: reader.clone() });
        };
        if let Some(cursor) = state.sealed_pass(pass) {
            return Ok(PassAnswer::Sealed(cursor));
        }
        if let Some(ending) = state.ending() {
            return Ok(PassAnswer::Finished(ending));
        }
        if pass != state.last_sealed().map_or(0, |cursor| cursor.pass + 1) {
            return Err(StreamRefusal::UnknownPlace { reader: reader.clone(), pass, step: 0 });
        }
        if let Next::Finish(ending) = self.next_pass(state) {
            return Ok(PassAnswer::Finished(ending));
        }
        Ok(PassAnswer::Waiting(self.wanted_pass_wait(now, state)))
    }

    fn wanted_pass_wait(&self, now: Time, state: &ReaderState) -> StreamWait {
        let Some((Cursor { pass, step, .. }, _)) = state.open_pass() else {
            return self.pass_wait(now, state);
        };
        let needs_end = !state.may_seal_ahead();
        let needs_room = !self.held.is_empty() && matches!(self.next_pass(state), Next::Samples { .. });
        match self.state.frees() && (needs_end || needs_room) {
            true => StreamWait::Uncommitted { pass, step },
            false => self.pass_wait(now, state),
        }
    }

    pub(super) fn on_run_committed(
        &mut self,
        reader: &ReaderLife,
        pass: u64,
        steps: u64,
        out: &mut StreamOutbox,
    ) {
        let message = match self.may_commit(reader, pass, steps) {
            Ok(()) => {
                self.commit_until(&reader.id, pass, steps, out);
                let cursor = self.state.reader(&reader.id).and_then(|state| state.cursor());
                ToReader::Committed { cursor }
            }
            Err(refusal) => ToReader::Refused(refusal),
        };
        out.push(StreamCommand::TellReader { reader: reader.clone(), message });
    }

    fn may_commit(&self, reader: &ReaderLife, pass: u64, steps: u64) -> Result<(), StreamRefusal> {
        match self.check_reader(reader) {
            // A run that has finished commits its last steps.
            Ok(()) | Err(StreamRefusal::ReaderClosed { .. }) => {}
            Err(refusal) => return Err(refusal),
        }
        let Some(state) = self.state.reader(&reader.id) else { return Ok(()) };
        let current = state.cursor().map_or(0, |cursor| cursor.pass);
        let Some(cursor) = state.sealed_pass(pass) else {
            // What was committed long ago may be said again.
            return match pass < current {
                true => Ok(()),
                false => Err(StreamRefusal::UnknownPlace { reader: reader.id.clone(), pass, step: steps }),
            };
        };
        let all = cursor.pass(state.settings()).steps();
        match steps > all {
            true => Err(StreamRefusal::BeyondPass { pass, steps: all, done: steps }),
            false => Ok(()),
        }
    }

    /// Commits all passes before this one, and this many steps of it; nothing if that has happened.
    pub(super) fn commit_until(&mut self, reader: &ReaderId, pass: u64, steps: u64, out: &mut StreamOutbox) {
        while let Some((cursor, order)) = self.state.reader(reader).and_then(|state| state.open_pass()) {
            let steps = if cursor.pass < pass { order.steps() } else { steps };
            if cursor.pass > pass || steps <= cursor.step {
                return;
            }
            self.record(Fact::StepsCommitted { reader: reader.clone(), steps }, out);
            let member_done = self.groups.get_mut(reader);
            member_done.into_iter().flat_map(|group| group.members.values_mut()).for_each(|member| {
                member.done = member.done.max(steps);
                member.told = None;
            });
            self.roll_over(reader, cursor);
            let after = self.state.reader(reader).and_then(|state| state.cursor());
            if after.is_none_or(|after| after.pass == cursor.pass) {
                return;
            }
        }
    }

    /// Whether a run may read samples of a reader in this mode by itself, or must ask which they are.
    pub fn needs_places(&self, reader: &ReaderId) -> bool {
        let mode = self.state.reader(reader).map(|state| state.settings().mode);
        matches!(mode, Some(ReadMode::Reservoir { .. }))
    }
}
