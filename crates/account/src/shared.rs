//! The account as the services of a node share it.

use crate::core::{Account, ClaimId};
use phalanx_types::Needs;
use phalanx_wire::usage::{Holder, NodeUse, Shortage};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The account of a node; clones are handles of the same one.
#[derive(Debug, Clone)]
pub struct NodeAccount(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    account: Mutex<Account>,
    /// The version of what jobs cannot have.
    taken: watch::Sender<u64>,
    /// Counts what was given back while a claim waited, or by a claim.
    freed: watch::Sender<u64>,
}

impl NodeAccount {
    /// An account of which nothing is used.
    pub fn new(capacity: Needs) -> Self {
        let account = Mutex::new(Account::new(capacity));
        Self(Arc::new(Shared { account, taken: watch::Sender::new(0), freed: watch::Sender::new(0) }))
    }

    /// All that the node has.
    pub fn capacity(&self) -> Needs {
        self.0.lock().capacity()
    }

    /// Who uses how much at this moment.
    pub fn uses(&self) -> Vec<NodeUse> {
        self.0.lock().uses()
    }

    /// Claims a part of the node for as long as what it returns lives.
    ///
    /// # Errors
    /// It does not fit beside what is in use and what waiting claims are next for.
    pub fn try_claim(&self, holder: Holder, needs: Needs) -> Result<ClaimGuard, Shortage> {
        let id = self.0.change(|account| account.try_claim(holder, needs))?;
        Ok(ClaimGuard { shared: self.0.clone(), id, needs })
    }

    /// Gives a claim that did not fit its place in the order of arrival, for as long as what it returns lives. Jobs make
    /// room for it.
    pub fn wait_for(&self, holder: Holder, needs: Needs) -> WaitGuard {
        let id = self.0.change(|account| account.wait_for(holder, needs));
        WaitGuard { shared: self.0.clone(), id, needs }
    }

    /// Access for the jobs of the node. Nobody claims anything while it lives, so keep it for as long as a decision
    /// takes.
    pub fn jobs(&self) -> JobsAccess<'_> {
        JobsAccess { account: self.0.lock(), freed: &self.0.freed }
    }

    /// Changes whenever jobs may use more or less than before.
    pub fn taken_changes(&self) -> watch::Receiver<u64> {
        self.0.taken.subscribe()
    }

    /// Changes whenever a claim that did not fit is worth another try.
    pub fn freed_changes(&self) -> watch::Receiver<u64> {
        self.0.freed.subscribe()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the account, then tells the jobs of the node what they may use from now on.
    fn change<T>(&self, change: impl FnOnce(&mut Account) -> T) -> T {
        let (changed, version) = {
            let mut account = self.lock();
            (change(&mut account), account.version())
        };
        self.taken.send_if_modified(|known| {
            let newer = *known < version;
            *known = version.max(*known);
            newer
        });
        changed
    }
}

/// A claim; the part is free again when this is dropped.
#[derive(Debug)]
pub struct ClaimGuard {
    shared: Arc<Shared>,
    id: ClaimId,
    needs: Needs,
}

impl ClaimGuard {
    /// What it holds.
    pub fn needs(&self) -> Needs {
        self.needs
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        self.shared.change(|account| account.release(self.id));
        self.shared.freed.send_modify(|count| *count += 1);
    }
}

/// A claim that waits; it waits no more when this is dropped.
#[derive(Debug)]
pub struct WaitGuard {
    shared: Arc<Shared>,
    id: ClaimId,
    needs: Needs,
}

impl WaitGuard {
    /// What it waits for.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// Its place in the order of arrival.
    pub fn place(&self) -> ClaimId {
        self.id
    }

    /// Claims what it waits for, in its turn.
    ///
    /// # Errors
    /// It does not fit beside what is in use and what earlier waiting claims are next for.
    pub fn try_claim(&self, holder: Holder) -> Result<ClaimGuard, Shortage> {
        let (shared, needs) = (self.shared.clone(), self.needs);
        let id = shared.change(|account| account.claim_in_turn(self.id, holder, needs))?;
        Ok(ClaimGuard { shared, id, needs })
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        if self.shared.change(|account| account.give_up(self.id)) {
            // Later claims may fit now.
            self.shared.freed.send_modify(|count| *count += 1);
        }
    }
}

