//! Values that leave memory when there is too much of them.
//!
//! ```text
//! connection ── no room ──▶ request a pass, wait ──▶ room: go on · pass is over without room: refused
//!                                 │                    ▲
//!                                 ▼                    │ woken
//!                            spill thread ── candidates of the keyspace, the oldest first ──▶ files
//!                                            their bytes are replaced by views of the files
//! ```
//! A value that the journal has is on disk already; others are written to a spill. Writing happens without the lock,
//! and reading when a connection sends the view. What is lent to a client stays: its memory would not come free.

use super::error::StartError;
use super::hub::Hub;
use super::mailbox::weight;
use super::persist::{ValueIndex, ViewsRead};
use crate::core::{ClientId, SpillCandidate, SpillFacts};
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_segments::{Journal, Spill};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Values of this size together leave memory between two looks at the lock.
const BATCH: u64 = 32 << 20;
/// Pages of views that were read are let go of this often,
const TRIM_EVERY: Duration = Duration::from_millis(100);
/// or when clients have read this much.
const TRIM_BYTES: u64 = 16 << 20;
/// When they have read this much, the spill thread is busy or does not run: a connection does its work.
const MOST_UNTRIMMED: u64 = 64 << 20;
/// The journal is looked at this often for values that wait to be written.
const JOURNAL_PAUSE: Duration = Duration::from_millis(2);

/// After a pass that found too little the thread rests, unless a client waits for room.
const REST: Duration = Duration::from_millis(100);

/// Why a part of a value stays in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stays {
    /// A client uses its memory, or there are no files for it.
    Held,
    /// The journal is about to write it.
    Unwritten,
    /// The files take no more.
    Full,
}

/// What connections and the spill thread share.
#[derive(Debug)]
pub(crate) struct SpillLink {
    files: Option<(Spill, u64)>,
    index: Arc<ValueIndex>,
    journal: Option<Weak<Journal>>,
    signal: Mutex<Signal>,
    wake: Condvar,
    waiting: Mutex<BTreeMap<ClientId, Waker>>,
    /// How often the bytes at an address are lent.
    lent: Mutex<BTreeMap<usize, usize>>,
    error: Mutex<Option<String>>,
    /// Bytes that were read since pages of views were let go of.
    read: AtomicU64,
}

#[derive(Debug, Default)]
struct Signal {
    /// A pass was asked for, to make room for this many bytes.
    wanted: Option<u64>,
    is_running: bool,
    /// How many passes are over.
    passes: u64,
    /// A pass found nothing that can go; until then there is none but for clients that wait.
    rest_until: Option<Instant>,
    stop: bool,
}

/// The number of a pass of the spill thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpillPass(u64);

