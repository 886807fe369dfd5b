//! Samples are freed when no reader will use them again.

use super::{StreamCore, StreamOutbox, tell_producer};
use crate::bugs::{StreamBug, planted};
use crate::command::{StreamCommand, ToProducer};
use crate::fact::Fact;
use crate::refusal::StreamRefusal;
use crate::state::ReaderState;
use phalanx_types::UploadSequence;
use std::collections::{BTreeMap, BTreeSet};

impl StreamCore {
    /// Frees what no reader needs, and shrinks uploads of which reservoirs keep less than half.
    pub(super) fn free_loose(&mut self, out: &mut StreamOutbox) {
        if !self.state.frees() {
            self.loose.clear();
            return;
        }
        let mut sparse = BTreeSet::new();
        for first in std::mem::take(&mut self.loose) {
            let Some(upload) = self.state.uploads().get(first) else { continue };
            let sequence = upload.sequence;
            let for_one = planted(StreamBug::FreesForOneReader)
                && self.keeping().any(|reader| reader.needs_of(first) == 0);
            if self.state.is_needless(first) || for_one {
                self.record(Fact::UploadFreed { sequence }, out);
                out.push(StreamCommand::FreeUpload { sequence });
            } else if self.uses(first) * 2 <= u64::from(upload.kept) {
                sparse.insert(first);
            }
        }
        self.shrink(&sparse, out);
    }

    /// How many uses of samples of an upload are to come; at least the number of these samples.
    fn uses(&self, first: u64) -> u64 {
        self.keeping().map(|reader| reader.needs_of(first)).sum()
    }

    /// The readers that samples are kept for.
    pub(super) fn keeping(&self) -> impl Iterator<Item = &ReaderState> {
        self.state.readers().values().filter(|reader| reader.keeps_samples())
    }

    /// Drops every sample that no reservoir needs, of those uploads that only reservoirs need.
    fn shrink(&mut self, firsts: &BTreeSet<u64>, out: &mut StreamOutbox) {
        let drawn_only = |first: &u64| {
            self.keeping().all(|reader| reader.reservoir().is_some() || reader.needs_of(*first) == 0)
        };
        let firsts: BTreeSet<u64> = firsts.iter().copied().filter(drawn_only).collect();
        if firsts.is_empty() {
            return;
        }
        let mut keep: BTreeMap<u64, (UploadSequence, BTreeSet<u32>)> = BTreeMap::new();
        for reader in self.keeping() {
            for sample in reader.drawn().iter().chain(reader.reservoir().unwrap_or_default()) {
                let Some(upload) = self.state.uploads().holding(*sample) else { continue };
                if firsts.contains(&upload.first) {
                    let kept = keep.entry(upload.first).or_insert((upload.sequence, BTreeSet::new()));
                    kept.1.extend(u32::try_from(sample - upload.first));
                }
            }
        }
        for (first, (sequence, keep)) in keep {
            let before = self.state.uploads().get(first).map_or(0, |upload| upload.kept as usize);
            if keep.len() < before {
                let keep: Vec<u32> = keep.into_iter().collect();
                self.record(Fact::UploadShrunk { sequence, keep: keep.clone() }, out);
                out.push(StreamCommand::ShrinkUpload { sequence, keep });
            }
        }
    }

    /// Goes on when producers wait for room and readers for samples: drops all that reservoirs do not need, lets
    /// readers begin with what there is, and refuses an upload for which there will never be room. False if nothing
    /// could be done or nothing had to.
    pub(super) fn resolve_full_budget(&mut self, out: &mut StreamOutbox) -> bool {
        if !self.is_stuck() {
            return false;
        }
        let stored = self.state.uploads().stored();
        let all: BTreeSet<u64> = self.state.uploads().iter().map(|upload| upload.first).collect();
        self.shrink(&all, out);
        if self.state.uploads().stored() < stored || self.cut_windows(out) {
            return true;
        }
        let Some(budget) = self.state.settings().budget else { return false };
        let Some(held) = self.held.pop_front() else { return false };
        let refusal = StreamRefusal::Full { used: self.used(), budget, bytes: held.upload.bytes };
        tell_producer(&held.producer, ToProducer::Refused(refusal), out);
        true
    }

    /// Whether producers wait for room, nothing is on its way, and no reader can free anything without new samples.
    fn is_stuck(&self) -> bool {
        if self.held.is_empty() || self.reserved > 0 {
            return false;
        }
        let arrived = self.state.uploads().arrived();
        let mut readers = self.state.readers().iter().filter(|(_, reader)| reader.keeps_samples()).peekable();
        readers.peek().is_some()
            && readers.all(|(id, reader)| {
                let waits = self.groups.get(id).is_some_and(|group| !group.members.is_empty());
                // What the current pass draws from is what the next one would.
                let settled = reader.reservoir().is_some()
                    && reader.cursor().is_some_and(|cursor| cursor.horizon == arrived);
                reader.ending().is_some() || settled || (waits && reader.open_pass().is_none())
            })
    }
}
