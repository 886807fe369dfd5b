//! Samples of a stream in a tensor store, as a source of training data.
//!
//! ```text
//!   run: StreamFeed::connect  waits for the first upload, which says what a sample is
//!   its owner (the driver, or a run in one process): open, then commit whenever a checkpoint is durable
//!   every rank:               attach; pass(n) is answered by a thread that waits in the store: Sealed, Waiting, Finished
//!   the loader of a pass:     PassBatches over the cursor, StreamSource reads the samples
//! ```
//! No rank decides which samples a pass has: all ask the store, which answers all alike.

mod asking;
mod source;

pub use asking::{StreamDelay, StreamPass};
pub use source::{StreamBatches, StreamSource};

use crate::config::{RunConfig, StreamConfig};
use asking::Asking;
use phalanx_collective::HostId;
use phalanx_protocol::SealedPass;
use phalanx_protocol::progress::Place;
use phalanx_records::Blame;
use phalanx_records::run_dir::{RunDir, RunDirError};
use phalanx_store_client::{
    ReadOptions, Store, StoreError, StoreOptions, StreamError, StreamField, StreamReader, StreamSamples,
};
use phalanx_streams::{Cursor, PartialBatch, PassAnswer, ReadMode, ReaderSettings};
use phalanx_types::ReaderId;
use phalanx_wire::train::StreamRef;
use source::FieldPair;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The file of a run directory with the name under which the run reads its stream.
const READER: &str = "stream-reader";
/// How long the store is given to say something that it knows.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one wait in the store lasts. It answers at once when something changes; asking again only shows that it
/// still lives.
const ONE_WAIT: Duration = Duration::from_secs(30);

/// Why samples of a stream cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    #[error("could not reach the store at {address}")]
    Store { address: String, source: Box<StoreError> },
    #[error("could not read stream {stream:?} of the store at {address}")]
    Stream { stream: String, address: String, source: Box<StreamError> },
    #[error("stream {stream:?} has no tensor {name:?}, it has {}", have.join(", "))]
    NoField { stream: String, name: String, have: Vec<String> },
    #[error("the store at {address} can be reached on its own host only, and this node is on another one")]
    OtherHost { address: String },
    #[error("{reader:?} is no name of a run that reads a stream")]
    ReaderName { reader: String },
    #[error("could not write the name under which the run reads its stream")]
    Write(#[source] Box<RunDirError>),
    #[error("this run has not opened stream {stream:?}")]
    NotOpen { stream: String },
}

impl FeedError {
    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Store { .. } | Self::Stream { .. } | Self::Write(_) => Blame::Machine,
            Self::NoField { .. } | Self::OtherHost { .. } | Self::ReaderName { .. } => Blame::Input,
            Self::NotOpen { .. } => Blame::Work,
        }
    }

    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store { source, .. } => {
                source.hint().map(str::to_owned).or_else(|| Some("`phalanx store serve` starts one".to_owned()))
            }
            Self::Stream { source, .. } => source.hint().map(str::to_owned),
            Self::NoField { have, .. } => have.first().map(|first| format!("say for example x = {first:?}")),
            Self::OtherHost { .. } => Some(
                "name the store by an address that all nodes reach: train = { stream = …, store = \"HOST:6780\" }"
                    .to_owned(),
            ),
            Self::ReaderName { .. } | Self::Write(_) | Self::NotOpen { .. } => None,
        }
    }
}