enum Next {
    Pass(u64),
    Trim,
    Stop,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SpillLink {
    pub(crate) fn new(
        files: Option<(Spill, u64)>,
        index: Arc<ValueIndex>,
        journal: Option<Weak<Journal>>,
    ) -> Self {
        Self {
            files,
            index,
            journal,
            signal: Mutex::default(),
            wake: Condvar::new(),
            waiting: Mutex::default(),
            lent: Mutex::default(),
            error: Mutex::default(),
            read: AtomicU64::new(0),
        }
    }

    pub(crate) fn start(self: &Arc<Self>, hub: Arc<Hub>) -> Result<JoinHandle<()>, StartError> {
        let link = self.clone();
        let thread = std::thread::Builder::new().name("store-spill".to_owned());
        thread.spawn(move || link.run(&hub)).map_err(StartError::Thread)
    }

    pub(crate) fn facts(&self) -> Option<SpillFacts> {
        let (spill, limit_bytes) = self.files.as_ref()?;
        let error = lock(&self.error).clone();
        Some(SpillFacts { file_bytes: spill.used_bytes(), limit_bytes: *limit_bytes, error })
    }

    /// Asks for a pass that makes room for this many bytes; says which pass will have tried.
    pub(crate) fn request(&self, bytes: u64) -> SpillPass {
        let mut signal = lock(&self.signal);
        if bytes == 0 && signal.rest_until.is_some_and(|until| Instant::now() < until) {
            return SpillPass(signal.passes);
        }
        signal.wanted = Some(signal.wanted.unwrap_or(0).max(bytes));
        let pass = signal.passes + if signal.is_running { 2 } else { 1 };
        drop(signal);
        self.wake.notify_one();
        SpillPass(pass)
    }

    /// Has a client woken when there may be room; false when the pass is over.
    pub(crate) fn wait(&self, pass: SpillPass, client: ClientId, context: &mut Context<'_>) -> bool {
        let signal = lock(&self.signal);
        if signal.passes >= pass.0 || signal.stop {
            return false;
        }
        // Under the lock: the pass cannot end in between.
        lock(&self.waiting).insert(client, context.waker().clone());
        true
    }

    pub(crate) fn stop(&self) {
        lock(&self.signal).stop = true;
        self.wake.notify_one();
        self.wake_all();
    }

    /// Bytes are lent to a client, or given back by it.
    pub(crate) fn on_lent(&self, bytes: &[u8]) {
        *lock(&self.lent).entry(bytes.as_ptr().addr()).or_default() += 1;
    }

    pub(crate) fn on_returned(&self, bytes: &[u8]) {
        let mut lent = lock(&self.lent);
        let address = bytes.as_ptr().addr();
        if let Some(count) = lent.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                lent.remove(&address);
            }
        }
    }

    fn wake_all(&self) {
        let woken = std::mem::take(&mut *lock(&self.waiting));
        woken.into_values().for_each(Waker::wake);
    }

    fn run(&self, hub: &Hub) {
        loop {
            match self.next() {
                Next::Stop => return,
                Next::Pass(bytes) => {
                    self.pass(hub, bytes);
                    let is_over = hub.is_over(bytes);
                    let mut signal = lock(&self.signal);
                    signal.is_running = false;
                    signal.passes += 1;
                    signal.rest_until = is_over.then(|| Instant::now() + REST);
                    drop(signal);
                    self.wake_all();
                }
                Next::Trim => {}
            }
            hub.trim_kept_memory();
            self.trim();
        }
    }

    fn next(&self) -> Next {
        let idle = |signal: &mut Signal| {
            signal.wanted.is_none() && !signal.stop && self.read.load(Ordering::Relaxed) < TRIM_BYTES
        };
        let waited = self.wake.wait_timeout_while(lock(&self.signal), TRIM_EVERY, idle);
        let mut signal = waited.unwrap_or_else(PoisonError::into_inner).0;
        if signal.stop {
            return Next::Stop;
        }
        match signal.wanted.take() {
            Some(bytes) => {
                signal.is_running = true;
                Next::Pass(bytes)
            }
            None => Next::Trim,
        }
    }

    /// A client gets this reply; says what of it comes from files.
    pub(crate) fn on_reply(&self, reply: &Reply) -> ViewsRead {
        self.on_read(weight(reply) as u64);
        self.index.views_in(reply)
    }

    /// Lets go of pages when the spill thread has not done so for long. Not under the hub's lock: it takes time.
    pub(crate) fn trim_if_behind(&self) {
        if self.read.load(Ordering::Relaxed) >= MOST_UNTRIMMED {
            self.trim();
        }
    }

    /// A client reads this much, which may come from views.
    fn on_read(&self, bytes: u64) {
        let before = self.read.fetch_add(bytes, Ordering::Relaxed);
        // One that is missed is seen with the next, or a little later.
        if before < TRIM_BYTES && before.saturating_add(bytes) >= TRIM_BYTES {
            self.wake.notify_one();
        }
    }

    /// Lets go of the memory of views: who reads them brings it back for a moment.
    fn trim(&self) {
        self.read.store(0, Ordering::Relaxed);
        if let Some((spill, _)) = &self.files {
            spill.trim_views();
        }
        if let Some(journal) = self.journal.as_ref().and_then(Weak::upgrade) {
            journal.trim_views();
        }
    }

    /// Takes values out of memory until there is room, or no value is left that can go.
    fn pass(&self, hub: &Hub, bytes: u64) {
        let mut after = 0;
        let mut is_journal_behind = false;
        while hub.is_over(bytes) && !lock(&self.signal).stop {
            let candidates = hub.spill_candidates(after, BATCH);
            let Some(last) = candidates.last() else {
                if !is_journal_behind {
                    return;
                }
                // Values that are on their way to the journal can go when they are there.
                std::thread::sleep(JOURNAL_PAUSE);
                (after, is_journal_behind) = (0, false);
                continue;
            };
            after = last.order;
            for candidate in candidates {
                match self.spill(hub, &candidate) {
                    Some(Stays::Full) => return,
                    Some(Stays::Unwritten) => is_journal_behind = true,
                    Some(Stays::Held) | None => {}
                }
            }
            hub.trim_kept_memory();
            self.trim();
            self.wake_all();
        }
    }

    /// Takes a value out of memory; says why a part of it stays, if one does.
    fn spill(&self, hub: &Hub, candidate: &SpillCandidate) -> Option<Stays> {
        let mut views = BTreeMap::new();
        let (mut away, mut stays) = (0, None);
        for part in &candidate.parts {
            let view = match self.view(part) {
                Ok(view) => view,
                Err(reason) => {
                    stays = Some(reason);
                    if reason == Stays::Full {
                        break;
                    }
                    continue;
                }
            };
            away += part.len() as u64;
            if let Some(view) = view {
                views.insert(part.as_ptr().addr(), view);
            }
        }
        let replacement = |part: &Bytes| views.get(&part.as_ptr().addr()).cloned();
        hub.on_spilled(candidate, &replacement, away, stays.is_none());
        stays
    }

    /// A view of a part on disk; none when the part is one.
    fn view(&self, part: &Bytes) -> Result<Option<Bytes>, Stays> {
        if self.index.is_view(part) {
            return Ok(None);
        }
        if lock(&self.lent).contains_key(&part.as_ptr().addr()) {
            return Err(Stays::Held);
        }
        let (stored, known) = match self.index.find(part) {
            Some(stored) if stored.is_stored() => (stored.clone(), Some(stored)),
            Some(_) => return Err(Stays::Unwritten),
            None => {
                let Some((spill, _)) = &self.files else { return Err(Stays::Held) };
                match spill.put([part.clone()]) {
                    Ok(stored) => (stored, None),
                    Err(error) => {
                        tracing::debug!(%error, "a value was not spilled");
                        let reason = std::error::Error::source(&error).map(ToString::to_string);
                        *lock(&self.error) = Some(reason.unwrap_or_else(|| "it is full".to_owned()));
                        return Err(Stays::Full);
                    }
                }
            }
        };
        let Ok(view) = stored.view() else { return Err(Stays::Held) };
        *lock(&self.error) = None;
        Ok(Some(self.index.keep_view(view, known)))
    }
}

