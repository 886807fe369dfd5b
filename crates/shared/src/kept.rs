//! Segments of other processes that stay mapped for the next value in them: mapping one takes longer than reading it.

use crate::Segment;
use std::collections::VecDeque;
use std::sync::Arc;

const SEGMENTS: usize = 64;
const BYTES: usize = 512 << 20;

/// See the module.
#[derive(Debug, Default)]
pub struct KeptSegments {
    /// The one used last at the end.
    kept: VecDeque<Arc<Segment>>,
}

impl KeptSegments {
    /// Keeps a segment mapped; those that were not used for the longest time go when there are too many.
    pub fn keep(&mut self, segment: &Arc<Segment>) {
        if segment.is_own() {
            return;
        }
        self.kept.retain(|other| !Arc::ptr_eq(other, segment));
        self.kept.push_back(segment.clone());
        let mut bytes: usize = self.kept.iter().map(|segment| segment.len()).sum();
        while (self.kept.len() > SEGMENTS || bytes > BYTES)
            && let Some(oldest) = self.kept.pop_front()
        {
            bytes -= oldest.len();
        }
    }

    /// Unmaps all that is not in use.
    pub fn clear(&mut self) {
        self.kept.clear();
    }
}
