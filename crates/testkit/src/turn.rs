//! Which tests of one binary may run in parallel.
//!
//! Most tests share the machine; a test that measures time or memory runs alone. A test that waits to be alone holds
//! back tests that have not begun, so it waits only for the tests that are running.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// The turns of this process, which is one test binary.
static TURNS: Turns = Turns::new();

/// The right of a test to run until this value is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: &'static Turns,
    holder: ThreadId,
}

impl Turn {
    /// Waits until no test runs alone or waits to.
    pub(crate) fn shared() -> Self {
        TURNS.take(TurnKind::Shared)
    }

    /// Waits until no other test runs.
    pub(crate) fn alone() -> Self {
        TURNS.take(TurnKind::Alone)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.give_back(self.holder);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnKind {
    Shared,
    Alone,
}

#[derive(Debug)]
struct Turns {
    state: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Debug)]
struct TurnState {
    /// Turns held by each thread: a test may have several sandboxes.
    holders: Vec<(ThreadId, usize)>,
    alone: bool,
    /// Tests that wait to be alone.
    waiting: usize,
}

impl TurnState {
    fn is_free(&self, kind: TurnKind) -> bool {
        match kind {
            TurnKind::Shared => !self.alone && self.waiting == 0,
            TurnKind::Alone => self.holders.is_empty(),
        }
    }
}

impl Turns {
    const fn new() -> Self {
        let state = TurnState { holders: Vec::new(), alone: false, waiting: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// A panicking test leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&'static self, kind: TurnKind) -> Turn {
        let holder = std::thread::current().id();
        let mut state = self.lock();
        if let Some((_, held)) = state.holders.iter_mut().find(|(thread, _)| *thread == holder) {
            *held += 1;
            assert!(
                kind == TurnKind::Shared || state.alone,
                "a test that shares the machine cannot have it alone"
            );
            return Turn { turns: self, holder };
        }
        let waits = usize::from(kind == TurnKind::Alone);
        state.waiting += waits;
        self.changed.notify_all();
        let waited = self.changed.wait_while(state, |state| !state.is_free(kind));
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= waits;
        state.alone = kind == TurnKind::Alone;
        state.holders.push((holder, 1));
        Turn { turns: self, holder }
    }

    fn give_back(&self, holder: ThreadId) {
        let mut state = self.lock();
        if let Some((_, held)) = state.holders.iter_mut().find(|(thread, _)| *thread == holder) {
            *held -= 1;
        }
        state.holders.retain(|(_, held)| *held > 0);
        state.alone &= !state.holders.is_empty();
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    const DEADLINE: Duration = Duration::from_secs(20);

    fn turns() -> &'static Turns {
        Box::leak(Box::new(Turns::new()))
    }

    /// A thread that takes a turn, reports it, and gives it back on request.
    struct Test {
        began: Receiver<()>,
        end: Sender<()>,
        thread: std::thread::JoinHandle<()>,
    }

    impl Test {
        fn start(turns: &'static Turns, kind: TurnKind) -> Self {
            let ((begin, began), (end, ended)) = (channel(), channel());
            let thread = std::thread::spawn(move || {
                let _turn = turns.take(kind);
                begin.send(()).unwrap();
                ended.recv_timeout(DEADLINE).unwrap();
            });
            Self { began, end, thread }
        }

        fn begins(&self) {
            self.began.recv_timeout(DEADLINE).unwrap();
        }

        fn waits(&self) -> bool {
            self.began.try_recv().is_err()
        }

        fn ends(self) {
            self.end.send(()).unwrap();
            self.thread.join().unwrap();
        }
    }

    fn until_waiting(turns: &Turns) {
        let waited = turns.changed.wait_timeout_while(turns.lock(), DEADLINE, |state| state.waiting == 0);
        assert!(!waited.unwrap().1.timed_out(), "it never waited");
    }

    #[test]
    fn tests_share_the_machine() {
        let turns = turns();
        let tests = [TurnKind::Shared, TurnKind::Shared].map(|kind| Test::start(turns, kind));
        tests.iter().for_each(Test::begins);
        tests.into_iter().for_each(Test::ends);
    }

    #[test]
    fn a_test_that_is_alone_waits_for_the_running_ones_and_holds_back_the_rest() {
        let turns = turns();
        let running = Test::start(turns, TurnKind::Shared);
        running.begins();
        let alone = Test::start(turns, TurnKind::Alone);
        until_waiting(turns);
        let late = Test::start(turns, TurnKind::Shared);
        assert!(alone.waits() && late.waits());
        running.ends();
        alone.begins();
        assert!(late.waits(), "it began beside a test that is alone");
        alone.ends();
        late.begins();
        late.ends();
    }

    #[test]
    fn a_test_with_two_sandboxes_does_not_wait_for_itself() {
        let turns = turns();
        let first = turns.take(TurnKind::Shared);
        let alone = Test::start(turns, TurnKind::Alone);
        until_waiting(turns);
        let second = turns.take(TurnKind::Shared);
        drop(first);
        assert!(alone.waits(), "the test still has a sandbox");
        drop(second);
        alone.begins();
        alone.ends();
        let _twice = [TurnKind::Alone, TurnKind::Shared, TurnKind::Alone].map(|kind| turns.take(kind));
    }
}
