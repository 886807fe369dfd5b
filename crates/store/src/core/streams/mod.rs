//! Streams inside the keyspace: one [`StreamCore`] for each, whose commands become effects.
//!
//! ```text
//!  PHALANX.STREAM … ──▶ commands/streams ──▶ feed ──▶ StreamCore ──▶ Record       a change
//!  RPUSH name …     ──▶ datasets ─────────────┘                  ├──▶ Tell…       replies to clients that wait
//!                       elsewhere: datasets of other nodes      │
//!  connection lost  ──▶ bonds ────────────────┘                  ├──▶ Free, Shrink, Discard: tensors change
//!                                                                └──▶ Report      a line of the log
//! ```
//! An upload is a dataset as SmartRedis lays it: tensors `base.field` and the hash `base.meta`. So Redis tools see
//! what a stream holds, and datasets that a program appends to the list of the stream's name are uploads.

mod bonds;
mod datasets;
mod elsewhere;
mod feed;
mod record;
mod rows;
mod show;
mod uploads;
mod waiters;

pub(crate) use bonds::run_trainer;
use elsewhere::Lookup;
pub use elsewhere::NodeRequest;
pub use record::StreamRecordError;
pub(crate) use rows::{MOST_ROWS, rows_of};
pub(crate) use uploads::{Flight, FoundTensor, decode_names};
pub(crate) use waiters::{StreamWaiter, Wants, json, said};

use bytes::Bytes;
use phalanx_streams::{
    ProducerLife, Retention, StreamCore, StreamField, StreamOutbox, StreamSettings, StreamState, TrainerLife,
};
use phalanx_types::{Incarnation, ProducerId, ReaderId, Time, UploadSequence};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use uploads::StoredUpload;
use waiters::StreamWaiters;

use super::session::ClientId;

/// The most streams of a store.
pub(crate) const MAX_STREAMS: usize = 4096;
/// The longest name of a stream or a tensor of it.
pub(crate) const MAX_NAME: usize = 256;
/// The most tensors of an upload.
pub(crate) const MAX_FIELDS: usize = 64;
/// How many reports are shown.
const REPORTS: usize = 32;

/// The producer that stands for the list of a stream's name.
pub(crate) fn list_producer() -> ProducerLife {
    let id = ProducerId::new("list").expect("the letters are allowed");
    ProducerLife { id, incarnation: Incarnation(1) }
}

/// Settings of a stream that is made without any. Trainers are lost with their connections only.
pub(crate) fn default_settings(retention: Retention) -> StreamSettings {
    StreamSettings { retention, trainer_silence: None, ..StreamSettings::default() }
}

/// All streams, and the clients that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) entries: BTreeMap<Bytes, StreamEntry>,
    pub(crate) waiters: StreamWaiters,
    /// Which streams a client has to do with.
    bonds: BTreeMap<ClientId, BTreeSet<Bytes>>,
    /// Clients whose connections have ended.
    departed: Vec<(ClientId, BTreeSet<Bytes>)>,
    /// Lists that got elements, and the elements.
    appended: Vec<(Bytes, Vec<Bytes>)>,
    /// When the core of a stream wants to be told the time.
    ticks: BTreeMap<Bytes, Time>,
    /// Grows with every change of any stream.
    pub(crate) version: u64,
    /// Streams were rebuilt from records and have no core yet.
    asleep: bool,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct StreamEntry {
    machine: Machine,
    pub(crate) fields: Vec<StreamField>,
    /// Where the samples of uploads lie that count.
    stored: BTreeMap<UploadSequence, StoredUpload>,
    /// The same, by what their keys begin with.
    bases: BTreeSet<Bytes>,
    /// Uploads that were begun.
    flights: BTreeMap<(ProducerLife, u64), Flight>,
    /// Datasets of the list that do not count yet, in order.
    pending: VecDeque<Bytes>,
    /// The first of them waits for room.
    list_held: bool,
    /// The first of them, if another node has it.
    lookup: Option<Lookup>,
    producers: BTreeMap<ProducerLife, ClientId>,
    trainers: BTreeMap<TrainerLife, ClientId>,
    /// Processes of training runs.
    runs: BTreeMap<ReaderId, BTreeSet<ClientId>>,
    pub(crate) version: u64,
    reports: VecDeque<(Time, String)>,
    first_upload: Option<Time>,
    last_upload: Option<Time>,
    arrived_since: u64,
}

/// A stream that is rebuilt has no core before all records were applied.
#[derive(Debug)]
enum Machine {
    Asleep(StreamState),
    Awake(StreamCore),
}

impl StreamEntry {
    fn new(machine: Machine) -> Self {
        Self {
            machine,
            fields: Vec::new(),
            stored: BTreeMap::new(),
            bases: BTreeSet::new(),
            flights: BTreeMap::new(),
            pending: VecDeque::new(),
            list_held: false,
            lookup: None,
            producers: BTreeMap::new(),
            trainers: BTreeMap::new(),
            runs: BTreeMap::new(),
            version: 0,
            reports: VecDeque::new(),
            first_upload: None,
            last_upload: None,
            arrived_since: 0,
        }
    }

    /// An empty stream.
    pub(crate) fn created(now: Time, settings: StreamSettings) -> Self {
        // Nothing follows from an empty state.
        let core = StreamCore::new(now, StreamState::new(settings), &mut StreamOutbox::default());
        Self::new(Machine::Awake(core))
    }

    pub(crate) fn state(&self) -> &StreamState {
        match &self.machine {
            Machine::Asleep(state) => state,
            Machine::Awake(core) => core.state(),
        }
    }

    /// The core; every entry has one after [`super::Keyspace::wake_streams`].
    pub(crate) fn core(&self) -> Option<&StreamCore> {
        match &self.machine {
            Machine::Asleep(_) => None,
            Machine::Awake(core) => Some(core),
        }
    }

    #[cfg(test)]
    pub(crate) fn stored_at(&self, sequence: UploadSequence) -> Option<&StoredUpload> {
        self.stored.get(&sequence)
    }

    /// What the keys of an upload begin with.
    pub(crate) fn base_of(&self, sequence: UploadSequence) -> Option<Bytes> {
        self.stored.get(&sequence).map(|upload| upload.base.clone())
    }

    fn core_mut(&mut self) -> Option<&mut StreamCore> {
        match &mut self.machine {
            Machine::Asleep(_) => None,
            Machine::Awake(core) => Some(core),
        }
    }
}

impl Streams {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When something is to be done by time.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        if !self.departed.is_empty() {
            return Some(Time::ZERO);
        }
        self.ticks.values().copied().chain(self.waiters.next_deadline()).min()
    }

    /// Notes that a list got elements, if it is a stream, too.
    pub(crate) fn appended(&mut self, list: &Bytes, items: &[Bytes]) {
        if self.entries.contains_key(list) {
            self.appended.push((list.clone(), items.to_vec()));
        }
    }
}
