//! Datasets of a list whose keys other nodes of a shared store have: described by those nodes, counted here.
//!
//! ```text
//!  take_datasets ──▶ NodeRequest::Describe ──▶ shell ──▶ the node that has the dataset
//!       ▲                                                    │ names, types and shapes of its tensors
//!       └── on_described ◀───────────────────────────────────┘ or the reason for which it is not known
//! ```
//! One dataset of a stream is asked for at a time: they count in the order of the list. Samples stay where they are;
//! readers fetch them from there.

use super::super::effects::Effects;
use super::super::keyspace::Keyspace;
use super::uploads::{FoundTensor, META, key, tensor_key};
use bytes::Bytes;
use phalanx_streams::StreamWait;
use phalanx_types::Time;

/// What a node of a shared store is asked by another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeRequest {
    /// To describe a dataset, when all of it is there.
    Describe {
        /// The stream that is going to count it.
        stream: Bytes,
        /// What its keys begin with.
        base: Bytes,
        /// The part of the store that has it.
        part: u16,
    },
    /// To delete keys: no reader will use them again.
    Delete {
        /// The part of the store that has them.
        part: u16,
        /// The keys.
        keys: Vec<Bytes>,
    },
}

/// The first dataset of a list, if another node has it.
#[derive(Debug)]
pub(super) struct Lookup {
    base: Bytes,
    answer: Option<Vec<FoundTensor>>,
    /// Why it is not known yet, once something else than patience is needed.
    why: Option<StreamWait>,
}

impl Keyspace {
    /// The part of a shared store that has a dataset, if it is another node's.
    pub(super) fn part_elsewhere(&self, base: &Bytes) -> Option<u16> {
        let meta = key(base, META);
        let shards = self.shards.as_ref().filter(|shards| !shards.is_own_part(&meta))?;
        Some(shards.part_of(&meta))
    }

    /// The tensors of a dataset that another node has; asks for them if that was not done.
    pub(super) fn description(
        &mut self,
        name: &Bytes,
        base: &Bytes,
        part: u16,
        out: &mut Effects,
    ) -> Option<Vec<FoundTensor>> {
        let entry = self.streams.entries.get_mut(name)?;
        if let Some(lookup) = entry.lookup.as_ref().filter(|lookup| lookup.base == *base) {
            return lookup.answer.clone();
        }
        entry.lookup = Some(Lookup { base: base.clone(), answer: None, why: None });
        out.requests.push(NodeRequest::Describe { stream: name.clone(), base: base.clone(), part });
        None
    }

    /// Whether a stream still waits for the description of a dataset.
    pub fn wants_description(&self, stream: &Bytes, base: &Bytes) -> bool {
        let lookup = self.streams.entries.get(stream).and_then(|entry| entry.lookup.as_ref());
        lookup.is_some_and(|lookup| lookup.base == *base && lookup.answer.is_none())
    }

    /// Another node has described a dataset.
    pub(crate) fn on_described(
        &mut self,
        now: Time,
        stream: &Bytes,
        base: &Bytes,
        tensors: Vec<FoundTensor>,
        out: &mut Effects,
    ) {
        let entry = self.streams.entries.get_mut(stream);
        let lookup = entry.and_then(|entry| entry.lookup.as_mut()).filter(|lookup| lookup.base == *base);
        let Some(lookup) = lookup else { return };
        (lookup.answer, lookup.why) = (Some(tensors), None);
        self.settle_streams(now, out);
        self.changed(now, stream, out);
        self.serve_waiting(now, out);
        self.database.drain(out);
    }

    /// Another node has not described a dataset so far.
    pub(crate) fn on_undescribed(
        &mut self,
        now: Time,
        stream: &Bytes,
        base: &Bytes,
        why: StreamWait,
        out: &mut Effects,
    ) {
        let entry = self.streams.entries.get_mut(stream);
        let lookup = entry.and_then(|entry| entry.lookup.as_mut()).filter(|lookup| lookup.base == *base);
        if let Some(lookup) = lookup.filter(|lookup| lookup.why.as_ref() != Some(&why)) {
            lookup.why = Some(why);
            self.changed(now, stream, out);
        }
    }

    /// Why the list of a stream does not go on, if that is because of its next dataset.
    pub(super) fn list_wait(&self, name: &Bytes) -> Option<StreamWait> {
        let entry = self.streams.entries.get(name).filter(|entry| !entry.list_held)?;
        let base = entry.pending.front()?;
        match entry.lookup.as_ref().filter(|lookup| lookup.base == *base) {
            Some(lookup) => lookup.why.clone(),
            None => Some(StreamWait::DatasetIncomplete { dataset: base.escape_ascii().to_string() }),
        }
    }

    /// Deletes a dataset that another node has.
    pub(super) fn drop_elsewhere(&self, base: &Bytes, names: &[String], part: u16, out: &mut Effects) {
        let tensors = names.iter().map(|name| tensor_key(base, name));
        let keys = tensors.chain([key(base, META)]).collect();
        out.requests.push(NodeRequest::Delete { part, keys });
    }
}
