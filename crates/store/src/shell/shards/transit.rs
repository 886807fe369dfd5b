//! Memory of commands and replies that only pass through this node.

use crate::shell::hub::Hub;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all commands in transit may take beside the memory limit: a node whose memory is full still passes them on.
const RESERVE: u64 = 256 << 20;

/// The part of the reserve that is used.
#[derive(Debug, Default)]
pub(crate) struct TransitReserve(AtomicU64);

impl TransitReserve {
    fn take(&self, len: u64) -> bool {
        let used = self.0.fetch_add(len, Ordering::Relaxed).saturating_add(len);
        let fits = used <= RESERVE;
        if !fits {
            self.give_back(len);
        }
        fits
    }

    fn give_back(&self, len: u64) {
        self.0.fetch_sub(len, Ordering::Relaxed);
    }
}

/// What one client's command and its reply take: of the reserve, and when that is used up, of the memory limit.
pub(crate) struct Transit {
    hub: Arc<Hub>,
    reserved: u64,
    admitted: u64,
}

impl fmt::Debug for Transit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transit")
            .field("reserved", &self.reserved)
            .field("admitted", &self.admitted)
            .finish_non_exhaustive()
    }
}

impl Transit {
    pub(crate) fn new(hub: Arc<Hub>) -> Self {
        Self { hub, reserved: 0, admitted: 0 }
    }

    /// Takes over bytes that the hub has admitted.
    pub(crate) fn adopt(&mut self, admitted: u64) {
        self.admitted += admitted;
    }

    /// The bytes that are counted.
    pub(crate) fn len(&self) -> u64 {
        self.reserved + self.admitted
    }

    /// Counts more bytes; false if there is no room for them.
    pub(crate) fn take(&mut self, len: u64) -> bool {
        if self.hub.shards().is_some_and(|shards| shards.reserve().take(len)) {
            self.reserved += len;
            return true;
        }
        let fits = self.hub.admit(len);
        if fits {
            self.admitted += len;
        }
        fits
    }
}

impl Drop for Transit {
    fn drop(&mut self) {
        if let Some(shards) = self.hub.shards() {
            shards.reserve().give_back(self.reserved);
        }
        self.hub.arrived(self.admitted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_bounded_and_given_back() {
        let reserve = TransitReserve::default();
        assert!(reserve.take(RESERVE));
        assert!(!reserve.take(1));
        reserve.give_back(10);
        assert!(!reserve.take(11));
        assert!(reserve.take(10));
    }
}
