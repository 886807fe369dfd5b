//! Stores and their streams, as the dashboard shows them.
//!
//! A thread for each store waits in it: the store tells when a stream changes. It does not tell of its memory, so that
//! is read at least every [`REFRESH`].

use crate::hub::Hub;
use crate::runs::lock;
use phalanx_store_client::{Store, StoreError, StoreOptions, StoreSummary, StreamError, StreamInfo};
use phalanx_streams::{ProducerPresence, StreamOverview};
use phalanx_types::Time;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// How old the numbers of a store's memory and clients may be.
const REFRESH: Duration = Duration::from_secs(5);
/// When a store that cannot be reached is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// Changes are read no faster than viewers are told of them.
const SHORTEST: Duration = Duration::from_millis(250);
/// The most producers, readers, trainers, waits and reports of a stream that are shown.
const SHOWN: usize = 64;

/// A store that is to be shown.
#[derive(Debug, Clone)]
pub struct StoreTarget {
    /// As `phalanx store --at` takes it.
    pub address: String,
    pub password: Option<String>,
}

/// A store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct StoreInfo {
    pub(crate) address: String,
    /// Why it cannot be looked at, if it cannot.
    pub(crate) why: Option<String>,
    pub(crate) summary: Option<StoreSummary>,
    pub(crate) streams: Vec<StreamRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct StreamRow {
    name: String,
    ended: bool,
    samples: u64,
    uploads: u64,
    samples_per_s: f64,
    stored_bytes: u64,
    budget_bytes: Option<u64>,
    /// Datasets of the list of this name that do not count yet.
    pending_datasets: u64,
    producers: Vec<ProducerRow>,
    readers: Vec<ReaderRow>,
    waits: Vec<WaitRow>,
    /// What happened last, the newest at the end.
    reports: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct ProducerRow {
    id: String,
    state: &'static str,
    uploads: u64,
    /// Uploads that wait for room.
    held: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct ReaderRow {
    id: String,
    /// `None` before its first pass.
    pass: Option<u64>,
    step: u64,
    steps: u64,
    /// Samples that have arrived and were not used.
    lag: u64,
    ended: bool,
    trainers: Vec<TrainerRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct TrainerRow {
    id: String,
    rank: u32,
    /// Steps that are done and not committed.
    uncommitted: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct WaitRow {
    client: String,
    why: String,
}

/// All stores that are followed.
#[derive(Debug)]
pub(crate) struct Stores {
    hub: Arc<Hub>,
    followed: Mutex<BTreeMap<String, Followed>>,
}

#[derive(Debug)]
struct Followed {
    info: StoreInfo,
    /// Ends the thread between two attempts.
    _stop: Sender<()>,
}

impl Stores {
    pub(crate) fn new(hub: Arc<Hub>) -> Arc<Self> {
        Arc::new(Self { hub, followed: Mutex::default() })
    }

    /// What is known of all stores, by address.
    pub(crate) fn info(&self) -> Vec<StoreInfo> {
        lock(&self.followed).values().map(|followed| followed.info.clone()).collect()
    }

    /// Follows a store from now on; one that is followed already is not followed twice.
    pub(crate) fn follow(self: &Arc<Self>, target: StoreTarget) {
        let address = target.address.clone();
        let mut followed = lock(&self.followed);
        if followed.contains_key(&address) {
            return;
        }
        let (stop, stopped) = channel();
        let why = Some("not reached yet".to_owned());
        let info = StoreInfo { address: address.clone(), why, summary: None, streams: Vec::new() };
        followed.insert(address, Followed { info, _stop: stop });
        let stores = Arc::downgrade(self);
        std::thread::spawn(move || follow(&target, &stores, &stopped));
    }

    fn tell(&self, info: StoreInfo) {
        let mut followed = lock(&self.followed);
        let Some(known) = followed.get_mut(&info.address) else { return };
        if known.info != info {
            known.info = info;
            drop(followed);
            self.hub.stores_changed();
        }
    }
}

/// Looks at a store until there is no dashboard any more.
fn follow(target: &StoreTarget, stores: &Weak<Stores>, stopped: &Receiver<()>) {
    loop {
        let error = look(target, stores, stopped);
        let (Err(error), Some(stores)) = (error, stores.upgrade()) else { return };
        let why = Some(phalanx_records::with_causes(&error));
        let address = target.address.clone();
        stores.tell(StoreInfo { address, why, summary: None, streams: Vec::new() });
        drop(stores);
        if ended(stopped, RETRY) {
            return;
        }
    }
}

/// Whether the dashboard ended within a time.
fn ended(stopped: &Receiver<()>, within: Duration) -> bool {
    stopped.recv_timeout(within) == Err(RecvTimeoutError::Disconnected)
}

/// Tells what is new of a store until it is lost.
fn look(target: &StoreTarget, stores: &Weak<Stores>, stopped: &Receiver<()>) -> Result<(), StreamError> {
    let options = StoreOptions { password: target.password.clone(), ..StoreOptions::default() };
    let store = Store::connect(&target.address, options)?;
    let mut watch = store.watch_streams(None)?;
    let mut rates = Rates::default();
    let mut streams = Vec::new();
    loop {
        let pause = match watch.next(REFRESH) {
            Ok(Some(infos)) => {
                streams = infos.iter().map(|info| row(info, rates.of(info))).collect();
                SHORTEST
            }
            Ok(None) => SHORTEST,
            // A plain Redis has no streams, and tells no changes.
            Err(StreamError::Store(StoreError::Refused { .. })) => REFRESH,
            Err(error) => return Err(error),
        };
        let summary = Some(store.summary()?);
        let Some(stores) = stores.upgrade() else { return Ok(()) };
        let streams = streams.clone();
        stores.tell(StoreInfo { address: target.address.clone(), why: None, summary, streams });
        drop(stores);
        if ended(stopped, pause) {
            return Ok(());
        }
    }
}

/// How fast samples arrive, from one look to the next.
#[derive(Debug, Default)]
struct Rates {
    before: BTreeMap<String, (Time, u64)>,
}

impl Rates {
    fn of(&mut self, info: &StreamInfo) -> f64 {
        let before = self.before.insert(info.name.clone(), (info.at, info.stream.samples));
        info.samples_per_second(before)
    }
}

fn row(info: &StreamInfo, samples_per_s: f64) -> StreamRow {
    let StreamOverview { settings, ended, samples, uploads, stored, producers, readers, waits, .. } =
        &info.stream;
    let producers = producers.iter().take(SHOWN).map(|producer| ProducerRow {
        id: producer.id.to_string(),
        state: match producer.presence {
            ProducerPresence::Open { .. } => "open",
            ProducerPresence::Lost { .. } => "lost",
            ProducerPresence::Closed => "closed",
        },
        uploads: producer.next_upload,
        held: producer.held,
    });
    let readers = readers.iter().take(SHOWN).map(|reader| {
        let step = reader.cursor.map_or(0, |cursor| cursor.step);
        let trainers = reader.trainers.iter().take(SHOWN).map(|trainer| TrainerRow {
            id: trainer.id.to_string(),
            rank: trainer.rank,
            uncommitted: trainer.done.saturating_sub(step),
        });
        ReaderRow {
            id: reader.id.to_string(),
            pass: reader.cursor.map(|cursor| cursor.pass),
            step,
            steps: reader.steps,
            lag: reader.lag,
            ended: reader.ending.is_some(),
            trainers: trainers.collect(),
        }
    });
    let waits = waits.iter().take(SHOWN);
    let reports = info.reports.iter().rev().take(SHOWN).rev();
    StreamRow {
        name: info.name.clone(),
        ended: *ended,
        samples: *samples,
        uploads: *uploads,
        samples_per_s,
        stored_bytes: stored.0,
        budget_bytes: settings.budget.map(|budget| budget.0),
        pending_datasets: info.pending_datasets,
        producers: producers.collect(),
        readers: readers.collect(),
        waits: waits
            .map(|wait| WaitRow { client: wait.waiter.to_string(), why: wait.reason.to_string() })
            .collect(),
        reports: reports.map(|(_, text)| text.clone()).collect(),
    }
}
