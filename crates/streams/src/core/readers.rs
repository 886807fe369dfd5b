//! Readers open, begin new lives, and end.

use super::group::Group;
use super::{StreamCore, StreamOutbox, tell_trainer};
use crate::command::{StreamCommand, StreamReport, ToReader, ToTrainer};
use crate::cursor::Cursor;
use crate::event::ReaderLife;
use crate::fact::{Fact, ReaderEnding};
use crate::refusal::StreamRefusal;
use crate::settings::{MAX_READERS, ReaderSettings};
use crate::state::ReaderState;
use phalanx_types::{ReaderId, Time};

impl StreamCore {
    pub(super) fn on_reader_opened(
        &mut self,
        now: Time,
        reader: ReaderLife,
        settings: ReaderSettings,
        resume: Option<Cursor>,
        out: &mut StreamOutbox,
    ) {
        let opened = match self.state.reader(&reader.id) {
            None => self.register(now, &reader, settings, resume, out),
            Some(state) if state.incarnation() == reader.incarnation => match *state.settings() == settings {
                true => self.check_reader(&reader),
                false => Err(StreamRefusal::SettingsDiffer { reader: reader.id.clone() }),
            },
            Some(_) => self.renew(now, &reader, &settings, resume, out),
        };
        let message = match opened {
            Ok(()) => {
                let cursor = self.state.reader(&reader.id).and_then(|state| state.cursor());
                ToReader::Opened { cursor }
            }
            Err(refusal) => ToReader::Refused(refusal),
        };
        out.push(StreamCommand::TellReader { reader, message });
    }

    fn register(
        &mut self,
        now: Time,
        reader: &ReaderLife,
        settings: ReaderSettings,
        resume: Option<Cursor>,
        out: &mut StreamOutbox,
    ) -> Result<(), StreamRefusal> {
        settings.validate(self.state.settings().retention)?;
        if let Some(Cursor { pass, step, .. }) = resume {
            return Err(StreamRefusal::UnknownPlace { reader: reader.id.clone(), pass, step });
        }
        if self.state.readers().len() >= MAX_READERS {
            return Err(StreamRefusal::TooMany { max: MAX_READERS as u64 });
        }
        let fact = Fact::ReaderRegistered {
            reader: reader.id.clone(),
            incarnation: reader.incarnation,
            settings,
            start: self.state.uploads().whole_from(),
        };
        self.record(fact, out);
        self.groups.insert(reader.id.clone(), Group::new(now));
        Ok(())
    }

    fn renew(
        &mut self,
        now: Time,
        reader: &ReaderLife,
        settings: &ReaderSettings,
        resume: Option<Cursor>,
        out: &mut StreamOutbox,
    ) -> Result<(), StreamRefusal> {
        let Some(state) = self.state.reader(&reader.id) else { return Ok(()) };
        if state.incarnation() > reader.incarnation {
            let current = state.incarnation();
            return Err(StreamRefusal::Fenced { incarnation: reader.incarnation, current });
        }
        if state.settings() != settings {
            return Err(StreamRefusal::SettingsDiffer { reader: reader.id.clone() });
        }
        match state.ending() {
            Some(ReaderEnding::Closed) => {
                return Err(StreamRefusal::ReaderClosed { reader: reader.id.clone() });
            }
            Some(ReaderEnding::Released) if self.state.frees() => {
                return Err(StreamRefusal::ReaderReleased { reader: reader.id.clone() });
            }
            _ => {}
        }
        let resumed = self.resume_at(&reader.id, state, resume)?;
        let old = self.lives_of(&reader.id);
        let fenced = StreamRefusal::Fenced { incarnation: state.incarnation(), current: reader.incarnation };
        let (rewind, committed) = match resumed {
            Resumed::Here => (None, None),
            Resumed::Committed { pass, steps } => (None, Some((pass, steps))),
            Resumed::Rewound(cursor) => (Some(cursor), None),
        };
        let (id, incarnation) = (reader.id.clone(), reader.incarnation);
        self.record(Fact::ReaderRenewed { reader: id, incarnation, rewind }, out);
        if let Some((pass, steps)) = committed {
            self.commit_until(&reader.id, pass, steps, out);
        }
        for trainer in old {
            tell_trainer(trainer, ToTrainer::Refused(fenced.clone()), out);
        }
        self.groups.insert(reader.id.clone(), Group::new(now));
        Ok(())
    }

