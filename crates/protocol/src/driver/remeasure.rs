//! When nodes that are not used are measured and evaluated again: what slowed them down may be over.

use phalanx_types::{NodeId, Time};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long until the first time; the pause doubles each time, up to the longest.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(600);

/// When unused nodes are measured again.
#[derive(Debug, Default)]
pub(super) struct Remeasure {
    /// Nodes that were unused at some time, as the user knows.
    told: BTreeSet<NodeId>,
    waited: Duration,
    at: Option<Time>,
}

impl Remeasure {
    /// These nodes are not used; returns whether that is news of one of them.
    pub(super) fn on_unused(&mut self, now: Time, nodes: &[NodeId]) -> bool {
        let before = self.told.len();
        self.told.extend(nodes.iter().cloned());
        let news = self.told.len() > before;
        if news {
            self.waited = Duration::ZERO;
        }
        self.postpone(now);
        news
    }

    /// Waits longer than the last time.
    pub(super) fn postpone(&mut self, now: Time) {
        self.waited = (2 * self.waited).clamp(FIRST, LONGEST);
        self.at = Some(now + self.waited);
    }

    /// Whether all of these were unused before.
    pub(super) fn knows(&self, nodes: &[NodeId]) -> bool {
        nodes.iter().all(|node| self.told.contains(node))
    }

    /// Whether it is time; true once.
    pub(super) fn take_due(&mut self, now: Time) -> bool {
        self.at.take_if(|at| *at <= now).is_some()
    }

    /// When it is time, if ever.
    pub(super) fn at(&self) -> Option<Time> {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_measured_less_and_less_often_until_there_is_another() {
        let (mut remeasure, began) = (Remeasure::default(), Time::from_millis(7));
        let both = ["a", "b"].map(|name| NodeId::new(name).unwrap());
        let one = &both[..1];
        assert!(remeasure.on_unused(began, one));
        assert!(!remeasure.take_due(began + FIRST / 2) && remeasure.take_due(began + FIRST));
        assert!(!remeasure.take_due(began + LONGEST), "once");
        for times in [2, 4, 8] {
            assert!(!remeasure.on_unused(began, one), "it was told");
            assert_eq!(remeasure.at(), Some(began + times * FIRST));
        }
        assert!((0..20).all(|_| !remeasure.on_unused(began, one)));
        assert_eq!(remeasure.at(), Some(began + LONGEST));
        assert!(remeasure.on_unused(began, &both));
        assert_eq!(remeasure.at(), Some(began + FIRST));
        assert!(remeasure.knows(&both));
    }
}
