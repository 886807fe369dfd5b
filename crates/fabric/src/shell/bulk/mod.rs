//! Transfers of blobs beside a control link.
//!
//! ```text
//! asker                               holder
//!   | -- Get{transfer, blob} ----------> |
//!   | <-- Begin{transfer, len} --------- |   or Missing
//!   | <-- chunk frames, interleaved ---- |
//! ```
//! On one host, blobs in shared memory are lent instead ([`lend`]).
//! The side that dialed the control link opens the bulk connection when it is first needed; the other side asks for it
//! with `OpenBulk`. A broken connection is opened again and its transfers restart, at most three times, as long as the
//! control link lives.

mod blobs;
mod connection;
mod lend;
mod pool;
mod read;
mod write;

pub(crate) use blobs::BlobStore;
pub(crate) use connection::{attach, open};
pub(crate) use pool::BufferPool;

use super::inner::Inner;
use super::link::Link;
use super::lock;
use crate::error::FetchError;
use blobs::Serving;
use bytes::Bytes;
use lend::{Borrowing, Lent};
use phalanx_types::NodeId;
use phalanx_wire::bulk::{BlobId, BulkMessage};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};

/// How often a transfer is restarted after its connection broke.
const MAX_RESTARTS: u32 = 3;
/// How long a fetch waits for a bulk connection.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// A blob that a caller on this node waits for.
#[derive(Debug)]
struct PendingFetch {
    blob: BlobId,
    len: u64,
    restarts: u32,
    done: oneshot::Sender<Result<Vec<Bytes>, FetchError>>,
}

#[derive(Debug, Default)]
struct BulkState {
    /// The number of the connection in use.
    connected: Option<u64>,
    opening: bool,
    closed: bool,
    gets: BTreeMap<u64, PendingFetch>,
    orders: VecDeque<BulkMessage>,
    serving: VecDeque<Serving>,
    lent: Lent,
    borrowing: Borrowing,
}

impl BulkState {
    /// How a blob is asked for.
    fn ask(&self, link: &Link, transfer: u64, get: &PendingFetch) -> BulkMessage {
        let blob = get.blob;
        match self.borrowing.is_worthwhile(link, get.len) {
            true => BulkMessage::Borrow { transfer, blob },
            false => BulkMessage::Get { transfer, blob },
        }
    }

    /// Forgets what the connection that was used until now had under way.
    fn disconnect(&mut self) {
        self.connected = None;
        self.serving.clear();
        self.lent.give_up();
    }
}

/// The bulk side of one link; it outlives the connections it uses.
#[derive(Debug)]
pub(crate) struct Bulk {
    state: Mutex<BulkState>,
    /// Leases to return, each with the number of its connection. Apart from the state, because bytes are dropped, and
    /// leases end, while that is locked.
    returns: Mutex<Vec<(u64, u64)>>,
    wake: Notify,
    /// A fetch was cancelled; the bytes that have arrived are not needed.
    withdrawn: Notify,
    /// The number of the newest connection; an older one ends when it changes.
    newest: watch::Sender<u64>,
}

impl Default for Bulk {
    fn default() -> Self {
        let (wake, withdrawn) = (Notify::new(), Notify::new());
        Self {
            state: Mutex::default(),
            returns: Mutex::default(),
            wake,
            withdrawn,
            newest: watch::Sender::new(0),
        }
    }
}

impl Bulk {
    /// Ends everything when the control link is down.
    pub(crate) fn close(&self, node: &NodeId) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.disconnect();
        state.borrowing.close();
        for get in std::mem::take(&mut state.gets).into_values() {
            let blob = get.blob;
            settle(get, Err(FetchError::LinkDown { node: node.clone(), blob }));
        }
        self.newest.send_modify(|n| *n += 1);
    }

    fn finish(&self, transfer: u64, result: Result<Vec<Bytes>, FetchError>) {
        let get = lock(&self.state).gets.remove(&transfer);
        if let Some(get) = get {
            settle(get, result);
        }
    }

    fn order(&self, message: BulkMessage) {
        lock(&self.state).orders.push_back(message);
        self.wake.notify_one();
    }
}

fn settle(get: PendingFetch, result: Result<Vec<Bytes>, FetchError>) {
    if get.done.send(result).is_err() {
        tracing::debug!(blob = %get.blob, "no caller waits for this blob any more");
    }
}

/// Cancels a fetch whose caller went away.
struct Withdraw<'a>(&'a Bulk, u64);

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let removed = lock(&self.0.state).gets.remove(&self.1);
        if removed.is_some() {
            self.0.order(BulkMessage::Cancel { transfer: self.1 });
            self.0.withdrawn.notify_one();
        }
    }
}

pub(crate) async fn fetch(
    inner: &Arc<Inner>,
    link: &Arc<Link>,
    blob: BlobId,
    len: u64,
) -> Result<Vec<Bytes>, FetchError> {
    let node = link.node.clone();
    let transfer = inner.next_number();
    let (done, mut result) = oneshot::channel();
    let connected = {
        let mut state = lock(&link.bulk.state);
        if state.closed {
            return Err(FetchError::LinkDown { node, blob });
        }
        let get = PendingFetch { blob, len, restarts: 0, done };
        let connected = state.connected.is_some();
        if connected {
            let ask = state.ask(link, transfer, &get);
            state.orders.push_back(ask);
        }
        state.gets.insert(transfer, get);
        connected
    };
    let _withdraw = Withdraw(&link.bulk, transfer);
    if connected {
        link.bulk.wake.notify_one();
    } else {
        open(inner, link);
    }
    loop {
        match tokio::time::timeout(OPEN_TIMEOUT, &mut result).await {
            Ok(Ok(result)) => return result,
            Ok(Err(_)) => return Err(FetchError::LinkDown { node, blob }),
            Err(_) => {
                let mut state = lock(&link.bulk.state);
                if state.connected.is_none() {
                    state.opening = false;
                    return Err(FetchError::NoBulk { node, within: OPEN_TIMEOUT });
                }
            }
        }
    }
}
