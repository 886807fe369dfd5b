//! States on their way from nodes. Checkpoints come out in the order of their groups and steps, whichever of their
//! parts is fetched first. The bytes stay in the shell; here a part is the ticket it was fetched with.

use super::Ticket;
use crate::bugs::{RunBug, planted};
use phalanx_types::Epoch;
use phalanx_wire::train::Ops;
use std::collections::BTreeMap;

/// Parts of a state by operators; nothing for those that are still on their way.
#[derive(Debug, Default)]
pub(super) struct StateParts(BTreeMap<Ops, Option<Ticket>>);

impl StateParts {
    pub(super) fn announce(&mut self, ops: Ops) {
        self.0.entry(ops).or_default();
    }

    /// A part has come; returns the one that it replaces.
    pub(super) fn insert(&mut self, ops: Ops, part: Ticket) -> Option<Ticket> {
        self.0.insert(ops, Some(part)).flatten()
    }

    /// The parts in the order of operators, when together they are all of the state; they are gone then.
    pub(super) fn take_whole(&mut self, operators: usize) -> Option<Vec<Ticket>> {
        let here = |(ops, part): (&Ops, &Option<Ticket>)| part.is_some().then_some(*ops);
        let whole = cover(self.0.iter().filter_map(here), operators);
        whole.then(|| self.take())
    }

    /// All parts that have come; they are gone then.
    pub(super) fn take(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.0).into_values().flatten().collect()
    }

    /// Whether all of them are announced.
    fn are_known(&self, operators: usize) -> bool {
        cover(self.0.keys().copied(), operators)
    }
}

/// Whether these, in their order, leave out no operator.
fn cover(mut all: impl Iterator<Item = Ops>, operators: usize) -> bool {
    let to = all.try_fold(0, |to, ops| (ops.start <= to).then(|| ops.end.max(to)));
    to.is_some_and(|to| to as usize >= operators)
}

/// Checkpoints that wait for parts, at most.
const MOST_WAITING: usize = 8;

/// The group and step that a checkpoint is of.
pub(super) type CheckpointKey = (Epoch, u64);

/// Checkpoints that nodes have announced.
#[derive(Debug)]
pub(super) struct CheckpointOrder {
    operators: usize,
    checkpoints: BTreeMap<CheckpointKey, StateParts>,
    /// The last one that is done with.
    last: Option<CheckpointKey>,
    /// Parts that are being fetched.
    fetching: usize,
    /// Parts that nobody needs any more.
    dropped: Vec<Ticket>,
}

impl CheckpointOrder {
    pub(super) fn new(operators: usize) -> Self {
        Self { operators, checkpoints: BTreeMap::new(), last: None, fetching: 0, dropped: Vec::new() }
    }

    /// A node holds a part, or all of the model; it is being fetched.
    pub(super) fn announce(&mut self, key: CheckpointKey, ops: Option<Ops>) {
        let ops = self.or_all(ops);
        self.fetching += 1;
        if self.last >= Some(key) && !self.checkpoints.contains_key(&key) {
            // Another part of it did not come.
            return;
        }
        self.checkpoints.entry(key).or_default().announce(ops);
        // Nodes wait until theirs are taken, so one that is so far behind has parts that nobody announces.
        if self.checkpoints.len() > MOST_WAITING
            && let Some((key, mut parts)) = self.checkpoints.pop_first()
        {
            self.last = self.last.max(Some(key));
            self.dropped.extend(parts.take());
        }
    }

    /// A part has come.
    pub(super) fn insert(&mut self, key: CheckpointKey, ops: Option<Ops>, part: Ticket) {
        let ops = self.or_all(ops);
        self.fetching = self.fetching.saturating_sub(1);
        match self.checkpoints.get_mut(&key) {
            Some(parts) => self.dropped.extend(parts.insert(ops, part)),
            None => self.dropped.push(part),
        }
    }

    /// A part does not come, so nobody waits for the rest of it; returns whether anybody did.
    pub(super) fn fail(&mut self, key: CheckpointKey) -> bool {
        self.fetching = self.fetching.saturating_sub(1);
        self.last = self.last.max(Some(key));
        let removed = self.checkpoints.remove(&key);
        let found = removed.is_some();
        self.dropped.extend(removed.into_iter().flat_map(|mut parts| parts.take()));
        found
    }

    /// A group begins: groups before it announce nothing more.
    pub(super) fn begin_epoch(&mut self) {
        let operators = self.operators;
        let incomplete = self.checkpoints.extract_if(.., |_, parts| !parts.are_known(operators));
        self.dropped.extend(incomplete.flat_map(|(_, mut parts)| parts.take()));
    }

