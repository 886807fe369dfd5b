//! The account itself: capacity, claims, and claims that wait.

#[cfg(test)]
mod tests;

use phalanx_types::{ByteSize, Needs};
use phalanx_wire::usage::{Holder, NodeUse, Shortage, free, shorten, sum};
use std::collections::BTreeMap;

/// A claim, numbered by its account and never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub u64);

/// Shares the cores and the memory of a node out.
///
/// Claims are served in order of their arrival. A claim that does not fit waits, and what it needs is set aside: a later
/// claim gets only what would be left if every earlier one were served now. So no later claim delays an earlier one,
/// however small it is. The price is that later claims wait for room which no claim uses yet; jobs use that room
/// meanwhile, since they leave it again soon.
///
/// Jobs come and go too fast for a claim each. All of them together hold one claim, which [`Account::set_jobs`] changes.
/// Every other holder has claims of its own.
#[derive(Debug, Clone)]
pub struct Account {
    capacity: Needs,
    jobs: (u32, Needs),
    claims: BTreeMap<ClaimId, NodeUse>,
    /// Claims that did not fit, in order of arrival.
    waiting: BTreeMap<ClaimId, NodeUse>,
    next: u64,
    version: u64,
}

impl Account {
    /// An account of which nothing is used.
    pub fn new(capacity: Needs) -> Self {
        Self {
            capacity,
            jobs: (0, Needs { cores: 0, memory: ByteSize(0) }),
            claims: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
            version: 0,
        }
    }

    /// All that the node has.
    pub fn capacity(&self) -> Needs {
        self.capacity
    }

    /// What nobody uses.
    pub fn free(&self) -> Needs {
        free(self.capacity, &self.all_uses())
    }

    /// Grows whenever [`Account::taken`] changes.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Claims a part of the node, after all claims that wait.
    ///
    /// # Errors
    /// It does not fit beside what is in use and what waiting claims are next for.
    pub fn try_claim(&mut self, holder: Holder, needs: Needs) -> Result<ClaimId, Shortage> {
        self.claim_before(ClaimId(u64::MAX), holder, needs)
    }

    /// Claims a part of the node in the turn of a claim that waits, which then waits no more. A wait that has ended has
    /// lost its turn.
    ///
    /// # Errors
    /// It does not fit beside what is in use and what earlier waiting claims are next for.
    pub fn claim_in_turn(
        &mut self,
        waiting: ClaimId,
        holder: Holder,
        needs: Needs,
    ) -> Result<ClaimId, Shortage> {
        if !self.waiting.contains_key(&waiting) {
            return self.try_claim(holder, needs);
        }
        let claim = self.claim_before(waiting, holder, needs)?;
        self.waiting.remove(&waiting);
        Ok(claim)
    }

    /// Claims a part of the node after the waiting claims that arrived before `turn`.
    fn claim_before(&mut self, turn: ClaimId, holder: Holder, needs: Needs) -> Result<ClaimId, Shortage> {
        let earlier = self.waiting.range(..turn).map(|(_, part)| part.clone());
        let uses: Vec<NodeUse> = self.all_uses().into_iter().chain(earlier).collect();
        let left = free(self.capacity, &uses);
        if !needs.fit(left.cores, left.memory) {
            return Err(Shortage { needed: needs, capacity: self.capacity, uses: shorten(uses) });
        }
        let id = self.next_id();
        self.claims.insert(id, NodeUse { holder, cores: needs.cores, memory: needs.memory });
        Ok(id)
    }

    /// Ends a claim. One that has ended is left as it is.
    pub fn release(&mut self, claim: ClaimId) {
        if self.claims.remove(&claim).is_some() {
            self.version += 1;
        }
    }

    /// Gives a claim that did not fit its place in the order of arrival, until [`Account::give_up`] or
    /// [`Account::claim_in_turn`].
    ///
    /// No new jobs are started on its part while it would be served if there were none. A claim that waits for other
    /// claims does not keep cores idle.
    pub fn wait_for(&mut self, holder: Holder, needs: Needs) -> ClaimId {
        let id = self.next_id();
        self.waiting.insert(id, NodeUse { holder, cores: needs.cores, memory: needs.memory });
        id
    }

    /// Ends a wait, and says whether it had not ended before.
    pub fn give_up(&mut self, waiting: ClaimId) -> bool {
        let waited = self.waiting.remove(&waiting).is_some();
        self.version += u64::from(waited);
        waited
    }

    /// Whether a claim waits.
    pub fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What jobs cannot have: all claims, and the waiting claims that only wait for jobs.
    pub fn taken(&self) -> Vec<NodeUse> {
        let mut taken: Vec<NodeUse> = self.claims.values().cloned().collect();
        let mut left = free(self.capacity, &taken);
        for part in self.waiting.values() {
            if part.needs().fit(left.cores, left.memory) {
                taken.push(part.clone());
            }
            left = free(left, std::slice::from_ref(part));
        }
        shorten(taken)
    }

    /// What jobs may use together. They may still be using more when a claim has begun to wait for them.
    pub fn jobs_share(&self) -> Needs {
        free(self.capacity, &self.taken())
    }

    /// Says what jobs use together, and how many run.
    ///
    /// # Errors
    /// It does not fit beside the claims; the account is left as it was.
    pub fn set_jobs(&mut self, running: u32, needs: Needs) -> Result<(), Shortage> {
        let claims: Vec<NodeUse> = self.claims.values().cloned().collect();
        let left = free(self.capacity, &claims);
        if !needs.fit(left.cores, left.memory) {
            return Err(Shortage { needed: needs, capacity: self.capacity, uses: shorten(claims) });
        }
        self.jobs = (running, needs);
        Ok(())
    }

    /// What jobs use together.
    pub fn jobs(&self) -> Needs {
        self.jobs.1
    }

    /// Who uses how much. Its sum is never more than the capacity.
    pub fn uses(&self) -> Vec<NodeUse> {
        shorten(self.all_uses())
    }

    fn all_uses(&self) -> Vec<NodeUse> {
        let (running, Needs { cores, memory }) = self.jobs;
        let jobs = NodeUse { holder: Holder::Jobs { running }, cores, memory };
        let jobs = (running > 0 || cores > 0 || memory.0 > 0).then_some(jobs);
        jobs.into_iter().chain(self.claims.values().cloned()).collect()
    }

    fn next_id(&mut self) -> ClaimId {
        self.next += 1;
        self.version += 1;
        ClaimId(self.next)
    }

    /// Panics when the books do not balance; for tests and the simulator.
    ///
    /// # Panics
    /// More is in use than the node has.
    pub fn check_invariants(&self) {
        let used = sum(&self.all_uses());
        let capacity = self.capacity;
        assert!(used.fit(capacity.cores, capacity.memory), "{used:?} of {capacity:?} in use");
        assert_eq!(sum(&self.uses()), used, "a shortened list has the same sum");
    }
}
