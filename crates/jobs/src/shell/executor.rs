//! The compute threads of a node: each runs one batch of jobs at a time.
//!
//! The threads never touch the core. They put what ended into a list and wake the node's task, at
//! most every [`WAKE_EVERY`] while a batch of short jobs lasts.

use super::feed::JobFeed;
use super::handler::{Handlers, MAX_TEXT};
use crate::core::{BatchId, Run, RunKey};
use phalanx_types::{LeaseId, NodeId, Parcel, SessionId};
use phalanx_wire::reason::FailReason;
use smol_str::SmolStr;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long results may wait for the end of their batch before the node is woken for them.
pub(super) const WAKE_EVERY: Duration = Duration::from_micros(200);

/// How long a thread looks out for the next short job before it goes to sleep. Waking it takes
/// about as long, and an idle processor longer still.
const LINGER: Duration = Duration::from_micros(200);

/// Progress of one run is told at most this often.
const PROGRESS_EVERY: Duration = Duration::from_millis(20);

/// How a run ended, before its solution is put inline or into a blob.
#[derive(Debug)]
pub(super) enum Ended {
    Solved(Parcel),
    Failed { reason: FailReason, retry: bool },
    Cancelled,
}

/// What happened on a compute thread.
#[derive(Debug)]
pub(super) enum Happened {
    Finished { key: RunKey, end: Ended, run_micros: u64 },
    Progress { key: RunKey, permille: u16, note: String },
}

/// What compute threads and the node's task share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    pub(super) happened: Mutex<Vec<Happened>>,
    pub(super) wake: Notify,
    /// The main nodes by the sessions of their jobs.
    mains: Mutex<BTreeMap<SessionId, NodeId>>,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Arc<Batch>>,
    /// Threads with nothing to do, lingering ones included.
    idle: usize,
    /// Threads that look for a batch without having gone to sleep.
    lingering: usize,
    closed: bool,
}

#[derive(Debug)]
pub(super) struct Batch {
    id: BatchId,
    pub(super) waiting: Mutex<VecDeque<Run>>,
    /// What the handler has taken and not ended.
    pub(super) current: Mutex<Vec<Arc<RunControl>>>,
}

impl Batch {
    /// The kind of what waits; all runs of a batch are of one kind.
    fn next_kind(&self) -> Option<SmolStr> {
        lock(&self.waiting).front().map(|run| run.kind.clone())
    }

    /// Whether something of it runs or waits to.
    fn is_live(&self) -> bool {
        !lock(&self.waiting).is_empty() || !lock(&self.current).is_empty()
    }
}

/// The line between a running handler and its node.
#[derive(Debug)]
pub(super) struct RunControl {
    pub(super) key: RunKey,
    shared: Arc<Shared>,
    cancelled: AtomicBool,
    /// When progress was last told.
    told: Mutex<Option<Instant>>,
    on_cancel: Mutex<OnCancel>,
    changed: Condvar,
}

/// What a handler wants done when its job is cancelled.
#[derive(Default)]
struct OnCancel(Option<Box<dyn FnOnce() + Send>>);

impl fmt::Debug for OnCancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnCancel").field(&self.0.is_some()).finish()
    }
}

