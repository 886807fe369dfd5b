//! The compute threads of an engine: a pool that runs one batch of tasks at a time.
//!
//! Every kernel divides its work by the shape alone, never by the number of threads, and each task writes its own part
//! of the output. So the result does not depend on the number of threads or on which thread ran what.
//!
//! An idle worker spins for [`LOOK_OUT`] and then sleeps; waking it takes tens of microseconds, longer than many
//! operators run. The caller works too, and never waits for a worker that has not begun: late workers find the batch
//! closed.

#![expect(
    unsafe_code,
    reason = "a batch borrows the caller's stack; the caller waits until no worker uses it"
)]

use std::cell::{Cell, RefCell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long an idle worker spins before it sleeps.
const LOOK_OUT: Duration = Duration::from_micros(200);

/// A pool of compute threads. Cheap to share by reference; the calling thread is one of them.
#[derive(Debug)]
pub struct Threads {
    shared: Arc<SharedBatch>,
    workers: Vec<Worker>,
    /// Held while a batch runs; a caller that finds it locked works alone.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Worker {
    handle: Option<JoinHandle<()>>,
    thread: Thread,
    asleep: Arc<AtomicBool>,
}

type Task = *const (dyn Fn(usize) + Sync);

struct SharedBatch {
    /// Generation of the batch (upper half), whether it is open (bit 31), how many workers are in it (the rest).
    gate: AtomicU64,
    next: AtomicUsize,
    batch: UnsafeCell<Option<(Task, usize)>>,
    stop: AtomicBool,
    panicked: AtomicBool,
}

const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;
const GENERATION: u64 = 1 << 32;

// SAFETY: `batch` is written only while the gate is closed and no worker is inside, and read only by workers inside.
unsafe impl Sync for SharedBatch {}
// SAFETY: the pointer in `batch` is to a `Sync` closure.
unsafe impl Send for SharedBatch {}

impl std::fmt::Debug for SharedBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("gate", &self.gate).finish_non_exhaustive()
    }
}

