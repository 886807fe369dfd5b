//! Runs that did not fit on a node when their drivers asked.

use phalanx_account::{Holder, NodeAccount, Shortage, WaitGuard};
use phalanx_fabric::Peer;
use phalanx_types::{Needs, RunId};
use phalanx_wire::train::Enlist;
use std::time::Duration;
use tokio::time::Instant;

/// How long a run waits before it is refused. Short jobs and a run that has just ended have left by then.
const REFUSE_AFTER: Duration = Duration::from_millis(500);
/// How long jobs make room for a run that was refused; its driver asks again before.
const KEEP_ROOM: Duration = Duration::from_secs(5);

/// A run that waits for its part of a node.
pub(super) struct Waiting {
    pub(super) driver: Peer,
    /// Until it is refused.
    enlist: Option<Enlist>,
    shortage: Shortage,
    refuse_at: Instant,
    forget_at: Instant,
    turn: WaitGuard,
}

impl Waiting {
    /// Notes that a run waits. One that was known before keeps its turn and its time.
    pub(super) fn new(
        account: &NodeAccount,
        driver: Peer,
        run: RunId,
        needs: Needs,
        enlist: Enlist,
        shortage: Shortage,
        known: Option<Waiting>,
    ) -> Self {
        let now = Instant::now();
        let refuse_at = known.as_ref().map(|known| known.refuse_at).filter(|at| *at > now);
        let turn = known.map(|known| known.turn).unwrap_or_else(|| {
            account.wait_for(Holder::WaitingRun { run, driver: driver.id().clone() }, needs)
        });
        Self {
            driver,
            enlist: Some(enlist),
            shortage,
            refuse_at: refuse_at.unwrap_or(now + REFUSE_AFTER),
            forget_at: now + KEEP_ROOM,
            turn,
        }
    }

    /// Its place in the order of arrival, and what it waits for.
    pub(super) fn turn(&self) -> &WaitGuard {
        &self.turn
    }

    /// When something is to be done about it.
    pub(super) fn due(&self) -> Instant {
        if self.enlist.is_some() { self.refuse_at } else { self.forget_at }
    }

    /// What to try again, unless it was refused.
    pub(super) fn take(&mut self) -> Option<(Peer, Enlist)> {
        Some((self.driver.clone(), self.enlist.take()?))
    }

    /// Why it is refused, if it is time for that.
    pub(super) fn give_up(&mut self) -> Option<Shortage> {
        let due = self.enlist.is_some() && self.refuse_at <= Instant::now();
        due.then(|| {
            self.enlist = None;
            self.shortage.clone()
        })
    }

    /// Whether its driver did not ask again in time.
    pub(super) fn is_over(&self) -> bool {
        self.enlist.is_none() && self.forget_at <= Instant::now()
    }
}
