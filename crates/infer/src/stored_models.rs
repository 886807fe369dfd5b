//! Models that lie in a store, run on the engine for its clients.
//!
//! ```text
//!   request ──► Gathering of its model ──► a thread computes a batch of them ──► each client gets its own part
//! ```
//! Requests of many clients are joined when the model was stored with a batch size. They wait for `MINBATCHSIZE` samples
//! or `MINBATCHTIMEOUT`, whatever comes first; those that come while a batch is computed are the next one. A request
//! that waits holds no thread.

mod gathering;
mod ready;
mod state;
#[cfg(test)]
mod tests;

use phalanx_store::core::ModelCall;
use phalanx_store::{ModelDone, ModelFailure, ModelRunner};
use ready::ReadyModel;
use state::{Asked, State, Work};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(5);
/// Models that take long leave threads for others, also on a machine of few cores.
const LEAST_THREADS: usize = 4;

/// Runs ONNX models of a store.
#[derive(Debug)]
pub struct StoredModels {
    shared: Arc<Shared>,
    /// Asked once: the answer takes several files of the system to find.
    most_threads: usize,
}

impl Default for StoredModels {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { shared: Arc::default(), most_threads: cores.max(LEAST_THREADS) }
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelRunner for StoredModels {
    fn start(&self, call: Arc<ModelCall>, done: ModelDone) {
        let mut state = self.shared.lock();
        if !state.push(Instant::now(), Asked { call, done }) {
            return;
        }
        if state.idle > 0 || state.threads >= self.most_threads {
            drop(state);
            self.shared.changed.notify_one();
            return;
        }
        let shared = self.shared.clone();
        let started =
            std::thread::Builder::new().name("store-models".to_owned()).spawn(move || work(&shared));
        match started {
            Ok(_thread) => state.threads += 1,
            // The request waits for a thread that there is; if there is none, a later request may start one.
            Err(error) => tracing::warn!(%error, "could not start a thread for models"),
        }
    }
}

impl Drop for StoredModels {
    fn drop(&mut self) {
        self.shared.lock().is_ending = true;
        self.shared.changed.notify_all();
    }
}

/// What one thread does until there is nothing more for it.
fn work(shared: &Shared) {
    let mut state = shared.lock();
    loop {
        let now = Instant::now();
        let next = state.next(now);
        if state.idle > 0 && !matches!(next, Work::WaitUntil(_)) && state.is_due(now) {
            shared.changed.notify_one();
        }
        match next {
            Work::Read(stored) => {
                drop(state);
                let read = catch_unwind(AssertUnwindSafe(|| ReadyModel::read(&stored)));
                state = shared.lock();
                state.was_read(&stored, read.unwrap_or_else(|_panic| Err(broken())));
            }
            Work::Compute(stored, model, batch) => {
                drop(state);
                compute(&model, batch);
                state = shared.lock();
                state.was_computed(&stored);
            }
            Work::WaitUntil(_) if state.is_ending => break,
            Work::WaitUntil(until) => {
                let wait = until.map_or(IDLE, |until| until.saturating_duration_since(Instant::now()));
                state.idle += 1;
                let waited = shared.changed.wait_timeout(state, wait);
                let timed_out;
                (state, timed_out) = waited.map_or_else(
                    |poisoned| (poisoned.into_inner().0, false),
                    |(state, waited)| (state, waited.timed_out()),
                );
                state.idle -= 1;
                if timed_out && until.is_none() {
                    break;
                }
            }
        }
    }
    state.threads -= 1;
}

/// Computes a batch and tells its clients, of a panic, too.
fn compute(model: &ReadyModel, batch: Vec<Asked>) {
    let calls: Vec<&ModelCall> = batch.iter().map(|asked| asked.call.as_ref()).collect();
    let answers = catch_unwind(AssertUnwindSafe(|| model.answer(&calls)));
    let mut answers = answers.unwrap_or_default().into_iter();
    let mut next = || answers.next().unwrap_or_else(|| Err(broken()));
    ModelDone::tell_all(batch.into_iter().map(|asked| (asked.done, next())));
}

fn broken() -> ModelFailure {
    ModelFailure { reason: "computing the model went wrong".to_owned() }
}
