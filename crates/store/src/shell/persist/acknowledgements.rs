use crate::core::ClientId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The number of a record in the order of the journal; 0 for none, which is recorded always.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordNumber(pub(crate) u64);

impl RecordNumber {
    pub(crate) const NONE: RecordNumber = RecordNumber(0);
}

/// What became of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is on its way to the journal.
    Waiting,
    /// It is acknowledged under the chosen durability.
    Recorded,
    /// It was taken back; the text is for clients.
    Failed(Arc<str>),
}

/// Which records are recorded, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct Acknowledgements {
    /// All records up to this one are recorded, but for those that failed.
    settled: AtomicU64,
    has_failures: AtomicBool,
    state: Mutex<AckState>,
}

#[derive(Debug, Default)]
struct AckState {
    failures: Vec<FailedRecords>,
    wakers: BTreeMap<(RecordNumber, ClientId), Waker>,
}

/// Records that failed together.
#[derive(Debug)]
struct FailedRecords {
    first: RecordNumber,
    last: RecordNumber,
    text: Arc<str>,
}

impl Acknowledgements {
    fn state(&self) -> MutexGuard<'_, AckState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settled(&self) -> RecordNumber {
        RecordNumber(self.settled.load(Ordering::Acquire))
    }

    pub(crate) fn standing(&self, number: RecordNumber) -> Standing {
        if number == RecordNumber::NONE {
            return Standing::Recorded;
        }
        let settled = number <= self.settled();
        if !self.has_failures.load(Ordering::Acquire) {
            return if settled { Standing::Recorded } else { Standing::Waiting };
        }
        self.state().standing(number, settled)
    }

    /// Records up to this one are recorded.
    pub(crate) fn settle(&self, number: RecordNumber) {
        self.settled.fetch_max(number.0, Ordering::AcqRel);
        let mut state = self.state();
        let later = state.wakers.split_off(&(RecordNumber(number.0 + 1), ClientId(0)));
        let woken = std::mem::replace(&mut state.wakers, later);
        drop(state);
        woken.into_values().for_each(Waker::wake);
    }

    /// Records of this range were taken back.
    pub(crate) fn fail(&self, first: RecordNumber, last: RecordNumber, text: Arc<str>) {
        let mut state = self.state();
        match state.failures.last_mut() {
            // A disk that stays full adds nothing here.
            Some(before) if before.last.0 + 1 >= first.0 && before.text == text => before.last = last,
            _ => state.failures.push(FailedRecords { first, last, text }),
        }
        self.has_failures.store(true, Ordering::Release);
        let woken = std::mem::take(&mut state.wakers);
        drop(state);
        woken.into_values().for_each(Waker::wake);
    }

    /// Wakes all connections that wait, to look again.
    pub(crate) fn wake_all(&self) {
        let woken = std::mem::take(&mut self.state().wakers);
        woken.into_values().for_each(Waker::wake);
    }

    /// What became of a record; its client is woken when that is decided.
    pub(crate) fn poll(
        &self,
        number: RecordNumber,
        client: ClientId,
        context: &mut Context<'_>,
    ) -> Poll<Standing> {
        match self.standing(number) {
            Standing::Waiting => {}
            decided => return Poll::Ready(decided),
        }
        let mut state = self.state();
        // It may have been decided before the lock was taken.
        match state.standing(number, number <= self.settled()) {
            Standing::Waiting => {
                state.wakers.insert((number, client), context.waker().clone());
                Poll::Pending
            }
            decided => Poll::Ready(decided),
        }
    }

    /// Wakes a client when the next record is decided.
    pub(crate) fn wake_at_next(&self, client: ClientId, context: &mut Context<'_>) {
        let mut state = self.state();
        let next = RecordNumber(self.settled().0 + 1);
        state.wakers.insert((next, client), context.waker().clone());
    }
}

impl AckState {
    fn standing(&self, number: RecordNumber, settled: bool) -> Standing {
        let failed = self.failures.iter().rev().find(|range| range.first <= number && number <= range.last);
        match failed {
            Some(range) => Standing::Failed(range.text.clone()),
            None if settled => Standing::Recorded,
            None => Standing::Waiting,
        }
    }
}