/// A lock whose holder panicked still guards plain data that is whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunControl {
    pub(super) fn new(key: RunKey, shared: Arc<Shared>) -> Self {
        Self {
            key,
            shared,
            cancelled: AtomicBool::new(false),
            told: Mutex::default(),
            on_cancel: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn lease(&self) -> LeaseId {
        self.key.lease
    }

    /// The main node that the job is for.
    pub(super) fn main(&self) -> Option<NodeId> {
        lock(&self.shared.mains).get(&self.key.session).cloned()
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Tells how far the run is; what comes faster than anybody could read is left out.
    pub(super) fn progress(&self, permille: u16, note: String) {
        let now = Instant::now();
        let mut told = lock(&self.told);
        if permille < 1000 && told.is_some_and(|at| now.saturating_duration_since(at) < PROGRESS_EVERY) {
            return;
        }
        *told = Some(now);
        let note = shortened(note);
        lock(&self.shared.happened).push(Happened::Progress { key: self.key, permille, note });
        self.shared.wake.notify_one();
    }

    /// Waits until cancelled, at most so long; tells whether it was.
    pub(super) fn wait_cancelled(&self, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        let mut gate = lock(&self.on_cancel);
        while !self.is_cancelled() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            gate = self.changed.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Has `act` done when the job is cancelled, at once when it was already.
    pub(super) fn on_cancel(&self, act: Box<dyn FnOnce() + Send>) {
        let mut on_cancel = lock(&self.on_cancel);
        if self.is_cancelled() { act() } else { on_cancel.0 = Some(act) }
    }

    /// Nothing is to be done on cancellation any more; one that is under way is waited for.
    pub(super) fn clear_on_cancel(&self) {
        lock(&self.on_cancel).0 = None;
    }

    fn cancel(&self) {
        let mut on_cancel = lock(&self.on_cancel);
        self.cancelled.store(true, Ordering::Release);
        if let Some(act) = on_cancel.0.take() {
            act();
        }
        self.changed.notify_all();
    }
}

/// The handle of the node's task to its compute threads.
#[derive(Debug)]
pub(super) struct Executor {
    shared: Arc<Shared>,
    handlers: Arc<Handlers>,
    live: BTreeMap<BatchId, Arc<Batch>>,
    threads: usize,
}

impl Executor {
    pub(super) fn new(handlers: Handlers) -> Self {
        Self {
            shared: Arc::new(Shared::default()),
            handlers: Arc::new(handlers),
            live: BTreeMap::new(),
            threads: 0,
        }
    }

    /// Starts a batch, on a new thread when none is idle. The core starts no more batches than
    /// the node has cores; a thread about to be idle may make it one more than that.
    pub(super) fn start(&mut self, id: BatchId, runs: Vec<Run>) -> std::io::Result<()> {
        let batch =
            Arc::new(Batch { id, waiting: Mutex::new(VecDeque::from(runs)), current: Mutex::default() });
        self.live.retain(|_, b| b.is_live());
        self.live.insert(id, batch.clone());
        let (need_thread, need_wake) = {
            let mut queue = lock(&self.shared.queue);
            queue.batches.push_back(batch);
            (queue.batches.len() > queue.idle, queue.batches.len() > queue.lingering)
        };
        if need_thread {
            let (shared, handlers) = (self.shared.clone(), self.handlers.clone());
            let name = format!("compute-{}", self.threads);
            std::thread::Builder::new().name(name).spawn(move || work(&shared, &handlers))?;
            self.threads += 1;
        }
        if need_wake {
            self.shared.more.notify_one();
        }
        Ok(())
    }

    /// Ends a run that cannot begin; it may be tried again.
    pub(super) fn refuse(&self, key: RunKey, message: &str) {
        let reason = FailReason::Handler { message: message.to_owned() };
        let end = Ended::Failed { reason, retry: true };
        lock(&self.shared.happened).push(Happened::Finished { key, end, run_micros: 0 });
        self.shared.wake.notify_one();
    }

    /// A large solution was freed.
    pub(super) fn tidy(&self) {
        self.handlers.tidy();
    }

    /// Notes which main node a session belongs to; jobs of it come later.
    pub(super) fn know_main(&self, session: SessionId, main: NodeId) {
        lock(&self.shared.mains).insert(session, main);
    }

    /// Forgets the main node of a session that has no jobs any more.
    pub(super) fn forget_main(&self, session: SessionId) {
        lock(&self.shared.mains).remove(&session);
    }

    /// Waits, without going to sleep, a moment for something to happen.
    pub(super) fn linger(&self) {
        let until = Instant::now() + LINGER / 4;
        while lock(&self.shared.happened).is_empty() && Instant::now() < until {
            std::thread::yield_now();
        }
    }

    /// Takes out of a batch what has not begun.
    pub(super) fn take_back(&mut self, id: BatchId) -> Vec<Run> {
        self.live.get(&id).map(|batch| lock(&batch.waiting).drain(..).collect()).unwrap_or_default()
    }

    /// Tells a handler to stop; a job that has not begun never will.
    pub(super) fn cancel(&mut self, key: RunKey) {
        for batch in self.live.values() {
            // Taken in the order the compute thread takes them, so a run is never between the two.
            let mut waiting = lock(&batch.waiting);
            if let Some(control) = lock(&batch.current).iter().find(|c| c.key == key) {
                control.cancel();
                return;
            }
            if let Some(at) = waiting.iter().position(|run| run.key == key) {
                waiting.remove(at);
                let ended = Happened::Finished { key, end: Ended::Cancelled, run_micros: 0 };
                lock(&self.shared.happened).push(ended);
                self.shared.wake.notify_one();
                return;
            }
        }
    }

    /// Tells every handler to stop.
    pub(super) fn cancel_all(&mut self) {
        for batch in self.live.values() {
            lock(&batch.waiting).clear();
            lock(&batch.current).iter().for_each(|control| control.cancel());
        }
    }

    pub(super) fn take_happened(&self, into: &mut Vec<Happened>) {
        std::mem::swap(&mut *lock(&self.shared.happened), into);
    }

    /// Returns when no handler runs and none will.
    pub(super) async fn stopped(&self) {
        while self.live.values().any(|batch| batch.is_live()) {
            self.happened().await;
        }
    }

    /// Returns when something happened on a compute thread.
    pub(super) async fn happened(&self) {
        self.shared.wake.notified().await;
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.cancel_all();
        lock(&self.shared.queue).closed = true;
        self.shared.more.notify_all();
    }
}

/// The next batch, or `None` when the node has ended. A lingering thread looks for it a while
/// before it goes to sleep.
fn next_batch(shared: &Shared, linger: bool) -> Option<Arc<Batch>> {
    let until = Instant::now() + LINGER;
    let mut lingering = linger;
    let mut queue = lock(&shared.queue);
    queue.idle += 1;
    queue.lingering += usize::from(lingering);
    loop {
        // Whoever starts a batch counts on idle threads: one that has a batch is not idle, at once.
        let batch = queue.batches.pop_front();
        let over = batch.is_some() || queue.closed;
        if lingering && (over || Instant::now() >= until) {
            lingering = false;
            queue.lingering -= 1;
        }
        if over {
            queue.idle -= 1;
            return batch;
        }
        if lingering {
            drop(queue);
            std::thread::yield_now();
            queue = lock(&shared.queue);
        } else {
            queue = shared.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn work(shared: &Arc<Shared>, handlers: &Handlers) {
    let mut linger = false;
    while let Some(batch) = next_batch(shared, linger) {
        tracing::trace!(batch = batch.id.0, "batch begins");
        let began = Instant::now();
        let mut runs = 0;
        // A handler that panics ends what it had taken; the rest of the batch has another try.
        while let Some(kind) = batch.next_kind() {
            let feed = JobFeed::new(shared, &batch);
            match handlers.get(&kind) {
                Some(handler) => {
                    let solved = std::panic::catch_unwind(AssertUnwindSafe(|| handler.solve_batch(&feed)));
                    feed.close(solved.err());
                }
                None => feed.refuse(&kind),
            }
            runs += feed.ended();
        }
        shared.wake.notify_one();
        // Where jobs are shorter than a thread takes to wake, the next may be close.
        linger = began.elapsed() < LINGER * runs;
    }
}

/// The end of a text, which says most, when it is too long for all of it.
pub(super) fn shortened(text: String) -> String {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let mut from = text.len() - MAX_TEXT;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    format!("…{}", text.get(from..).unwrap_or_default())
}