/// What the spill thread does under the hub's lock, and what connections ask.
impl Hub {
    /// Whether less must be in memory, so that this many bytes fit and some are left.
    fn is_over(&self, bytes: u64) -> bool {
        let (resident, limit) = self.resident_and_limit();
        let resident = resident.saturating_add(self.copies());
        limit > 0 && resident > (limit / 4 * 3).min(limit.saturating_sub(bytes))
    }

    fn spill_candidates(&self, after: u64, bytes: u64) -> Vec<SpillCandidate> {
        self.lock().keyspace.spill_candidates(after, bytes)
    }

    fn on_spilled(
        &self,
        candidate: &SpillCandidate,
        replacement: &dyn Fn(&Bytes) -> Option<Bytes>,
        away: u64,
        is_whole: bool,
    ) {
        let mut shared = self.lock();
        let old = shared.keyspace.on_spilled(candidate, replacement, away, is_whole);
        self.serve_room(&mut shared);
        drop(shared);
        // Behind the lock: memory takes time to give back.
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Effects, Keyspace, Origin, Settings};
    use crate::shell::clock::Clock;
    use crate::shell::hub::Disk;

    #[test]
    fn connections_let_go_of_pages_when_the_spill_thread_does_not() {
        let link = Arc::new(SpillLink::new(None, Arc::default(), None));
        let clock = Clock::new();
        let keyspace = Keyspace::new(clock.now(), Settings { spill: true, ..Settings::default() });
        let disk = Disk { persistence: None, spill: Some(link.clone()) };
        let hub = Hub::new((keyspace, clock), disk, None, 10, 1 << 20);
        let origin = Origin { peer: String::new(), host: String::new(), port: 0, trusted: true };
        let client = hub.connect(origin).unwrap().client;
        let execute = |words: &[Bytes]| hub.execute(client, words, &mut Effects::default());
        let value = Bytes::from(vec![0; 1 << 20]);
        execute(&[Bytes::from_static(b"SET"), Bytes::from_static(b"k"), value]);
        // No thread was started.
        for _ in 0..200 {
            execute(&[Bytes::from_static(b"GET"), Bytes::from_static(b"k")]);
            assert!(link.read.load(Ordering::Relaxed) < MOST_UNTRIMMED);
        }
    }
}
