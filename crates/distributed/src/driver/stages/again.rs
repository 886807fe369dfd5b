//! Nodes that are not used are measured and weighed again from time to time: what slowed them down may be over.

use super::Driver;
use phalanx_protocol::FormationEvent;
use phalanx_types::NodeId;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long until they are for the first time; then it is twice as long each time, up to the longest.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(600);

/// When nodes are looked at that are not used.
#[derive(Debug, Default)]
pub(super) struct Again {
    /// Those that were not used at some time, as the user knows.
    told: BTreeSet<NodeId>,
    waited: Duration,
    at: Option<Instant>,
}

impl Again {
    /// These are not used; whether that is news of one of them.
    pub(super) fn on_unused(&mut self, now: Instant, nodes: &[NodeId]) -> bool {
        let before = self.told.len();
        self.told.extend(nodes.iter().cloned());
        let news = self.told.len() > before;
        if news {
            self.waited = Duration::ZERO;
        }
        self.postpone(now);
        news
    }

    /// They are looked at later.
    pub(super) fn postpone(&mut self, now: Instant) {
        self.waited = (2 * self.waited).clamp(FIRST, LONGEST);
        self.at = Some(now + self.waited);
    }

    /// Whether all of these were not used before.
    pub(super) fn knows(&self, nodes: &[NodeId]) -> bool {
        nodes.iter().all(|node| self.told.contains(node))
    }

    fn take_due(&mut self, now: Instant) -> bool {
        self.at.take_if(|at| *at <= now).is_some()
    }

    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }
}

impl Driver<'_> {
    /// When there is something to be looked at again.
    pub(in super::super) fn next_look(&self) -> Option<Instant> {
        self.staging.again.at()
    }

    /// Has nodes measured and weighed again that are not used, when it is time for that. Nodes that this process
    /// started are never measured.
    pub(in super::super) fn look_again(&mut self) {
        let formation = &self.task.config.formation;
        if !self.staging.again.take_due(Instant::now()) || !formation.measure || formation.local > 0 {
            return;
        }
        for node in std::mem::take(&mut self.staging.unused) {
            self.staging.asked.remove(&node);
            self.staging.stale.insert(node);
        }
        self.core.feed(self.now(), FormationEvent::WeighRepeated, &mut self.out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_looked_at_less_and_less_often_until_there_is_another() {
        let (mut again, began) = (Again::default(), Instant::now());
        let both = ["a", "b"].map(|name| NodeId::new(name).unwrap());
        let one = &both[..1];
        assert!(again.on_unused(began, one));
        assert!(!again.take_due(began + FIRST / 2) && again.take_due(began + FIRST));
        assert!(!again.take_due(began + LONGEST), "once");
        for times in [2, 4, 8] {
            assert!(!again.on_unused(began, one), "it was told");
            assert_eq!(again.at(), Some(began + times * FIRST));
        }
        assert!((0..20).all(|_| !again.on_unused(began, one)));
        assert_eq!(again.at(), Some(began + LONGEST));
        assert!(again.on_unused(began, &both));
        assert_eq!(again.at(), Some(began + FIRST));
        assert!(again.knows(&both));
    }
}
