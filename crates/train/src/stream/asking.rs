//! Asking the store for passes, on a thread of its own: a rank can be interrupted while the store has no answer.

use phalanx_store_client::{StreamError, StreamReader};
use phalanx_streams::{Cursor, PassAnswer, StreamWait};
use phalanx_types::Class;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the store says of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamPass {
    /// It has these samples.
    Sealed(Cursor),
    /// It cannot begin yet, and why, if the store has said so.
    Waiting(Option<StreamDelay>),
    /// There is no such pass: the stream has no more samples.
    Finished,
}

/// Why a pass cannot begin yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamDelay {
    /// The stream's reason.
    Stream(StreamWait),
    /// The store does not answer.
    Unreachable {
        /// What happens when it is asked.
        detail: String,
    },
}

impl StreamDelay {
    /// Whether a checkpoint would help: the store cannot free what may be repeated.
    pub fn needs_checkpoint(&self) -> bool {
        matches!(self, Self::Stream(StreamWait::Uncommitted { .. }))
    }
}

impl fmt::Display for StreamDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(wait) => wait.fmt(f),
            Self::Unreachable { detail } => write!(f, "waiting: the store does not answer: {detail}"),
        }
    }
}

/// A thread that asks.
#[derive(Debug)]
pub(super) struct Asking {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The pass that is wanted, until its answer is final.
    wanted: Option<u64>,
    answer: Option<(u64, StreamPass)>,
    /// Counts answers.
    answers: u64,
    failed: Option<StreamError>,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a pass to be wanted; `None` when there will be none.
    fn wanted(&self) -> Option<u64> {
        let waits = |state: &mut State| !state.closed && state.wanted.is_none();
        let state = self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        state.wanted.filter(|_| !state.closed)
    }

    fn on_answer(&self, pass: u64, answer: StreamPass) {
        let mut state = self.lock();
        if state.wanted == Some(pass) {
            if !matches!(answer, StreamPass::Waiting(_)) {
                state.wanted = None;
            }
            state.answer = Some((pass, answer));
            state.answers += 1;
            self.changed.notify_all();
        }
    }

    fn on_failed(&self, error: StreamError) {
        let mut state = self.lock();
        (state.failed, state.wanted) = (Some(error), None);
        state.answers += 1;
        self.changed.notify_all();
    }
}

impl Asking {
    /// Starts the thread. It ends when this is dropped and the store has answered once more.
    pub(super) fn start(reader: StreamReader) -> Self {
        let shared = Arc::new(Shared::default());
        let other = shared.clone();
        let spawned =
            std::thread::Builder::new().name("stream".to_owned()).spawn(move || ask(&reader, &other));
        if let Err(error) = spawned {
            tracing::error!(%error, "could not start the thread that asks for passes");
        }
        Self { shared }
    }

    /// What the store says of a pass; waits for a new or a final answer.
    pub(super) fn pass(&self, pass: u64, within: Duration) -> Result<StreamPass, StreamError> {
        let until = Instant::now() + within;
        let mut state = self.shared.lock();
        let known =
            |state: &State| state.answer.clone().filter(|(of, _)| *of == pass).map(|(_, answer)| answer);
        let seen = state.answers;
        match known(&state) {
            Some(answer @ (StreamPass::Sealed(_) | StreamPass::Finished)) => return Ok(answer),
            _ => {
                if state.wanted != Some(pass) {
                    state.wanted = Some(pass);
                    self.shared.changed.notify_all();
                }
            }
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // A rank that only looks ahead does not take the error away from one that waits.
            if !within.is_zero()
                && let Some(error) = state.failed.take()
            {
                return Err(error);
            }
            if state.answers > seen || left.is_zero() {
                return Ok(known(&state).unwrap_or(StreamPass::Waiting(None)));
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

fn ask(reader: &StreamReader, shared: &Shared) {
    while let Some(pass) = shared.wanted() {
        match reader.pass(pass, super::ONE_WAIT) {
            Ok(PassAnswer::Sealed(cursor)) => shared.on_answer(pass, StreamPass::Sealed(cursor)),
            Ok(PassAnswer::Finished(_)) => shared.on_answer(pass, StreamPass::Finished),
            Ok(PassAnswer::Waiting(wait)) => {
                shared.on_answer(pass, StreamPass::Waiting(Some(StreamDelay::Stream(wait))));
            }
            Err(error) if error.class() == Class::Retry => {
                let delay = StreamDelay::Unreachable { detail: error.to_string() };
                shared.on_answer(pass, StreamPass::Waiting(Some(delay)));
            }
            Err(error) => return shared.on_failed(error),
        }
    }
}
