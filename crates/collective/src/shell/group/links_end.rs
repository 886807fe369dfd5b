//! Links that an abort can close between two calls.

use crate::error::CollectiveError;
use crate::shell::links::{Aborter, Links, OnWait};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

/// A leader's links to the other leaders. They are gone once the group is over.
#[derive(Debug)]
pub(super) struct LinksEnd {
    links: Arc<Mutex<Option<Links>>>,
    aborter: Aborter,
}

/// Aborts links from any thread.
#[derive(Debug)]
pub(super) struct LinksAborter {
    links: Weak<Mutex<Option<Links>>>,
    aborter: Aborter,
}

impl LinksEnd {
    pub(super) fn new(links: Links) -> Self {
        let aborter = links.aborter();
        Self { links: Arc::new(Mutex::new(Some(links))), aborter }
    }

    pub(super) fn aborter(&self) -> LinksAborter {
        LinksAborter { links: Arc::downgrade(&self.links), aborter: self.aborter.clone() }
    }

    /// Runs something with the links; `over` says whether the group was aborted.
    ///
    /// An aborting thread first records the abort and then checks whether the links are free. A thread that used the
    /// links first releases them and then checks for an abort. So one of the two closes them.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Links) -> Result<T, CollectiveError>,
        over: impl Fn() -> Option<CollectiveError>,
    ) -> Result<T, CollectiveError> {
        let result = lock(&self.links).as_mut().map(work);
        fence(Ordering::SeqCst);
        let ended = over();
        if ended.is_some() {
            lock(&self.links).take();
        }
        let gone = || CollectiveError::System {
            what: "reach other hosts",
            problem: "the links are closed".to_owned(),
        };
        result.unwrap_or_else(|| Err(ended.unwrap_or_else(gone)))
    }

    pub(super) fn on_wait(&self, after: Duration, call: OnWait) {
        if let Some(links) = lock(&self.links).as_mut() {
            links.on_wait(after, call);
        }
    }
}

impl LinksAborter {
    /// Aborts the current call, or closes the links if there is none: when dropped, they tell the others why.
    pub(super) fn abort(&self, reason: &str) {
        self.aborter.abort(reason.to_owned());
        fence(Ordering::SeqCst);
        let Some(links) = self.links.upgrade() else { return };
        match links.try_lock() {
            Ok(mut links) => drop(links.take()),
            Err(TryLockError::Poisoned(links)) => drop(links.into_inner().take()),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Looks at the last message of a leader that sends nothing more.
    pub(super) fn remains(&self, rank: usize) -> Remains {
        let Some(links) = self.links.upgrade() else { return Remains::Nothing };
        let Ok(links) = links.try_lock() else { return Remains::Unknown };
        let word = links.as_ref().and_then(|links| links.last_word(rank));
        word.map_or(Remains::Nothing, Remains::Reason)
    }
}

/// What a leader that sends nothing more has sent last.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remains {
    /// A call is under way; it will detect an abort.
    Unknown,
    /// The leader left without aborting.
    Nothing,
    Reason(String),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Links that a panic left in the middle of a call fail the next one, because the other ranks see no call that fits.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