thread_local! {
    static INSIDE_TASK: Cell<bool> = const { Cell::new(false) };
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

impl Threads {
    /// Creates a pool of this many threads, including the caller's; at least one.
    pub fn new(count: usize) -> Self {
        let shared = Arc::new(SharedBatch {
            gate: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            batch: UnsafeCell::new(None),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let workers = (1..count.max(1)).filter_map(|i| spawn(i, &shared)).collect();
        Self { shared, workers, turn: Mutex::new(()) }
    }

    /// The number of threads, including the caller's.
    pub fn count(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task(0)` … `task(n - 1)`, each once, in any order, and returns when all are done.
    ///
    /// # Panics
    /// A task panicked.
    pub fn each(&self, n: usize, task: impl Fn(usize) + Sync) {
        let alone = n <= 1 || self.workers.is_empty() || INSIDE_TASK.get();
        let turn = match self.turn.try_lock() {
            _ if alone => None,
            Ok(turn) => Some(turn),
            // A task of an earlier batch panicked; the lock guards nothing that could be broken.
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let Some(_turn) = turn else {
            (0..n).for_each(task);
            return;
        };
        self.shared.panicked.store(false, Ordering::Relaxed);
        self.together(n, &task);
        assert!(!self.shared.panicked.swap(false, Ordering::Relaxed), "a compute task panicked");
    }

    fn together(&self, n: usize, task: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        // SAFETY: only the lifetime is changed; `Closing` waits until no worker is inside before this returns or unwinds.
        let task: Task = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Task>(task) };
        // SAFETY: the gate is closed and no worker is inside: we hold the turn, and the last batch was waited for.
        unsafe { *shared.batch.get() = Some((task, n)) };
        shared.next.store(0, Ordering::Relaxed);
        let closed = shared.gate.load(Ordering::Relaxed);
        shared.gate.store((closed & !INSIDE) + GENERATION + OPEN, Ordering::SeqCst);
        for worker in self.workers.iter().take(n - 1) {
            if worker.asleep.load(Ordering::SeqCst) {
                worker.thread.unpark();
            }
        }
        let _closing = Closing(shared);
        INSIDE_TASK.set(true);
        // SAFETY: the closure lives until this function returns.
        work_off(shared, unsafe { &*task }, n);
        INSIDE_TASK.set(false);
    }

    /// Cuts `out` into chunks of `chunk` elements (the last may be shorter) and runs `task(i, chunk i)` on each.
    pub fn chunks<T: Send>(&self, out: &mut [T], chunk: usize, task: impl Fn(usize, &mut [T]) + Sync) {
        let parts = Chunks::new(out, chunk);
        // SAFETY: `each` gives every index to one task only.
        self.each(parts.count(), |i| task(i, unsafe { parts.get(i) }));
    }

    /// As [`Threads::chunks`] with two outputs that have the same number of chunks.
    pub fn chunks2<T: Send, U: Send>(
        &self,
        (a, chunk_a): (&mut [T], usize),
        (b, chunk_b): (&mut [U], usize),
        task: impl Fn(usize, &mut [T], &mut [U]) + Sync,
    ) {
        let (a, b) = (Chunks::new(a, chunk_a), Chunks::new(b, chunk_b));
        assert_eq!(a.count(), b.count(), "outputs of different numbers of chunks");
        // SAFETY: `each` gives every index to one task only.
        self.each(a.count(), |i| task(i, unsafe { a.get(i) }, unsafe { b.get(i) }));
    }

    /// As [`Threads::chunks`] with three outputs.
    pub fn chunks3<T: Send>(
        &self,
        (a, chunk_a): (&mut [T], usize),
        (b, chunk_b): (&mut [T], usize),
        (c, chunk_c): (&mut [T], usize),
        task: impl Fn(usize, &mut [T], &mut [T], &mut [T]) + Sync,
    ) {
        let (a, b, c) = (Chunks::new(a, chunk_a), Chunks::new(b, chunk_b), Chunks::new(c, chunk_c));
        assert!(a.count() == b.count() && b.count() == c.count(), "outputs of different numbers of chunks");
        // SAFETY: `each` gives every index to one task only.
        self.each(a.count(), |i| task(i, unsafe { a.get(i) }, unsafe { b.get(i) }, unsafe { c.get(i) }));
    }
}

/// The amount of work per task, from the total alone: an eighth, so that small work is shared too, but within
/// `least..=most`.
pub(crate) fn per_task(total: usize, least: usize, most: usize) -> usize {
    (total / 8).clamp(least, most)
}

/// Lends a scratch buffer of this thread, which is kept for later calls. Its contents are arbitrary.
pub(crate) fn scratch<R>(len: usize, use_it: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut buffer = SCRATCH.with_borrow_mut(|free| free.pop()).unwrap_or_default();
    // Room to begin at a cache line: wide loads that cross lines cost twice.
    if buffer.len() < len + 16 {
        buffer.resize(len + 16, 0.0);
    }
    let skip = buffer.as_ptr().align_offset(64).min(16);
    let result = use_it(&mut buffer[skip..skip + len]);
    SCRATCH.with_borrow_mut(|free| free.push(buffer));
    result
}

/// Closes the batch and waits for the workers inside it, also when the caller's own task panics.
struct Closing<'a>(&'a SharedBatch);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.gate.fetch_and(!OPEN, Ordering::SeqCst);
        let mut looks = 0u32;
        while self.0.gate.load(Ordering::Acquire) & INSIDE != 0 {
            looks += 1;
            if looks.is_multiple_of(1024) { thread::yield_now() } else { std::hint::spin_loop() }
        }
        if thread::panicking() {
            INSIDE_TASK.set(false);
        }
    }
}

fn work_off(shared: &SharedBatch, task: &(dyn Fn(usize) + Sync), n: usize) {
    loop {
        let i = shared.next.fetch_add(1, Ordering::Relaxed);
        if i >= n {
            return;
        }
        task(i);
    }
}

fn spawn(index: usize, shared: &Arc<SharedBatch>) -> Option<Worker> {
    let asleep = Arc::new(AtomicBool::new(false));
    let (shared, flag) = (shared.clone(), asleep.clone());
    let run = move || work(&shared, &flag);
    // If the thread cannot start: the results are the same with fewer threads.
    let handle = thread::Builder::new().name(format!("compute-{index}")).spawn(run).ok()?;
    let thread = handle.thread().clone();
    Some(Worker { handle: Some(handle), thread, asleep })
}

fn work(shared: &SharedBatch, asleep: &AtomicBool) {
    INSIDE_TASK.set(true);
    let mut seen = 0;
    while let Some(generation) = next_batch(shared, asleep, seen) {
        seen = generation;
        if enter(shared, generation) {
            // SAFETY: we are inside, so the batch is set and its closure lives until we leave.
            if let Some((task, n)) = unsafe { *shared.batch.get() } {
                // SAFETY: as above.
                let task = unsafe { &*task };
                let run = std::panic::AssertUnwindSafe(|| work_off(shared, task, n));
                if std::panic::catch_unwind(run).is_err() {
                    shared.panicked.store(true, Ordering::Relaxed);
                }
            }
            shared.gate.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Waits for a generation other than `seen`; `None` when the pool is dropped.
fn next_batch(shared: &SharedBatch, asleep: &AtomicBool, seen: u64) -> Option<u64> {
    let begun = Instant::now();
    let mut looks = 0u32;
    loop {
        let generation = shared.gate.load(Ordering::Acquire) / GENERATION;
        if generation != seen {
            return Some(generation);
        }
        if shared.stop.load(Ordering::Acquire) {
            return None;
        }
        looks += 1;
        if looks.is_multiple_of(64) && begun.elapsed() > LOOK_OUT {
            asleep.store(true, Ordering::SeqCst);
            // A batch published before the flag was seen would not wake us.
            if shared.gate.load(Ordering::SeqCst) / GENERATION == seen && !shared.stop.load(Ordering::SeqCst)
            {
                thread::park();
            }
            asleep.store(false, Ordering::SeqCst);
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Enters the batch of this generation, if it is still open.
fn enter(shared: &SharedBatch, generation: u64) -> bool {
    let join = |gate: u64| (gate / GENERATION == generation && gate & OPEN != 0).then_some(gate + 1);
    shared.gate.fetch_update(Ordering::SeqCst, Ordering::SeqCst, join).is_ok()
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in &mut self.workers {
            worker.thread.unpark();
            if let Some(handle) = worker.handle.take() {
                // A worker catches its tasks' panics, so it ends normally.
                handle.join().ok();
            }
        }
    }
}

/// A slice cut into chunks that different threads may hold at the same time.
struct Chunks<T> {
    data: *mut T,
    len: usize,
    chunk: usize,
}

// SAFETY: parts are disjoint, and `T: Send` lets each be used on another thread.
unsafe impl<T: Send> Sync for Chunks<T> {}

impl<T> Chunks<T> {
    fn new(slice: &mut [T], chunk: usize) -> Self {
        assert!(chunk > 0, "chunks of nothing");
        Self { data: slice.as_mut_ptr(), len: slice.len(), chunk }
    }

    fn count(&self) -> usize {
        self.len.div_ceil(self.chunk)
    }

    /// # Safety
    /// No two callers may hold the same part; the slice this was made from must be alive and untouched.
    #[expect(clippy::mut_from_ref, reason = "each part is handed out once")]
    unsafe fn get(&self, i: usize) -> &mut [T] {
        let start = i * self.chunk;
        let len = self.chunk.min(self.len - start);
        // SAFETY: `start + len` is within the slice; disjointness is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_whatever_the_team() {
        for count in [1, 2, 5] {
            let threads = Threads::new(count);
            for n in [0, 1, 2, 7, 100] {
                let mut out = vec![0u32; n];
                threads.chunks(&mut out, 1, |i, part| part[0] += i as u32 + 1);
                assert!(
                    out.iter().enumerate().all(|(i, v)| *v == i as u32 + 1),
                    "{count} threads, {n} tasks"
                );
            }
        }
    }

    #[test]
    fn a_team_within_a_team_works_alone() {
        let threads = Threads::new(3);
        let total = AtomicUsize::new(0);
        threads.each(8, |_| {
            threads.each(8, |_| {
                total.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(total.into_inner(), 64);
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_the_team_goes_on() {
        let threads = Threads::new(2);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            threads.each(64, |i| assert!(i != 40, "planted"));
        }));
        assert!(result.is_err());
        let done = AtomicUsize::new(0);
        threads.each(64, |_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 64);
    }

    #[test]
    fn scratch_nests() {
        scratch(10, |a| {
            a.fill(1.0);
            scratch(20, |b| b.fill(2.0));
            assert!(a.iter().all(|v| *v == 1.0));
        });
    }
}
