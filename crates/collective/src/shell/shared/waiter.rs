//! Waiting for words that other processes change.

use super::header::{OVER, STEP};
use super::segment::system;
use crate::error::CollectiveError;
use rustix::io::Errno;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Called with the rank waited for and the time so far.
pub(super) type OnWait = Box<dyn FnMut(usize, Duration) + Send>;

/// How long a rank that has a core of its own spins before it yields.
const ALONE: Duration = Duration::from_micros(20);

/// A word that counts steps, and the number of ranks that sleep until it changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counter<'a> {
    pub(super) word: &'a AtomicU32,
    pub(super) sleepers: &'a AtomicU32,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    Reached,
    Over,
}

impl Counter<'_> {
    /// Counts one step and wakes sleeping ranks. A word that is marked stays unchanged: no rank may consider a call
    /// complete that failed here.
    ///
    /// No wake-up is lost: this function counts and then looks for sleepers; a sleeper announces itself and then looks
    /// at the word. All four accesses are sequentially consistent, so one of the two sees the other.
    pub(super) fn advance(self) -> Waited {
        let counted = |word: u32| (word & OVER == 0).then(|| word.wrapping_add(STEP));
        if self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted).is_err() {
            return Waited::Over;
        }
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
        Waited::Reached
    }

    /// Marks the word, so that every wait for it ends, whatever its value.
    pub(super) fn end(self) {
        self.word.fetch_or(OVER, Ordering::SeqCst);
        self.wake();
    }

    fn wake(self) {
        // Can fail only for a word that is not mapped or not aligned.
        if let Err(error) = futex::wake(self.word, futex::Flags::empty(), i32::MAX as u32) {
            tracing::debug!(%error, "could not wake the ranks that wait");
        }
    }

    fn look(self, target: u32, order: Ordering) -> Result<Waited, u32> {
        let word = self.word.load(order);
        // A step that all ranks reached counts even if the group was aborted since: then all ranks see the same.
        if word.wrapping_sub(target).cast_signed() >= 0 {
            Ok(Waited::Reached)
        } else if word & OVER != 0 {
            Ok(Waited::Over)
        } else {
            Err(word)
        }
    }
}

/// Spins for a while, then sleeps.
pub(super) struct Waiter {
    spin: Duration,
    /// Other ranks need this core to become ready, so it is yielded at every turn.
    yields: bool,
    on_wait: Option<(Duration, OnWait)>,
}

impl Waiter {
    pub(super) fn new(spin: Duration, yields: bool) -> Waiter {
        Waiter { spin, yields, on_wait: None }
    }

    pub(super) fn set_spin(&mut self, spin: Duration) {
        self.spin = spin;
    }

    pub(super) fn set_on_wait(&mut self, after: Duration, on_wait: OnWait) {
        self.on_wait = Some((after, on_wait));
    }

    /// Waits until `counter` has reached `target`; `behind` names the rank waited for.
    pub(super) fn wait(
        &mut self,
        counter: Counter<'_>,
        target: u32,
        behind: impl Fn() -> usize,
    ) -> Result<Waited, CollectiveError> {
        if let Ok(waited) = counter.look(target, Ordering::Acquire) {
            return Ok(waited);
        }
        let start = Instant::now();
        loop {
            let waited = start.elapsed();
            if waited >= self.spin {
                break;
            }
            // The rank waited for may be scheduled on this core, even if there are enough cores.
            if self.yields || waited >= ALONE {
                std::thread::yield_now();
            }
            for _ in 0..16 {
                std::hint::spin_loop();
                if let Ok(waited) = counter.look(target, Ordering::Acquire) {
                    return Ok(waited);
                }
            }
        }
        counter.sleepers.fetch_add(1, Ordering::SeqCst);
        let waited = self.sleep(counter, target, start, behind);
        counter.sleepers.fetch_sub(1, Ordering::SeqCst);
        waited
    }

    fn sleep(
        &mut self,
        counter: Counter<'_>,
        target: u32,
        start: Instant,
        behind: impl Fn() -> usize,
    ) -> Result<Waited, CollectiveError> {
        let timeout = self.on_wait.as_ref().and_then(|(after, _)| futex::Timespec::try_from(*after).ok());
        loop {
            let word = match counter.look(target, Ordering::SeqCst) {
                Ok(waited) => return Ok(waited),
                Err(word) => word,
            };
            match futex::wait(counter.word, futex::Flags::empty(), word, timeout.as_ref()) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::TIMEDOUT) => {
                    if let Some((_, on_wait)) = &mut self.on_wait {
                        on_wait(behind(), start.elapsed());
                    }
                }
                Err(error) => return Err(system("wait for other ranks", error)),
            }
        }
    }
}
