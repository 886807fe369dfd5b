use crate::bugs::{StreamBug, planted};
use phalanx_types::Incarnation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What is remembered of a producer.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerState {
    pub(super) incarnation: Incarnation,
    /// All uploads below this number have arrived.
    below: u64,
    /// Uploads that arrived before an earlier one did.
    above: BTreeSet<u64>,
    pub(super) closed: bool,
}

impl ProducerState {
    /// The newest of its lives.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Whether it has no more samples.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The first of its uploads that has not arrived.
    pub fn next_upload(&self) -> u64 {
        self.below
    }

    /// Whether this upload has arrived, in any of its lives.
    pub fn has(&self, number: u64) -> bool {
        number < self.below || self.above.contains(&number)
    }

    /// Counts an upload; false if it was counted before.
    pub(super) fn accept(&mut self, number: u64) -> bool {
        if self.has(number) {
            return planted(StreamBug::CountsUploadsTwice);
        }
        self.above.insert(number);
        while self.above.remove(&self.below) {
            self.below += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_count_once_in_any_order() {
        let mut producer = ProducerState::default();
        assert!([2, 0, 3].into_iter().all(|number| producer.accept(number)));
        assert_eq!((producer.next_upload(), producer.has(2), producer.has(1)), (1, true, false));
        assert!(!producer.accept(2) && !producer.accept(0));
        assert!(producer.accept(1));
        assert_eq!((producer.next_upload(), producer.above.len()), (4, 0));
    }
}
