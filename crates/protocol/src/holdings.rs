//! What the surviving nodes of a group of stages hold, from which step they can go on, and which node sends what.
//!
//! ```text
//!   n1  operators 0..4 after step 12            n2 was lost with operators 4..9 after step 12
//!       copy of 0..4 after step 10              n3  operators 9..12 after step 12
//!                                                   copies of 4..9 and 9..12 after step 10
//!   ──► step 10 is the newest with all operators: the run goes on from there and computes the same numbers again
//! ```

use crate::bugs::{RunBug, planted};
use phalanx_types::NodeId;
use phalanx_wire::train::{HoldRef, Ops};
use std::collections::{BTreeMap, BTreeSet};

/// What nodes hold.
pub type Inventory = BTreeMap<NodeId, Vec<HoldRef>>;

/// From where a group can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    pub step: u64,
    /// The gradient norm of its last step, for nodes that have these gradients but have not applied them.
    pub norm: Option<u64>,
}

/// A part of the state that travels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transfer {
    pub ops: Ops,
    pub from: NodeId,
    pub to: NodeId,
}

/// Whether a hold is the state after the step to resume from, or becomes it by applying pending gradients.
pub fn reaches(hold: &HoldRef, resume: Resume) -> bool {
    hold.step == resume.step
        || (hold.pending && resume.norm.is_some() && hold.step.checked_add(1) == Some(resume.step))
}

/// The newest step after which every one of `operators` operators is held by a node.
pub fn newest(inventory: &Inventory, operators: usize) -> Option<Resume> {
    let all = || inventory.values().flatten();
    let steps: BTreeSet<u64> = all().map(|hold| hold.step).collect();
    steps
        .into_iter()
        .rev()
        .map(|step| resume_at(inventory, step))
        .find(|resume| planted(RunBug::ResumesWithHoles) || is_covered(inventory, *resume, operators))
}

/// Whether every one of `operators` operators is held after a step.
pub fn is_covered(inventory: &Inventory, resume: Resume, operators: usize) -> bool {
    let holds = inventory.values().flatten().filter(|hold| reaches(hold, resume));
    let mut ranges: Vec<Ops> = holds.map(|hold| hold.ops).collect();
    ranges.sort_unstable();
    let covered = ranges.iter().fold(0, |to, ops| if ops.start <= to { to.max(ops.end) } else { to });
    covered as usize >= operators
}

fn resume_at(inventory: &Inventory, step: u64) -> Resume {
    let applied = inventory.values().flatten().filter(|hold| hold.step == step && !hold.pending);
    Resume { step, norm: applied.filter_map(|hold| hold.norm).next() }
}

/// Updates the inventory when a group begins. The nodes in `told` have applied their pending gradients. Everything newer
/// than the step is dropped, because those steps are done again.
pub fn settle(inventory: &mut Inventory, step: u64, told: &BTreeSet<NodeId>, norm: Option<u64>) {
    let resume = Resume { step, norm };
    for (node, holds) in inventory.iter_mut() {
        if told.contains(node) {
            for hold in holds.iter_mut().filter(|hold| hold.pending) {
                let applies = reaches(hold, resume) && hold.step < step;
                (hold.step, hold.pending) = (if applies { step } else { hold.step }, false);
                hold.norm = if applies { norm } else { hold.norm };
            }
        }
        holds.retain(|hold| hold.step <= step);
    }
}

/// The transfers after which every node holds the part that it should. Each comes from the holder that sends least so
/// far. Operators that no node holds are left out.
pub fn transfers(inventory: &Inventory, resume: Resume, wanted: &[(NodeId, Ops)]) -> Vec<Transfer> {
    let mut given: BTreeMap<&NodeId, u32> = BTreeMap::new();
    let mut transfers = Vec::new();
    for (to, ops) in wanted {
        let own = inventory.get(to).map_or(&[][..], Vec::as_slice);
        let mut at = ops.start;
        while at < ops.end {
            if let Some(end) = reach(own, resume, at) {
                at = end;
                continue;
            }
            let next_own = own.iter().filter(|hold| reaches(hold, resume)).map(|hold| hold.ops.start);
            let until = next_own.filter(|start| *start > at).min().unwrap_or(ops.end).min(ops.end);
            let holders =
                inventory.iter().filter_map(|(node, holds)| Some((node, reach(holds, resume, at)?)));
            let least = holders.min_by_key(|(node, _)| given.get(node).copied().unwrap_or(0));
            let Some((from, end)) = least else {
                at += 1;
                continue;
            };
            let end = end.min(until);
            *given.entry(from).or_default() += end - at;
            transfers.push(Transfer { ops: Ops { start: at, end }, from: from.clone(), to: to.clone() });
            at = end;
        }
    }
    transfers
}

