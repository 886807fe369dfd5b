//! When a pass begins, with which samples, and when a reader has finished.

use super::{StreamCore, StreamOutbox};
use crate::bugs::{StreamBug, planted};
use crate::command::{StreamCommand, StreamReport};
use crate::fact::{Fact, ReaderEnding};
use crate::settings::ReadMode;
use crate::state::ReaderState;
use phalanx_types::ReaderId;

/// What follows for a reader whose trainers want a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Seal {
        pass: u64,
        base: u64,
        horizon: u64,
    },
    Finish(ReaderEnding),
    /// So many samples have arrived, so many are needed.
    Samples {
        arrived: u64,
        needed: u64,
    },
    NewSamples {
        arrived: u64,
        needed: u64,
    },
    EndOfStream,
}

impl StreamCore {
    /// Begins the next pass of every reader that has trainers and no steps left; false if none could.
    pub(super) fn begin_passes(&mut self, out: &mut StreamOutbox) -> bool {
        let mut changed = false;
        for reader in self.idle_readers() {
            let Some(state) = self.state.reader(&reader) else { continue };
            let told = self
                .groups
                .get(&reader)
                .is_some_and(|group| group.members.values().any(|m| m.told.is_some()));
            if told && planted(StreamBug::ForgetsToWake) {
                continue;
            }
            match self.next_pass(state) {
                Next::Seal { pass, base, horizon } => {
                    self.seal(&reader, pass, base, horizon, out);
                    changed = true;
                }
                // Steps of the last pass may be repeated until they are committed.
                Next::Finish(_) if state.open_pass().is_some() => {}
                Next::Finish(ending) => {
                    self.finish_reader(&reader, ending, out);
                    changed = true;
                }
                Next::Samples { .. } | Next::NewSamples { .. } | Next::EndOfStream => {}
            }
        }
        changed
    }

    /// The readers that have trainers but no step to take.
    pub(super) fn idle_readers(&self) -> Vec<ReaderId> {
        let waits = |(id, state): &(&ReaderId, &ReaderState)| {
            state.ending().is_none()
                && self.groups.get(*id).is_some_and(|group| {
                    let wanted = state.last_sealed().map_or(0, |cursor| cursor.pass + 1);
                    let ahead = group.wants_pass == Some(wanted) && state.may_seal_ahead();
                    !group.members.is_empty() && (state.open_pass().is_none() || ahead)
                })
        };
        self.state.readers().iter().filter(waits).map(|(id, _)| id.clone()).collect()
    }

    fn seal(&mut self, reader: &ReaderId, pass: u64, base: u64, horizon: u64, out: &mut StreamOutbox) {
        let ahead = self.state.reader(reader).is_some_and(|state| state.open_pass().is_some());
        self.record(Fact::PassSealed { reader: reader.clone(), pass, base, horizon }, out);
        if ahead {
            return;
        }
        if let Some(group) = self.groups.get_mut(reader) {
            group.begin_pass();
        }
        self.assign(reader, out);
    }

    pub(super) fn next_pass(&self, reader: &ReaderState) -> Next {
        let settings = reader.settings();
        let pass = reader.last_sealed().map_or(0, |cursor| cursor.pass + 1);
        if settings.passes.is_some_and(|passes| pass >= passes) {
            return Next::Finish(ReaderEnding::PassesDone);
        }
        let sealed = reader.sealed(pass).filter(|_| !planted(StreamBug::SealsAnewAfterRewind));
        if let Some((base, horizon)) = sealed {
            return Next::Seal { pass, base, horizon };
        }
        let (arrived, start) = (self.state.uploads().arrived(), reader.start());
        let ended = self.state.has_ended();
        let used = reader.last_sealed().map_or(start, |cursor| cursor.horizon);
        match settings.mode {
            ReadMode::Static if !ended => Next::EndOfStream,
            ReadMode::Static => self.whole(reader, pass, 0, 0),
            ReadMode::Grow { min_samples, new_samples } => self.whole(reader, pass, min_samples, new_samples),
            ReadMode::Reservoir { min_samples, .. } => self.whole(reader, pass, min_samples, 0),
            ReadMode::Once { window } => {
                let there = arrived.saturating_sub(used);
                match there {
                    _ if there >= window => Next::Seal { pass, base: used, horizon: used + window },
                    0 if ended => Next::Finish(ReaderEnding::StreamUsed),
                    _ if ended => Next::Seal { pass, base: used, horizon: arrived },
                    _ => Next::Samples { arrived: there, needed: window },
                }
            }
        }
    }

    /// A pass over all samples that have arrived.
    fn whole(&self, reader: &ReaderState, pass: u64, min_samples: u64, new_samples: u64) -> Next {
        let uploads = self.state.uploads();
        let least = reader.settings().least_samples();
        let there = uploads.arrived().saturating_sub(reader.start());
        let needed = if pass == 0 { min_samples.max(least) } else { least };
        let seal = Next::Seal { pass, base: reader.start(), horizon: uploads.arrived() };
        if self.state.has_ended() {
            return match there < least {
                true => Next::Finish(ReaderEnding::TooFewSamples { arrived: there }),
                false => seal,
            };
        }
        if there < needed {
            return Next::Samples { arrived: there, needed };
        }
        match reader.cursor().map(|cursor| uploads.arrived().saturating_sub(cursor.horizon)) {
            Some(new) if new < new_samples => Next::NewSamples { arrived: new, needed: new_samples },
            _ => seal,
        }
    }

    /// Lets readers that wait begin with what there is, since the budget holds no more; false if none could.
    pub(super) fn cut_windows(&mut self, out: &mut StreamOutbox) -> bool {
        let mut changed = false;
        for reader in self.idle_readers() {
            let Some(state) = self.state.reader(&reader) else { continue };
            let Next::Samples { arrived, needed } = self.next_pass(state) else { continue };
            if arrived < state.settings().least_samples() {
                continue;
            }
            let pass = state.last_sealed().map_or(0, |cursor| cursor.pass + 1);
            let batch = state.settings().batch;
            let (base, samples) = match state.settings().mode {
                // Whole batches, if there is one.
                ReadMode::Once { .. } if arrived >= batch => (state.last_sealed(), arrived / batch * batch),
                ReadMode::Once { .. } => (state.last_sealed(), arrived),
                ReadMode::Static | ReadMode::Grow { .. } | ReadMode::Reservoir { .. } => (None, arrived),
            };
            let base = base.map_or(state.start(), |cursor| cursor.horizon);
            self.seal(&reader, pass, base, base + samples, out);
            let cut = StreamReport::WindowCut { reader, pass, samples, window: needed };
            out.push(StreamCommand::Report(cut));
            changed = true;
        }
        changed
    }
}
