//! What must hold after every event, after every restart, and at the end.

use super::readers::reader_id;
use super::world::World;
use phalanx_streams::{ReadMode, ReaderEnding, StreamState, StreamWait, WaitingClient};
use phalanx_types::ReaderId;

impl World {
    /// Every reason to wait is true.
    pub(super) fn check_waits(&mut self) {
        let Some(core) = &self.store.core else { return };
        for waiting in core.waits(self.now) {
            let reader = match &waiting.waiter {
                WaitingClient::Producer(..) => None,
                WaitingClient::Trainer(trainer) => Some(trainer.reader.id.clone()),
            };
            if !self.is_true(&waiting.reason, reader.as_ref()) {
                return self
                    .violate(format!("{:?} waits without a reason: {}", waiting.waiter, waiting.reason));
            }
        }
    }

    fn is_true(&self, reason: &StreamWait, reader: Option<&ReaderId>) -> bool {
        let Some(core) = &self.store.core else { return true };
        let state = core.state();
        let reader = reader.and_then(|reader| state.readers().get(reader));
        let unclosed = || state.producers().values().any(|producer| !producer.is_closed());
        match reason {
            StreamWait::Samples { arrived, needed, .. } | StreamWait::NewSamples { arrived, needed, .. } => {
                reader.is_some() && arrived < needed && !state.has_ended()
            }
            StreamWait::EndOfStream { .. } => {
                reader.is_some_and(|reader| reader.settings().mode == ReadMode::Static) && !state.has_ended()
            }
            StreamWait::ProducerLost { .. } => {
                let starved = |reader: &phalanx_streams::ReaderState| match reader.settings().mode {
                    ReadMode::Once { window } => {
                        let used = reader.cursor().map_or(reader.start(), |cursor| cursor.horizon);
                        state.uploads().arrived() - used < window
                    }
                    ReadMode::Static | ReadMode::Grow { .. } | ReadMode::Reservoir { .. } => true,
                };
                reader.is_some_and(starved) && unclosed() && !state.has_ended()
            }
            StreamWait::Budget { used, budget, .. } | StreamWait::ReaderAway { used, budget, .. } => {
                reader.is_none() && used <= budget && !state.readers().is_empty()
            }
            StreamWait::NoReader { .. } => state.readers().values().all(|reader| reader.ending().is_some()),
            StreamWait::OtherTrainers { pass, step, busy } => {
                let here = reader.and_then(|reader| reader.cursor());
                busy.count > 0 && here.is_some_and(|cursor| (cursor.pass, cursor.step) == (*pass, *step))
            }
            // Only runs that share their batches out themselves wait for that.
            StreamWait::Uncommitted { .. } => false,
            // A stream does not know the nodes of its store: the keyspace says so.
            StreamWait::DatasetIncomplete { .. } | StreamWait::DatasetNode { .. } => false,
            StreamWait::NextStep { pass, step } => {
                let here = reader.and_then(|reader| reader.cursor());
                here.is_some_and(|cursor| (cursor.pass, cursor.step) == (*pass, *step))
            }
        }
    }

    /// A recovered state has all that a client was told, however it was recovered.
    pub(super) fn check_recovered(&mut self, state: &StreamState) {
        let mut replayed = StreamState::new(self.plan.settings.clone());
        for fact in &self.store.journal {
            if let Err(error) = replayed.apply(fact) {
                return self.violate(format!("the journal does not fit: {error}"));
            }
        }
        if replayed != *state {
            return self.violate("a snapshot with later facts differs from the whole journal".to_owned());
        }
        for (producer, number) in &self.audit.acknowledged {
            if !state.producers().get(producer).is_some_and(|known| known.has(*number)) {
                let what = format!("upload {number} of {producer} was acknowledged and is forgotten");
                return self.violate(what);
            }
        }
        for reader in 0..self.plan.readers.len() {
            let Some((incarnation, cursor)) = self.audit.newest_told(reader) else { continue };
            let known = state.readers().get(&reader_id(reader));
            let kept = known.is_some_and(|known| {
                let place = |cursor: phalanx_streams::Cursor| (cursor.pass, cursor.step);
                known.incarnation() > incarnation
                    || known.incarnation() == incarnation && known.cursor().map(place) >= cursor.map(place)
            });
            if !kept {
                return self.violate(format!("run-{reader} was at {cursor:?}, which is forgotten"));
            }
        }
    }

    /// Whether all that was to happen has happened.
    pub(super) fn is_over(&self) -> bool {
        let Some(core) = &self.store.core else { return false };
        let state = core.state();
        let ended = |reader: usize| {
            state.readers().get(&reader_id(reader)).is_some_and(|reader| reader.ending().is_some())
        };
        self.store.durable == self.store.journal.len()
            && state.has_ended()
            && (0..self.plan.readers.len()).all(ended)
    }

    pub(super) fn what_is_stuck(&self) -> String {
        let Some(core) = &self.store.core else { return "the store does not come back".to_owned() };
        let waits: Vec<String> =
            core.waits(self.now).iter().map(|w| format!("{:?} {}", w.waiter, w.reason)).collect();
        let readers: Vec<_> =
            core.state().readers().iter().map(|(id, r)| (id, r.cursor(), r.ending())).collect();
        let producers: Vec<_> =
            self.producers.iter().map(|process| (process.life.to_string(), process.phase)).collect();
        let ended = core.state().has_ended();
        format!("it does not end: ended {ended}, {waits:?}, {readers:?}, {producers:?}")
    }

    /// Judges the end.
    pub(super) fn verdict(&mut self) {
        if !self.is_over() {
            let what = self.what_is_stuck();
            return self.violate(what);
        }
        let total: u64 =
            self.plan.producers.iter().flat_map(|p| &p.uploads).map(|(samples, _)| u64::from(*samples)).sum();
        let arrived = self.audit.books.arrived.len() as u64;
        if arrived != total && !self.audit.sealed_early {
            return self.violate(format!("{arrived} of {total} samples have arrived"));
        }
        for (index, book) in &self.audit.books.readers {
            let plan = &self.plan.readers[*index];
            let state =
                self.store.core.as_ref().and_then(|core| core.state().readers().get(&reader_id(*index)));
            let start = state.map_or(0, |state| state.start());
            let passes = book.cursor.map_or(0, |cursor| cursor.pass + 1);
            let right = match book.ending {
                Some(ReaderEnding::PassesDone) => plan.settings.passes == Some(passes),
                Some(ReaderEnding::StreamUsed) => book.rewound || book.uses == arrived - start,
                Some(ReaderEnding::TooFewSamples { .. }) => arrived - start < plan.settings.batch,
                Some(ReaderEnding::Closed) => plan.close_after.is_some(),
                Some(ReaderEnding::Released) => self.plan.settings.release_readers_after.is_some(),
                None => false,
            };
            if !right {
                let what = format!(
                    "run-{index} ends as {:?} after {passes} passes and {} uses",
                    book.ending, book.uses
                );
                return self.violate(what);
            }
        }
    }
}