/// The end of the range of operators that a node holds around `at`, if it holds `at`.
fn reach(holds: &[HoldRef], resume: Resume, at: u32) -> Option<u32> {
    let holds = holds.iter().filter(|hold| reaches(hold, resume));
    holds.filter(|hold| hold.ops.start <= at && at < hold.ops.end).map(|hold| hold.ops.end).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        format!("{name}-0000").parse().unwrap()
    }

    fn hold(start: u32, end: u32, step: u64) -> HoldRef {
        HoldRef { ops: Ops { start, end }, step, norm: Some(step + 100), pending: false }
    }

    fn copy(start: u32, end: u32, step: u64) -> HoldRef {
        HoldRef { norm: None, ..hold(start, end, step) }
    }

    #[test]
    fn a_lost_stage_is_made_up_for_by_copies_of_an_older_step() {
        let mut inventory = Inventory::from_iter([
            (node("a"), vec![hold(0, 4, 12), copy(0, 4, 10)]),
            (node("c"), vec![hold(9, 12, 12), copy(4, 9, 10), copy(9, 12, 10)]),
        ]);
        let resume = newest(&inventory, 12).unwrap();
        assert_eq!(resume.step, 10);
        let wanted = [(node("a"), Ops { start: 0, end: 6 }), (node("c"), Ops { start: 6, end: 12 })];
        let expected = Transfer { ops: Ops { start: 4, end: 6 }, from: node("c"), to: node("a") };
        assert_eq!(transfers(&inventory, resume, &wanted), [expected]);
        inventory.insert(node("b"), vec![hold(4, 9, 12)]);
        assert_eq!(newest(&inventory, 12).map(|resume| resume.step), Some(12));
        inventory.clear();
        assert_eq!(newest(&inventory, 12), None);
    }

    #[test]
    fn a_step_that_one_has_applied_has_happened_for_those_who_have_their_gradients() {
        let behind = HoldRef { pending: true, ..hold(0, 4, 11) };
        let inventory = Inventory::from_iter([(node("a"), vec![behind]), (node("b"), vec![hold(4, 9, 12)])]);
        assert_eq!(newest(&inventory, 9), Some(Resume { step: 12, norm: Some(112) }));
        let other = HoldRef { pending: true, ..hold(4, 9, 11) };
        let inventory = Inventory::from_iter([(node("a"), vec![behind]), (node("b"), vec![other])]);
        assert_eq!(newest(&inventory, 9).map(|resume| resume.step), Some(11));
    }

    #[test]
    fn who_was_told_has_applied_its_update_and_what_is_newer_is_forgotten() {
        let behind = HoldRef { pending: true, ..hold(0, 4, 11) };
        let mut inventory = Inventory::from_iter([
            (node("a"), vec![behind, copy(0, 4, 10)]),
            (node("b"), vec![behind]),
            (node("c"), vec![hold(4, 9, 12), copy(4, 9, 13)]),
        ]);
        settle(&mut inventory, 12, &BTreeSet::from([node("a")]), Some(112));
        assert_eq!(inventory[&node("a")], [hold(0, 4, 12), copy(0, 4, 10)]);
        assert_eq!(inventory[&node("b")], [behind]);
        assert_eq!(inventory[&node("c")], [hold(4, 9, 12)]);
        // It was undone where the step did not happen.
        let mut inventory = Inventory::from_iter([(node("a"), vec![behind])]);
        settle(&mut inventory, 11, &BTreeSet::from([node("a")]), Some(111));
        assert_eq!(inventory[&node("a")], [hold(0, 4, 11)]);
    }

    #[test]
    fn holders_share_the_work_and_gaps_are_left_to_the_seed() {
        let inventory =
            Inventory::from_iter([(node("a"), vec![hold(0, 6, 3)]), (node("b"), vec![hold(0, 6, 3)])]);
        let resume = newest(&inventory, 6).unwrap();
        let wanted = [(node("c"), Ops { start: 0, end: 3 }), (node("d"), Ops { start: 3, end: 8 })];
        let from: Vec<NodeId> =
            transfers(&inventory, resume, &wanted).into_iter().map(|transfer| transfer.from).collect();
        assert_eq!(from, [node("a"), node("b")]);
    }
}