    /// Where a reader goes on that has a checkpoint.
    fn resume_at(
        &self,
        id: &ReaderId,
        state: &ReaderState,
        resume: Option<Cursor>,
    ) -> Result<Resumed, StreamRefusal> {
        let Some(cursor) = resume.filter(|cursor| Some(*cursor) != state.cursor()) else {
            return Ok(Resumed::Here);
        };
        let Cursor { pass, step, .. } = cursor;
        let unknown = || StreamRefusal::UnknownPlace { reader: id.clone(), pass, step };
        let current = state.cursor().ok_or_else(unknown)?;
        if cursor.seed != current.seed || step > cursor.pass(state.settings()).steps() {
            return Err(unknown());
        }
        if self.state.frees() {
            // The end of the pass before is the beginning of the current one.
            let is_end = step == cursor.pass(state.settings()).steps();
            if pass.checked_add(1) == Some(current.pass)
                && cursor.horizon == current.base
                && is_end
                && current.step == 0
            {
                return Ok(Resumed::Here);
            }
            // Steps that the run has done and the stream was not told of are committed now.
            let later = cursor.at(current.step) == current && step > current.step;
            let ahead = state.passes_ahead().any(|ahead| ahead == cursor.at(0));
            return match later || ahead {
                true => Ok(Resumed::Committed { pass, steps: step }),
                false => Err(StreamRefusal::Freed { pass, step }),
            };
        }
        match state.sealed(pass) == Some((cursor.base, cursor.horizon)) {
            true => Ok(Resumed::Rewound(cursor)),
            false => Err(unknown()),
        }
    }

    pub(super) fn on_reader_closed(&mut self, now: Time, reader: &ReaderLife, out: &mut StreamOutbox) {
        let message = match self.check_reader(reader) {
            Ok(()) => {
                self.finish_reader(&reader.id, ReaderEnding::Closed, out);
                self.groups.insert(reader.id.clone(), Group::new(now));
                ToReader::Closed
            }
            Err(StreamRefusal::ReaderClosed { .. }) => ToReader::Closed,
            Err(refusal) => ToReader::Refused(refusal),
        };
        out.push(StreamCommand::TellReader { reader: reader.clone(), message });
    }

    pub(super) fn release_reader(&mut self, now: Time, reader: &ReaderId, out: &mut StreamOutbox) {
        let Some(state) = self.state.reader(reader) else { return };
        if !state.keeps_samples() {
            return;
        }
        self.finish_reader(reader, ReaderEnding::Released, out);
        self.groups.insert(reader.clone(), Group::new(now));
        out.push(StreamCommand::Report(StreamReport::ReaderReleased { reader: reader.clone() }));
    }

    /// Records that a reader needs no more samples, and tells its trainers.
    pub(super) fn finish_reader(&mut self, reader: &ReaderId, ending: ReaderEnding, out: &mut StreamOutbox) {
        self.record(Fact::ReaderFinished { reader: reader.clone(), ending }, out);
        // What only this reader kept waits for the next reader, if it was the last one.
        self.loose.extend(self.state.uploads().iter().map(|upload| upload.first).collect::<Vec<_>>());
        for trainer in self.lives_of(reader) {
            tell_trainer(trainer, ToTrainer::Finished(ending), out);
        }
    }
}

/// Where a reader goes on.
enum Resumed {
    /// After the last committed step.
    Here,
    /// After this many steps of a pass, which are committed now.
    Committed { pass: u64, steps: u64 },
    /// Elsewhere.
    Rewound(Cursor),
}
