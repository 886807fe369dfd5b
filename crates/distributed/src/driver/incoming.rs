//! States on their way from nodes. Those of checkpoints come out in the order of their groups and steps, whichever of
//! their parts is here first.

use phalanx_records::ModelState;
use phalanx_types::Epoch;
use phalanx_wire::train::Ops;
use std::collections::BTreeMap;

/// Parts of a state, by the operators that they are of; nothing for those that are still on their way.
#[derive(Debug, Default)]
pub(super) struct Parts(BTreeMap<Ops, Option<ModelState>>);

impl Parts {
    pub(super) fn announce(&mut self, ops: Ops) {
        self.0.entry(ops).or_default();
    }

    pub(super) fn insert(&mut self, ops: Ops, part: ModelState) {
        self.0.insert(ops, Some(part));
    }

    /// The state, when all its parts are there; they are gone then.
    pub(super) fn take_whole(&mut self, step: u64, operators: usize) -> Option<ModelState> {
        let here = |(ops, part): (&Ops, &Option<ModelState>)| part.is_some().then_some(*ops);
        if !cover(self.0.iter().filter_map(here), operators) {
            return None;
        }
        let mut whole = ModelState { optimizer_steps: step, ..ModelState::default() };
        for part in std::mem::take(&mut self.0).into_values().flatten() {
            whole.weights.extend(part.weights);
            whole.optimizer.extend(part.optimizer);
        }
        Some(whole)
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

/// Checkpoints that nodes have announced.
#[derive(Debug)]
pub(super) struct Incoming {
    operators: usize,
    /// By the group that they are of, and the step.
    checkpoints: BTreeMap<(Epoch, u64), Parts>,
    /// The last that is done with.
    last: Option<(Epoch, u64)>,
    /// Parts that are being fetched.
    under_way: usize,
}

impl Incoming {
    pub(super) fn new(operators: usize) -> Self {
        Self { operators, checkpoints: BTreeMap::new(), last: None, under_way: 0 }
    }

    /// Somebody holds a part, or all of the model; it is being fetched.
    pub(super) fn announce(&mut self, of: (Epoch, u64), ops: Option<Ops>) {
        let ops = self.or_all(ops);
        self.under_way += 1;
        if self.last >= Some(of) && !self.checkpoints.contains_key(&of) {
            // Another part of it did not come.
            return;
        }
        self.checkpoints.entry(of).or_default().announce(ops);
        // Nodes wait until theirs are taken, so one that is so far behind has parts that nobody announces.
        if self.checkpoints.len() > MOST_WAITING {
            let dropped = self.checkpoints.pop_first();
            self.last = self.last.max(dropped.map(|(of, _)| of));
        }
    }

    /// It has come.
    pub(super) fn insert(&mut self, of: (Epoch, u64), ops: Option<Ops>, part: ModelState) {
        let ops = self.or_all(ops);
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(parts) = self.checkpoints.get_mut(&of) {
            parts.insert(ops, part);
        }
    }

    /// It does not come, so nobody waits for the rest of it; whether anybody did.
    pub(super) fn fail(&mut self, of: (Epoch, u64)) -> bool {
        self.under_way = self.under_way.saturating_sub(1);
        self.last = self.last.max(Some(of));
        self.checkpoints.remove(&of).is_some()
    }

    /// A group begins: what those before it have not announced they will not.
    pub(super) fn begin_epoch(&mut self) {
        self.checkpoints.retain(|_, parts| parts.are_known(self.operators));
    }

    /// The first that is not saved yet, when all of it is here.
    pub(super) fn next_whole(&mut self) -> Option<((Epoch, u64), ModelState)> {
        let mut first = self.checkpoints.first_entry()?;
        let of = *first.key();
        let whole = first.get_mut().take_whole(of.1, self.operators)?;
        first.remove();
        self.last = self.last.max(Some(of));
        Some((of, whole))
    }

    /// Nothing is being fetched.
    pub(super) fn is_quiet(&self) -> bool {
        self.under_way == 0
    }

    fn or_all(&self, ops: Option<Ops>) -> Ops {
        ops.unwrap_or(Ops { start: 0, end: self.operators as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::Tensor;

    const FRONT: Option<Ops> = Some(Ops { start: 0, end: 3 });
    const BACK: Option<Ops> = Some(Ops { start: 3, end: 5 });

    fn part(name: &str) -> ModelState {
        let weights = [(name.to_owned(), Tensor::from_f32(vec![1], &[0.0]).unwrap())].into_iter().collect();
        ModelState { weights, ..ModelState::default() }
    }

    fn names(state: &ModelState) -> Vec<&str> {
        state.weights.keys().map(String::as_str).collect()
    }

    #[test]
    fn checkpoints_come_out_in_the_order_of_their_steps() {
        let mut incoming = Incoming::new(5);
        let (second, fourth) = ((Epoch(1), 2), (Epoch(1), 4));
        for of in [second, fourth] {
            incoming.announce(of, FRONT);
            incoming.announce(of, BACK);
        }
        incoming.insert(fourth, BACK, part("b"));
        incoming.insert(fourth, FRONT, part("a"));
        incoming.insert(second, FRONT, part("a"));
        assert!(incoming.next_whole().is_none() && !incoming.is_quiet(), "step 2 lacks a part");
        incoming.insert(second, BACK, part("b"));
        assert!(incoming.is_quiet());
        for of in [second, fourth] {
            let (next, state) = incoming.next_whole().unwrap();
            assert_eq!((next, state.steps(), names(&state)), (of, of.1, vec!["a", "b"]));
        }
        assert!(incoming.next_whole().is_none());
    }

    #[test]
    fn nobody_waits_for_one_that_does_not_come() {
        let mut incoming = Incoming::new(5);
        let (second, fourth) = ((Epoch(1), 2), (Epoch(1), 4));
        incoming.announce(second, FRONT);
        incoming.announce(second, BACK);
        incoming.announce(fourth, None);
        incoming.insert(fourth, None, part("a"));
        assert!(incoming.next_whole().is_none());
        assert!(incoming.fail(second) && !incoming.fail(second), "it is told once");
        assert_eq!(incoming.next_whole().unwrap().0, fourth);
        assert!(incoming.is_quiet());
        // Nor when a part of it is announced only then.
        let (sixth, eighth) = ((Epoch(1), 6), (Epoch(1), 8));
        incoming.announce(sixth, FRONT);
        assert!(incoming.fail(sixth));
        incoming.announce(sixth, BACK);
        incoming.announce(eighth, None);
        assert!(!incoming.is_quiet());
        incoming.insert(sixth, BACK, part("b"));
        incoming.insert(eighth, None, part("a"));
        assert_eq!(incoming.next_whole().unwrap().0, eighth);
        assert!(incoming.is_quiet());
    }

    #[test]
    fn one_that_nobody_completes_does_not_hold_up_the_others_for_ever() {
        let mut incoming = Incoming::new(5);
        incoming.announce((Epoch(1), 0), BACK);
        for step in 1..=MOST_WAITING as u64 {
            assert!(incoming.next_whole().is_none());
            incoming.announce((Epoch(1), step), None);
            incoming.insert((Epoch(1), step), None, part("a"));
        }
        assert_eq!(incoming.next_whole().unwrap().0, (Epoch(1), 1));
    }

    #[test]
    fn those_of_a_group_that_broke_are_taken_when_all_had_announced_them() {
        let mut incoming = Incoming::new(5);
        let (second, fourth, next) = ((Epoch(1), 2), (Epoch(1), 4), (Epoch(2), 4));
        incoming.announce(second, FRONT);
        incoming.announce(second, BACK);
        incoming.announce(fourth, BACK);
        incoming.begin_epoch();
        incoming.announce(next, FRONT);
        incoming.announce(next, BACK);
        incoming.insert(fourth, BACK, part("old"));
        incoming.insert(second, FRONT, part("a"));
        incoming.insert(second, BACK, part("b"));
        assert_eq!(incoming.next_whole().unwrap().0, second);
        incoming.insert(next, FRONT, part("new"));
        assert!(incoming.next_whole().is_none(), "parts of two groups are no state");
        incoming.insert(next, BACK, part("newer"));
        assert_eq!(names(&incoming.next_whole().unwrap().1), ["new", "newer"]);
        assert!(incoming.is_quiet());
    }
}
