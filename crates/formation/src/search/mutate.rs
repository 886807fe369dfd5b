//! Small random changes to formations.

use crate::evaluate::{Formation, Problem, StageRange, Timed};
use crate::search::build::{Builder, Found};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::rc::Rc;

/// Seeded random choices.
#[derive(Debug)]
pub(crate) struct Dice(Pcg64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.0.random_range(0..len.max(1))
    }

    /// True `n` times out of a hundred.
    pub(crate) fn percent(&mut self, n: u32) -> bool {
        self.0.random_ratio(n, 100)
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() { None } else { Some(&all[self.index(all.len())]) }
    }

    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for i in (1..all.len()).rev() {
            all.swap(i, self.index(i + 1));
        }
    }
}

/// A mutation of lists of nodes; replicas with the indices `removed` are replaced by `added`.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) removed: Vec<usize>,
    pub(crate) added: Vec<Vec<usize>>,
}

/// A random change of the nodes of replicas; `None` if it makes no sense here.
pub(crate) fn change(
    problem: &Problem<'_>,
    lists: &[Vec<usize>],
    free: &[usize],
    dice: &mut Dice,
) -> Option<Change> {
    let a = dice.index(lists.len());
    let mut one = lists[a].clone();
    let fixed = problem.options.stages.is_some();
    let b = (a + 1 + dice.index(lists.len().max(2) - 1)) % lists.len();
    let pair = |one: Vec<usize>, two: Vec<usize>| Some(Change { removed: vec![a, b], added: vec![one, two] });
    match dice.index(9) {
        // Another order.
        0 if one.len() > 1 => {
            let (i, j) = (dice.index(one.len()), dice.index(one.len()));
            one.swap(i, j);
            Some(Change { removed: vec![a], added: vec![one] })
        }
        // Two replicas exchange nodes.
        1 | 2 if a != b => {
            let mut two = lists[b].clone();
            let (i, j) = (dice.index(one.len()), dice.index(two.len()));
            std::mem::swap(&mut one[i], &mut two[j]);
            pair(one, two)
        }
        // A node goes from one to another.
        3 if a != b && one.len() > 1 && !fixed => {
            let mut two = lists[b].clone();
            let node = one.remove(dice.index(one.len()));
            two.insert(dice.index(two.len() + 1), node);
            pair(one, two)
        }
        // A free node is inserted, or replaces another.
        4 => {
            let node = *dice.pick(free)?;
            if fixed || dice.percent(50) {
                let i = dice.index(one.len());
                one[i] = node;
            } else {
                one.insert(dice.index(one.len() + 1), node);
            }
            Some(Change { removed: vec![a], added: vec![one] })
        }
        // A node is left out.
        5 if one.len() > 1 && !fixed => {
            one.remove(dice.index(one.len()));
            Some(Change { removed: vec![a], added: vec![one] })
        }
        _ => regroup(problem, lists, free, dice, (a, b)),
    }
}

/// Changes of the number of replicas.
fn regroup(
    problem: &Problem<'_>,
    lists: &[Vec<usize>],
    free: &[usize],
    dice: &mut Dice,
    (a, b): (usize, usize),
) -> Option<Change> {
    let fixed = problem.options.stages;
    if problem.options.replicas.is_some() {
        return None;
    }
    match dice.index(4) {
        0 if lists[a].len() > 1 && fixed.is_none() => {
            let mut one = lists[a].clone();
            let two = one.split_off(1 + dice.index(one.len() - 1));
            Some(Change { removed: vec![a], added: vec![one, two] })
        }
        1 if a != b && fixed.is_none() => {
            let one = lists[a].iter().chain(&lists[b]).copied().collect();
            Some(Change { removed: vec![a, b], added: vec![one] })
        }
        2 if lists.len() > 1 => Some(Change { removed: vec![a], added: Vec::new() }),
        3 if !free.is_empty() => {
            let mut some = free.to_vec();
            dice.shuffle(&mut some);
            let most = some.len().min(lists[a].len() + 1);
            let count = fixed.unwrap_or_else(|| 1 + dice.index(most));
            (count <= some.len()).then(|| Change { removed: Vec::new(), added: vec![some[..count].to_vec()] })
        }
        _ => None,
    }
}

/// The formation with a change applied; unchanged replicas keep their cuts.
pub(crate) fn changed(builder: &Builder<'_>, found: &Found, change: &Change) -> Option<Formation> {
    let micro_batches = found.formation.micro_batches;
    let freed: usize = change.removed.iter().map(|r| found.score.shares[*r]).sum();
    let before: f64 = change.removed.iter().map(|r| power(builder, &found.formation.replicas[*r])).sum();
    let batch = builder.problem.batch();
    let mut replicas: Vec<Rc<Timed>> = Vec::with_capacity(found.formation.replicas.len() + 1);
    for (r, replica) in found.formation.replicas.iter().enumerate() {
        if !change.removed.contains(&r) {
            replicas.push(replica.clone());
        }
    }
    let (samples, speed) = if freed > 0 {
        (freed as f64, before)
    } else {
        (batch as f64, found.formation.replicas.iter().map(|r| power(builder, r)).sum())
    };
    for list in &change.added {
        let share = (samples * builder.power(list) / speed).round().max(1.0) as usize;
        replicas.push(builder.replica(list, micro_batches, share)?);
    }
    (!replicas.is_empty() && replicas.len() <= batch).then_some(Formation { replicas, micro_batches })
}

fn power(builder: &Builder<'_>, replica: &Timed) -> f64 {
    replica.parts.iter().map(|p| builder.problem.pool.nodes[p.node].speed).sum()
}

/// The formation with one cut moved, or cut where another replica is.
pub(crate) fn recut(problem: &Problem<'_>, formation: &Formation, dice: &mut Dice) -> Option<Formation> {
    let r = dice.index(formation.replicas.len());
    let mut parts = formation.replicas[r].parts.clone();
    if parts.len() < 2 {
        return None;
    }
    let cut = 1 + dice.index(parts.len() - 1);
    let to = if dice.percent(50) {
        let by = [-3isize, -2, -1, 1, 2, 3][dice.index(6)];
        parts[cut].from.checked_add_signed(by)?
    } else {
        let other = &formation.replicas[dice.index(formation.replicas.len())].parts;
        other[dice.index(other.len())].from
    };
    with_cut(problem, formation, r, &mut parts, (cut, to))
}

/// The formation with the cut before a stage of one replica at another place.
pub(crate) fn with_cut(
    problem: &Problem<'_>,
    formation: &Formation,
    replica: usize,
    parts: &mut Vec<StageRange>,
    (cut, to): (usize, usize),
) -> Option<Formation> {
    if to <= parts[cut - 1].from || to >= parts[cut].to || to == parts[cut].from {
        return None;
    }
    (parts[cut - 1].to, parts[cut].from) = (to, to);
    let timed = Timed::new(problem, std::mem::take(parts), formation.micro_batches);
    if timed.most == 0 {
        return None;
    }
    let mut formation = formation.clone();
    formation.replicas[replica] = Rc::new(timed);
    Some(formation)
}
