//! Persistence: what the keyspace changes goes to a journal, and clients are told of it when it is recorded.
//!
//! ```text
//! Keyspace ──Effects::changes──▶ Recorder ──append──▶ journal thread ──▶ disk
//!    ▲  (under the hub's lock)      │ number n              │ recorded or failed
//!    │ undo, when a write failed    ▼                       ▼
//!    └──────────────── Keeper   replies and messages ◀── Acknowledgements
//!                               with their number wait    wake connections
//! ```
//! Every reply and message carries the number of the last record before it, and is sent when that is recorded: a client
//! is never told what could be forgotten. When the journal cannot be written, the changes of the failed records are
//! taken back, their clients get the reason, and writes are refused until a probe succeeds.

mod acknowledgements;
mod keeper;
mod recorder;
mod recovery;
mod value_index;

pub(crate) use acknowledgements::{Acknowledgements, RecordNumber, Standing};
pub(crate) use keeper::Keeper;
pub(crate) use recorder::{Recorder, SaveError};
pub(crate) use recovery::{Opened, open};
pub(crate) use value_index::{ValueIndex, ViewsRead};

use crate::core::ClientId;
use bytes::Bytes;
use phalanx_segments::{AppendError, Journal, SnapshotReport};
use phalanx_types::Tensor;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// While this much waits to be written, no more commands are executed.
const MOST_IN_FLIGHT: u64 = 64 << 20;

/// What the keeper is told.
#[derive(Debug)]
pub(crate) enum Event {
    /// Records of an epoch were not written.
    Failed { epoch: u64, error: AppendError },
    /// Everything is to be saved; the client, if there is one, is told when it is.
    Save(Option<ClientId>),
    /// A snapshot has ended.
    Saved(Result<SnapshotReport, SaveError>),
    /// The server ends.
    Stop,
}

/// What connections, the recorder and the keeper share.
#[derive(Debug)]
pub(crate) struct Persistence {
    pub(crate) acknowledgements: Acknowledgements,
    pub(crate) index: Arc<ValueIndex>,
    /// The recorder and the keeper own it: it ends with them.
    journal: Weak<Journal>,
    in_flight: AtomicU64,
    events: Mutex<Sender<Event>>,
}

impl Persistence {
    pub(crate) fn new(index: Arc<ValueIndex>, journal: &Arc<Journal>, events: Sender<Event>) -> Self {
        Self {
            acknowledgements: Acknowledgements::default(),
            index,
            journal: Arc::downgrade(journal),
            in_flight: AtomicU64::new(0),
            events: Mutex::new(events),
        }
    }

    /// Makes large arguments known as values, which costs a look at all their bytes; `None` if there are none.
    pub(crate) fn adopt(&self, args: &[Bytes]) -> Option<Vec<Bytes>> {
        let journal = self.journal.upgrade()?;
        self.index.adopt(args, |bytes| journal.value([bytes]))
    }

    /// Makes the bytes of large tensors known as values.
    pub(crate) fn adopt_tensors(&self, tensors: Vec<Tensor>) -> Vec<Tensor> {
        let adopted = |tensor: Tensor| {
            let data = self.adopt(std::slice::from_ref(tensor.data())).and_then(|mut data| data.pop());
            let made = data.map(|data| Tensor::new(tensor.dtype(), tensor.shape().to_vec(), data));
            made.and_then(Result::ok).unwrap_or(tensor)
        };
        tensors.into_iter().map(adopted).collect()
    }

    /// Whether so much waits to be written that clients have to wait.
    pub(crate) fn is_congested(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) >= MOST_IN_FLIGHT
    }

    pub(crate) fn tell(&self, event: Event) {
        // A keeper that is gone has nothing to do any more.
        let _gone = self.events.lock().unwrap_or_else(PoisonError::into_inner).send(event);
    }
}