    /// The first checkpoint that is not saved yet, when all of it is here.
    pub(super) fn next_whole(&mut self) -> Option<(CheckpointKey, Vec<Ticket>)> {
        if planted(RunBug::SavesOutOfOrder) {
            let operators = self.operators;
            let found = self.checkpoints.iter_mut().rev();
            let (key, whole) =
                found.filter_map(|(key, parts)| Some((*key, parts.take_whole(operators)?))).next()?;
            self.checkpoints.remove(&key);
            return Some((key, whole));
        }
        let mut first = self.checkpoints.first_entry()?;
        let key = *first.key();
        let whole = first.get_mut().take_whole(self.operators)?;
        first.remove();
        self.last = self.last.max(Some(key));
        Some((key, whole))
    }

    /// Whether nothing is being fetched.
    pub(super) fn is_quiet(&self) -> bool {
        self.fetching == 0
    }

    /// The run is over: checkpoints that lack a part are not written.
    pub(super) fn end(&mut self) {
        let incomplete = std::mem::take(&mut self.checkpoints);
        self.dropped.extend(incomplete.into_values().flat_map(|mut parts| parts.take()));
    }

    /// Parts that nobody needs any more.
    pub(super) fn take_dropped(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.dropped)
    }

    fn or_all(&self, ops: Option<Ops>) -> Ops {
        ops.unwrap_or(Ops { start: 0, end: self.operators as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRONT: Option<Ops> = Some(Ops { start: 0, end: 3 });
    const BACK: Option<Ops> = Some(Ops { start: 3, end: 5 });

    fn part(number: u64) -> Ticket {
        Ticket(number)
    }

    #[test]
    fn checkpoints_come_out_in_the_order_of_their_steps() {
        let mut order = CheckpointOrder::new(5);
        let (second, fourth) = ((Epoch(1), 2), (Epoch(1), 4));
        for key in [second, fourth] {
            order.announce(key, FRONT);
            order.announce(key, BACK);
        }
        order.insert(fourth, BACK, part(4));
        order.insert(fourth, FRONT, part(3));
        order.insert(second, FRONT, part(1));
        assert!(order.next_whole().is_none() && !order.is_quiet(), "step 2 lacks a part");
        order.insert(second, BACK, part(2));
        assert!(order.is_quiet());
        assert_eq!(order.next_whole(), Some((second, vec![part(1), part(2)])));
        assert_eq!(order.next_whole(), Some((fourth, vec![part(3), part(4)])));
        assert!(order.next_whole().is_none());
    }

    #[test]
    fn nobody_waits_for_one_that_does_not_come() {
        let mut order = CheckpointOrder::new(5);
        let (second, fourth) = ((Epoch(1), 2), (Epoch(1), 4));
        order.announce(second, FRONT);
        order.announce(second, BACK);
        order.announce(fourth, None);
        order.insert(fourth, None, part(1));
        order.insert(second, FRONT, part(2));
        assert!(order.next_whole().is_none());
        assert!(order.fail(second) && !order.fail(second), "it is told once");
        assert_eq!(order.take_dropped(), [part(2)]);
        assert_eq!(order.next_whole().unwrap().0, fourth);
        assert!(order.is_quiet());
        // Nor when a part of it is announced only then.
        let (sixth, eighth) = ((Epoch(1), 6), (Epoch(1), 8));
        order.announce(sixth, FRONT);
        assert!(order.fail(sixth));
        order.announce(sixth, BACK);
        order.announce(eighth, None);
        assert!(!order.is_quiet());
        order.insert(sixth, BACK, part(3));
        order.insert(eighth, None, part(4));
        assert_eq!(order.next_whole().unwrap().0, eighth);
        assert_eq!(order.take_dropped(), [part(3)]);
        assert!(order.is_quiet());
    }

    #[test]
    fn one_that_nobody_completes_does_not_hold_up_the_others_for_ever() {
        let mut order = CheckpointOrder::new(5);
        order.announce((Epoch(1), 0), BACK);
        for step in 1..=MOST_WAITING as u64 {
            assert!(order.next_whole().is_none());
            order.announce((Epoch(1), step), None);
            order.insert((Epoch(1), step), None, part(step));
        }
        assert_eq!(order.next_whole().unwrap().0, (Epoch(1), 1));
    }

    #[test]
    fn those_of_a_group_that_broke_are_taken_when_all_had_announced_them() {
        let mut order = CheckpointOrder::new(5);
        let (second, fourth, next) = ((Epoch(1), 2), (Epoch(1), 4), (Epoch(2), 4));
        order.announce(second, FRONT);
        order.announce(second, BACK);
        order.announce(fourth, BACK);
        order.begin_epoch();
        order.announce(next, FRONT);
        order.announce(next, BACK);
        order.insert(fourth, BACK, part(1));
        order.insert(second, FRONT, part(2));
        order.insert(second, BACK, part(3));
        assert_eq!(order.next_whole().unwrap().0, second);
        order.insert(next, FRONT, part(4));
        assert!(order.next_whole().is_none(), "parts of two groups are no state");
        order.insert(next, BACK, part(5));
        assert_eq!(order.next_whole(), Some((next, vec![part(4), part(5)])));
        assert!(order.is_quiet());
    }
}