/// A stream that a run trains from. Clones share everything.
#[derive(Debug, Clone)]
pub struct StreamFeed {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: StreamConfig,
    settings: ReaderSettings,
    store: Store,
    fields: FieldPair,
    /// The name under which the run reads.
    reader: OnceLock<ReaderId>,
    /// Held by the process that commits.
    owner: Mutex<Option<StreamReader>>,
    asking: OnceLock<Asking>,
    samples: Arc<OnceLock<StreamSamples>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StreamFeed {
    /// Connects to the store of a run file, and waits for the first upload: it says what a sample is.
    ///
    /// # Errors
    /// The store cannot be reached, or its samples lack a tensor that the run file names.
    pub fn connect(run: &RunConfig, config: &StreamConfig) -> Result<Self, FeedError> {
        let address = config.store.clone();
        let store = Store::connect(&address, StoreOptions::default())
            .map_err(|source| FeedError::Store { address: address.clone(), source: source.into() })?;
        let fields = fields(&store, config)?;
        let find = |name: &str| fields.iter().find(|field| field.name == name).cloned();
        let missing = |name: &str| FeedError::NoField {
            stream: config.stream.clone(),
            name: name.to_owned(),
            have: fields.iter().map(|field| field.name.clone()).collect(),
        };
        let x = find(&config.x).ok_or_else(|| missing(&config.x))?;
        let y = find(&config.y).ok_or_else(|| missing(&config.y))?;
        let shared = Shared {
            settings: reader_settings(run, config),
            config: config.clone(),
            store,
            fields: FieldPair { x, y },
            reader: OnceLock::new(),
            owner: Mutex::default(),
            asking: OnceLock::new(),
            samples: Arc::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The samples, which can be read once the stream was opened or attached to.
    pub fn source(&self) -> StreamSource {
        let Shared { config, fields, samples, .. } = &*self.shared;
        let origin = format!("stream {:?} of the store at {}", config.stream, config.store);
        StreamSource::new(origin, fields.clone(), samples.clone())
    }

    /// The name under which the run reads, once it has one.
    pub fn reader(&self) -> Option<&ReaderId> {
        self.shared.reader.get()
    }

    /// Opens the stream for a run, as the process that will commit. It goes on at a place in the middle of a pass.
    ///
    /// # Errors
    /// The store refuses, or cannot be reached.
    pub fn open(&self, reader: &ReaderId, place: Place) -> Result<(), FeedError> {
        let resume = place.sealed.filter(|_| place.batch > 0).map(|pass| self.cursor(pass).at(place.batch));
        let settings = self.shared.settings.clone();
        let options = ReadOptions { resume, ..ReadOptions::new(reader.clone(), settings) };
        let opened = self.shared.store.read_stream(&self.shared.config.stream, options);
        let opened = opened.map_err(|source| self.failed(source))?;
        self.commit_passes_before(&opened, place)?;
        *lock(&self.shared.owner) = Some(opened);
        // A process opens one run.
        let _same = self.shared.reader.set(reader.clone());
        Ok(())
    }

    /// A run that goes on where a pass begins will repeat no pass before. Its last life may have ended between its
    /// checkpoint and the commit.
    fn commit_passes_before(&self, owner: &StreamReader, place: Place) -> Result<(), FeedError> {
        let Some(pass) = place.pass.checked_sub(1).filter(|_| place.batch == 0) else { return Ok(()) };
        let committed = match owner.pass(pass, Duration::ZERO) {
            Ok(PassAnswer::Sealed(cursor)) => owner.commit(pass, cursor.pass(&self.shared.settings).steps()),
            // The store has forgotten it since it was committed.
            Ok(_) | Err(StreamError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        };
        committed.map_err(|source| self.failed(source))
    }

    /// Opens the stream for a run in a directory, under a name that its later lives have, too.
    ///
    /// # Errors
    /// The name cannot be written, the store refuses, or cannot be reached.
    pub fn open_run(&self, dir: Option<&RunDir>, name: &str, place: Place) -> Result<ReaderId, FeedError> {
        let known = dir.and_then(|dir| std::fs::read_to_string(dir.file(READER)).ok());
        let reader = match known.and_then(|known| ReaderId::new(known.trim()).ok()) {
            Some(reader) => reader,
            None => {
                let reader = new_reader(name)?;
                if let Some(dir) = dir {
                    let written = dir.write(READER, reader.as_str().as_bytes());
                    written.map_err(|error| FeedError::Write(error.into()))?;
                }
                reader
            }
        };
        self.open(&reader, place)?;
        Ok(reader)
    }

    /// Joins the run of this name, as a rank that asks for passes and reads samples.
    ///
    /// # Errors
    /// The run has not opened the stream, or the store cannot be reached.
    pub fn attach(&self, reader: &ReaderId) -> Result<(), FeedError> {
        let stream = &self.shared.config.stream;
        let attached = self.shared.store.attach_stream(stream, reader, PATIENCE);
        let attached = attached.map_err(|source| self.failed(source))?;
        // Attaching again changes nothing.
        let _same = self.shared.samples.set(attached.samples());
        let _same = self.shared.asking.set(Asking::start(attached));
        let _same = self.shared.reader.set(reader.clone());
        Ok(())
    }

    /// What the store says of a pass, at most so long after it was asked.
    ///
    /// # Errors
    /// The store refuses.
    pub fn pass(&self, pass: u64, within: Duration) -> Result<StreamPass, FeedError> {
        let Some(asking) = self.shared.asking.get() else { return Err(self.not_open()) };
        asking.pass(pass, within).map_err(|source| self.failed(source))
    }

    /// A sealed pass as steps of the run.
    pub fn sealed(&self, cursor: &Cursor, start: u64) -> SealedPass {
        let order = cursor.pass(&self.shared.settings);
        SealedPass {
            pass: cursor.pass,
            start,
            steps: order.steps(),
            samples: order.len(),
            base: cursor.base,
            horizon: cursor.horizon,
        }
    }

    fn cursor(&self, pass: SealedPass) -> Cursor {
        let SealedPass { pass, base, horizon, .. } = pass;
        Cursor { seed: self.shared.settings.seed, pass, base, horizon, step: 0 }
    }

    /// The batches of a sealed pass.
    ///
    /// # Errors
    /// The stream was not opened.
    pub fn batches(&self, pass: SealedPass) -> Result<StreamBatches, FeedError> {
        let samples = self.shared.samples.get().ok_or_else(|| self.not_open())?;
        Ok(StreamBatches::new(samples.clone(), self.cursor(pass), self.source()))
    }

    /// Tells the store that the steps up to a place will never be repeated: a checkpoint has them. `before` is the
    /// pass before it, if it is known.
    ///
    /// # Errors
    /// The store refuses, or cannot be reached.
    pub fn commit(&self, place: Place, before: Option<SealedPass>) -> Result<(), FeedError> {
        let (pass, steps) = match (place.batch, before) {
            (0, Some(before)) => (before.pass, before.steps),
            (0, None) => return Ok(()),
            (steps, _) => (place.pass, steps),
        };
        match &*lock(&self.shared.owner) {
            Some(owner) => owner.commit(pass, steps).map_err(|source| self.failed(source)),
            None => Ok(()),
        }
    }

    /// Tells the store that the run has finished and needs no more samples.
    pub fn close(&self) {
        if let Some(owner) = lock(&self.shared.owner).take()
            && let Err(error) = owner.close()
        {
            tracing::warn!(%error, "could not tell the store that the run has finished");
        }
    }

    /// Whether the next pass may be asked for while samples of this one are still to be read: what a reservoir held,
    /// the store knows of the present pass only.
    pub fn may_look_ahead(&self) -> bool {
        !matches!(self.shared.config.mode, ReadMode::Reservoir { .. })
    }

    /// The error of a name that no reader can have.
    pub fn other_run(&self, reader: &str) -> FeedError {
        FeedError::ReaderName { reader: reader.to_owned() }
    }

    fn failed(&self, source: StreamError) -> FeedError {
        let StreamConfig { stream, store, .. } = &self.shared.config;
        FeedError::Stream { stream: stream.clone(), address: store.clone(), source: source.into() }
    }

    fn not_open(&self) -> FeedError {
        FeedError::NotOpen { stream: self.shared.config.stream.clone() }
    }
}

/// A name for a new run, which no other run has.
fn new_reader(name: &str) -> Result<ReaderId, FeedError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '-' }).take(40).collect();
    let number = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
    let reader = format!("{}-{:08x}", plain.trim_matches('-'), number >> 32);
    ReaderId::new(&reader).map_err(|_wrong| FeedError::ReaderName { reader })
}

/// The tensors of every upload; waits for the first one.
fn fields(store: &Store, config: &StreamConfig) -> Result<Vec<StreamField>, FeedError> {
    let StreamConfig { stream, store: address, .. } = config;
    let failed = |source: StreamError| FeedError::Stream {
        stream: stream.clone(),
        address: address.clone(),
        source: source.into(),
    };
    let mut watch = store.watch_streams(Some(stream)).map_err(failed)?;
    let mut told = false;
    loop {
        let infos = watch.next(ONE_WAIT).map_err(failed)?;
        let found = infos.into_iter().flatten().find(|info| !info.fields.is_empty());
        if let Some(info) = found {
            return Ok(info.fields);
        }
        if !std::mem::replace(&mut told, true) {
            tracing::warn!("waiting: stream {stream:?} of the store at {address} has no samples yet");
        }
    }
}

/// How a run reads its stream: the same for all its processes, in all its lives.
fn reader_settings(run: &RunConfig, config: &StreamConfig) -> ReaderSettings {
    let batch = (run.train.batch * run.train.accumulate) as u64;
    let settings = ReaderSettings::new(config.mode, run.train.seed.derive("stream"), batch);
    let partial = if run.data.drop_last { PartialBatch::Drop } else { PartialBatch::Keep };
    ReaderSettings { partial, ..settings }
}

/// Checks, before a node opens a run, that it can reach the store of its stream by the address of the run file.
///
/// # Errors
/// The address means the host that uses it, and the driver is on another host.
pub fn check_host(config: &RunConfig, run: Option<&StreamRef>) -> Result<(), FeedError> {
    let (Some(stream), Some(run)) = (&config.data.stream, run) else { return Ok(()) };
    match is_loopback(&stream.store) && run.host != this_host() {
        true => Err(FeedError::OtherHost { address: stream.store.clone() }),
        false => Ok(()),
    }
}

/// The id of this host. Without one every other host is another one.
pub(crate) fn this_host() -> [u8; 16] {
    HostId::here().map(HostId::to_bytes).unwrap_or_default()
}

/// Whether an address means the host that uses it.
fn is_loopback(address: &str) -> bool {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host).trim_matches(['[', ']']);
    address.starts_with("unix://")
        || host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_on_another_host_needs_an_address_that_it_reaches() {
        let check = |store: &str, host: [u8; 16]| {
            let (stream, x, y) = ("s".to_owned(), "x".to_owned(), "y".to_owned());
            let stream = StreamConfig { stream, store: store.to_owned(), x, y, mode: ReadMode::Static };
            let mut config = RunConfig::default();
            config.data.stream = Some(stream);
            let error = check_host(&config, Some(&StreamRef { reader: "r".to_owned(), host })).err();
            error.map(|error| (error.to_string(), error.hint().unwrap_or_default()))
        };
        assert_eq!(check("127.0.0.1:6780", this_host()), None);
        assert_eq!(check("10.0.0.1:6780", [9; 16]), None);
        let (error, hint) = check("127.0.0.1:6780", [9; 16]).unwrap();
        assert!(error.contains("127.0.0.1:6780") && error.contains("another one"), "{error}");
        assert!(hint.contains("HOST:6780"), "{hint}");
    }

    #[test]
    fn addresses_of_one_host_only_are_known() {
        for address in
            ["127.0.0.1:6780", "tcp://localhost:1", "redis://[::1]:6379", "unix:///tmp/s", "127.9.9.9:1"]
        {
            assert!(is_loopback(address), "{address}");
        }
        for address in ["10.0.0.1:6780", "tcp://n1:1", "[fe80::1]:6379", "127host:1"] {
            assert!(!is_loopback(address), "{address}");
        }
    }
}
