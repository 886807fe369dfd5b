use phalanx_types::Time;
use std::collections::BTreeMap;

/// What is to happen, in order of time; what is due at one moment happens in the order it was
/// scheduled.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    events: BTreeMap<(Time, u64), E>,
    scheduled: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { events: BTreeMap::new(), scheduled: 0 }
    }
}

impl<E> EventQueue<E> {
    pub(crate) fn push(&mut self, at: Time, event: E) {
        self.events.insert((at, self.scheduled), event);
        self.scheduled += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, E)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_they_were_scheduled() {
        let mut queue = EventQueue::default();
        for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            queue.push(Time(at), name);
        }
        let order: Vec<char> = std::iter::from_fn(|| queue.pop()).map(|(_, name)| name).collect();
        assert_eq!(order, ['a', 'b', 'c', 'd']);
    }
}
