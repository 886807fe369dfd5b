//! What a run may hold on this node of what its driver sends: bytes that are being fetched or wait for the replica.

use phalanx_types::ByteSize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counted for each fetch besides its bytes: it has a task and a buffer.
const EACH: u64 = 64 << 10;
/// What any run may hold. An estimate of a small model does not count how its state is packed.
const LEAST: u64 = 64 << 20;

/// The bytes of one run.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    used: AtomicU64,
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

/// The longest file that a node with this much memory fetches. One that does not say how much it has fetches any.
pub fn longest_file(memory: ByteSize) -> u64 {
    match memory.0 {
        0 => u64::MAX,
        memory => memory.max(LEAST),
    }
}

impl Budget {
    /// For a run that has claimed this much of a node's memory.
    pub(super) fn new(claimed: ByteSize, of: ByteSize) -> Arc<Self> {
        let limit = claimed.0.min(longest_file(of));
        let limit = if of.0 == 0 { u64::MAX } else { limit.max(LEAST) };
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Counts bytes that are to be fetched; none if the run has no room for them.
    pub(super) fn charge(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let bytes = bytes.saturating_add(EACH);
        let add = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit.saturating_add(EACH));
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()?;
        Some(Charge { budget: self.clone(), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_holds_no_more_than_it_has_claimed() {
        let budget = Budget::new(ByteSize(LEAST * 2), ByteSize(LEAST * 8));
        assert!(budget.charge(u64::MAX).is_none() && budget.charge(LEAST * 2 + 1).is_none());
        let first = budget.charge(LEAST).unwrap();
        assert!(budget.charge(LEAST + 1).is_none());
        drop(first);
        drop(budget.charge(LEAST * 2).unwrap());
        assert_eq!(Budget::new(ByteSize(1), ByteSize(LEAST * 8)).limit(), LEAST);
        assert_eq!(Budget::new(ByteSize(0), ByteSize(0)).limit(), u64::MAX);
        // Empty fetches count, too.
        let empty: Vec<_> = std::iter::from_fn(|| budget.charge(0)).collect();
        assert_eq!(empty.len() as u64, (LEAST * 2 + EACH) / EACH);
    }
}
