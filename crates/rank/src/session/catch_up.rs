//! A replica that has come new catches up with the others while they go on.
//!
//! ```text
//!   the group forms at step s:  those who hold the state copy a part of it each, and go on
//!   new replica:                takes part in every exchange from s on, without samples, and remembers the sums
//!                               parts come from several others at once ──► state of step s
//!                               sums of s+1, s+2 … are applied as they were everywhere ──► level
//! ```
//! The others wait for nothing but the copy. A replica that falls too far behind gets the state as it is, while all
//! wait.

use crate::error::RankError;
use bytes::Bytes;
use phalanx_records::ModelState;
use std::collections::VecDeque;

/// The most others that a state comes from.
pub(super) const MOST_HOLDERS: usize = 4;
/// A state of fewer bytes is given to a new replica at once, while all wait.
pub(super) const SMALL: usize = 64 << 10;
/// Steps that a replica remembers at most until it is late.
const MOST_STEPS: usize = 256;
/// Bytes of sums that it remembers at most.
const MOST_BYTES: usize = 1 << 30;
/// Remembered steps that are applied after one step of the group: enough to come nearer, not so many as to keep the
/// others waiting.
const AT_ONCE: usize = 4;

/// What a new replica has of the state so far.
#[derive(Debug)]
pub(super) struct CatchUp {
    parts: Vec<Option<ModelState>>,
    /// Whether the parts are put together.
    whole: bool,
    log: VecDeque<Logged>,
    sums: usize,
}

/// A step that the others did.
#[derive(Debug)]
pub(super) struct Logged {
    pub(super) sums: Vec<f32>,
    pub(super) norm: f64,
    pub(super) lr: f32,
}

impl CatchUp {
    /// Waits for so many parts; `sums` is how many gradients a step has.
    pub(super) fn new(parts: usize, sums: usize) -> Self {
        let parts = (0..parts).map(|_| None).collect();
        Self { parts, whole: false, log: VecDeque::new(), sums }
    }

    /// A part has come; the whole state, when it was the last.
    pub(super) fn on_part(&mut self, part: usize, bytes: Bytes) -> Result<Option<ModelState>, RankError> {
        let state = ModelState::from_bytes(bytes)?;
        if let Some(place) = self.parts.get_mut(part) {
            *place = Some(state);
        }
        if self.whole || self.parts.iter().any(Option::is_none) {
            return Ok(None);
        }
        self.whole = true;
        let mut all = ModelState::default();
        for part in self.parts.iter_mut().filter_map(Option::take) {
            all.optimizer_steps = part.optimizer_steps;
            all.weights.extend(part.weights);
            all.optimizer.extend(part.optimizer);
        }
        Ok(Some(all))
    }

    pub(super) fn remember(&mut self, step: Logged) {
        self.log.push_back(step);
    }

    /// The steps to apply now, when there is something to apply them to.
    pub(super) fn due(&mut self) -> impl Iterator<Item = Logged> {
        let count = if self.whole { self.log.len().min(AT_ONCE) } else { 0 };
        self.log.drain(..count)
    }

    pub(super) fn is_level(&self) -> bool {
        self.whole && self.log.is_empty()
    }

    pub(super) fn is_late(&self) -> bool {
        let most = (MOST_BYTES / (4 * self.sums).max(1)).clamp(2, MOST_STEPS);
        self.log.len() >= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_graph::Weights;
    use phalanx_types::Tensor;

    fn part(name: &str, steps: u64) -> Bytes {
        let tensor = Tensor::from_f32(vec![1], &[1.0]).unwrap();
        let weights = Weights::from_iter([(name.to_owned(), tensor)]);
        let state = ModelState { optimizer_steps: steps, weights, ..ModelState::default() };
        state.to_bytes().unwrap().into()
    }

    fn step(lr: f32) -> Logged {
        Logged { sums: vec![0.0], norm: 1.0, lr }
    }

    #[test]
    fn parts_come_in_any_order_and_steps_are_applied_in_theirs() {
        let mut catch_up = CatchUp::new(2, 1);
        (0..6u8).for_each(|i| catch_up.remember(step(f32::from(i))));
        assert_eq!(catch_up.due().count(), 0);
        assert!(catch_up.on_part(1, part("b", 7)).unwrap().is_none());
        let state = catch_up.on_part(0, part("a", 7)).unwrap().unwrap();
        assert_eq!((state.weights.len(), state.steps()), (2, 7));
        assert_eq!(catch_up.due().map(|step| step.lr).collect::<Vec<_>>(), [0.0, 1.0, 2.0, 3.0]);
        assert!(!catch_up.is_level());
        assert_eq!(catch_up.due().map(|step| step.lr).collect::<Vec<_>>(), [4.0, 5.0]);
        assert!(catch_up.is_level() && !catch_up.is_late());
    }

    #[test]
    fn who_remembers_too_much_is_late() {
        let mut catch_up = CatchUp::new(1, MOST_BYTES / 16);
        (0..3u8).for_each(|i| catch_up.remember(step(f32::from(i))));
        assert!(!catch_up.is_late());
        catch_up.remember(step(3.0));
        assert!(catch_up.is_late());
    }
}