/// Exclusive access of the jobs of a node to its account.
#[derive(Debug)]
pub struct JobsAccess<'a> {
    account: MutexGuard<'a, Account>,
    freed: &'a watch::Sender<u64>,
}

impl JobsAccess<'_> {
    /// The version of [`JobsAccess::taken`].
    pub fn version(&self) -> u64 {
        self.account.version()
    }

    /// What jobs cannot have.
    pub fn taken(&self) -> Vec<NodeUse> {
        self.account.taken()
    }

    /// Says what jobs use from now on, and how many run.
    pub fn set(&mut self, running: u32, needs: Needs) {
        let before = self.account.jobs();
        if let Err(shortage) = self.account.set_jobs(running, needs) {
            // The share that jobs were given excludes this.
            tracing::error!(%shortage, "jobs use more than their share of this node");
            debug_assert!(false, "jobs use more than their share: {shortage}");
        }
        let less = needs.cores < before.cores || needs.memory < before.memory;
        if less && self.account.is_awaited() {
            self.freed.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::{ByteSize, RunId};

    fn needs(cores: u32) -> Needs {
        Needs { cores, memory: ByteSize(0) }
    }

    fn run() -> Holder {
        Holder::Run { run: RunId(1), driver: "main-4f2a".parse().unwrap() }
    }

    #[test]
    fn a_claim_ends_with_its_guard_and_jobs_hear_of_it() {
        let account = NodeAccount::new(needs(2));
        let (mut taken, mut freed) = (account.taken_changes(), account.freed_changes());
        let claim = account.try_claim(run(), needs(2)).unwrap();
        assert_eq!((claim.needs(), account.uses().len()), (needs(2), 1));
        assert!(taken.has_changed().unwrap() && !freed.has_changed().unwrap());
        taken.mark_unchanged();
        assert!(account.try_claim(run(), needs(1)).is_err());
        assert!(!taken.has_changed().unwrap(), "nothing was taken");
        drop(claim);
        assert!(taken.has_changed().unwrap() && freed.has_changed().unwrap());
        freed.mark_unchanged();
        assert_eq!(account.uses(), []);
    }

    #[test]
    fn a_claim_that_waits_for_jobs_hears_when_they_use_less() {
        let account = NodeAccount::new(needs(2));
        let mut freed = account.freed_changes();
        account.jobs().set(2, needs(2));
        account.jobs().set(1, needs(1));
        assert!(!freed.has_changed().unwrap(), "nobody waits");
        let waiting = account.wait_for(run(), needs(2));
        assert_eq!(account.jobs().taken().len(), 1);
        account.jobs().set(0, needs(0));
        assert!(freed.has_changed().unwrap());
        freed.mark_unchanged();
        drop(waiting);
        assert_eq!(account.jobs().taken(), []);
    }

    #[test]
    fn a_later_claim_hears_when_an_earlier_one_gives_up() {
        let account = NodeAccount::new(needs(2));
        let running = account.try_claim(run(), needs(1)).unwrap();
        let first = account.wait_for(run(), needs(2));
        let second = account.wait_for(run(), needs(1));
        assert!(first.place() < second.place());
        assert!(account.try_claim(run(), needs(1)).is_err() && second.try_claim(run()).is_err());
        let mut freed = account.freed_changes();
        drop(first);
        assert!(freed.has_changed().unwrap());
        freed.mark_unchanged();
        let claim = second.try_claim(run()).unwrap();
        drop(second);
        assert!(!freed.has_changed().unwrap(), "its wait has ended before");
        drop((running, claim));
        assert_eq!(account.uses(), []);
    }

    #[test]
    fn many_threads_together_never_claim_more_than_there_is() {
        let account = NodeAccount::new(needs(3));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..2_000 {
                        let claim = account.try_claim(run(), needs(1 + round % 2));
                        let used: u32 = account.uses().iter().map(|part| part.cores).sum();
                        assert!(used <= 3, "{used} of 3 cores in use");
                        drop(claim);
                    }
                });
            }
        });
        assert_eq!(account.uses(), []);
    }
}
