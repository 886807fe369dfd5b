//! A queue between tasks of the library and threads of Python.

use pyo3::prelude::*;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread waits before it looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);

/// What tasks push and Python takes; ends when it is closed.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    is_closed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let state = State { items: VecDeque::new(), is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

/// What came of taking.
#[derive(Debug)]
pub(crate) enum Taken<T> {
    Items(Vec<T>),
    /// Nothing came in time.
    Late,
    /// Nothing will come any more.
    Closed,
}

impl<T: Send> Queue<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds items; `false` if the queue is closed.
    pub(crate) fn push(&self, items: impl IntoIterator<Item = T>) -> bool {
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        state.items.extend(items);
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Wakes all who wait; what is queued can still be taken.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// Takes up to `most` items; waits for the first without the interpreter's lock, and looks for Ctrl-C meanwhile.
    pub(crate) fn take(&self, py: Python<'_>, most: usize, timeout: Option<Duration>) -> PyResult<Taken<T>> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let left = until.map_or(TICK, |until| TICK.min(until.saturating_duration_since(Instant::now())));
            let taken = py.detach(|| self.take_within(most, left));
            match taken {
                Taken::Late if until.is_none_or(|until| Instant::now() < until) => py.check_signals()?,
                taken => return Ok(taken),
            }
        }
    }

    fn take_within(&self, most: usize, timeout: Duration) -> Taken<T> {
        let nothing = |state: &mut State<T>| state.items.is_empty() && !state.is_closed;
        let waited = self.changed.wait_timeout_while(self.state(), timeout, nothing);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.items.is_empty() {
            return if state.is_closed { Taken::Closed } else { Taken::Late };
        }
        let count = most.min(state.items.len());
        Taken::Items(state.items.drain(..count).collect())
    }
}
