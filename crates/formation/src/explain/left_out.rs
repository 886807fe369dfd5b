use super::{FEW, NOISE, Tries};
use crate::search::{Change, alike_beside, smallest_part};
use crate::{LeftOut, WhyLeftOut};
use std::cmp::Reverse;

/// Formations that are tried to say why nodes are left out.
const TRIES: usize = 2_000;

/// Why each unused node holds nothing. Identical nodes have the same reason.
///
/// A node that turns out to improve the formation is part of it when the other nodes are tried.
pub(super) fn left_out(tries: &mut Tries<'_, '_, '_>) -> Vec<LeftOut> {
    let problem = tries.problem();
    let needs = smallest_part(problem);
    let mut asked = Asked::new(tries, needs);
    let mut known: Vec<LeftOut> = Vec::new();
    let mut all = Vec::new();
    for node in 0..problem.pool.nodes.len() {
        if asked.used.binary_search(&node).is_ok() {
            continue;
        }
        let has = problem.pool.nodes[node].memory;
        let alike = known.iter().find(|other| alike_beside(problem, &asked.used, other.node, node));
        let why = match alike {
            _ if has < needs => WhyLeftOut::TooSmall { has, needs },
            Some(other) => other.why.clone(),
            None => {
                let why = asked.why(tries, node);
                known.push(LeftOut { node, why: why.clone() });
                why
            }
        };
        if tries.take_better() {
            asked = Asked { tried: asked.tried, ..Asked::new(tries, needs) };
            continue;
        }
        all.push(LeftOut { node, why });
    }
    all
}

/// The inputs of the question for every node.
struct Asked {
    /// All nodes that hold something, sorted.
    used: Vec<usize>,
    /// All unused nodes that could hold something.
    left: Vec<usize>,
    tried: usize,
}

impl Asked {
    fn new(tries: &Tries<'_, '_, '_>, needs: u64) -> Self {
        let mut used: Vec<usize> = tries.found.lists().concat();
        used.sort_unstable();
        let nodes = &tries.problem().pool.nodes;
        let usable = |n: &usize| nodes[*n].memory >= needs && used.binary_search(n).is_err();
        let left = (0..nodes.len()).filter(usable).collect();
        Self { used, left, tried: 0 }
    }

    fn why(&mut self, tries: &mut Tries<'_, '_, '_>, node: usize) -> WhyLeftOut {
        let options = tries.problem().options;
        match (options.replicas, options.stages) {
            (Some(_), Some(_)) => WhyLeftOut::NotNeeded,
            (None, Some(stages)) if self.left.len() < stages => {
                WhyLeftOut::TooFew { left: self.left.len(), stages }
            }
            _ => self.tried(tries, node),
        }
    }

    /// The best formation that uses this node too, compared with the plan.
    fn tried(&mut self, tries: &mut Tries<'_, '_, '_>, node: usize) -> WhyLeftOut {
        let (mut any, mut best) = (false, f64::INFINITY);
        for change in self.additions(tries, node) {
            if self.tried >= TRIES || !tries.may_try() {
                break;
            }
            (any, self.tried) = (true, self.tried + 1);
            let recut = tries.is_small();
            best = best.min(tries.with(&change, recut).unwrap_or(f64::INFINITY));
        }
        match best {
            _ if !any => WhyLeftOut::NotTried,
            f64::INFINITY => WhyLeftOut::NoPlace,
            percent if percent >= 0.5 => WhyLeftOut::Slower { percent },
            percent if percent < -NOISE => WhyLeftOut::Overlooked { percent: -percent },
            _ => WhyLeftOut::NoGain,
        }
    }

    /// The ways to add one node: alone or with other unused nodes, and to existing replicas.
    fn additions(&self, tries: &Tries<'_, '_, '_>, node: usize) -> Vec<Change> {
        let options = tries.problem().options;
        if let Some(stages) = options.stages {
            let replicas = self.replicas(tries, node, stages);
            return replicas.map(|list| Change { removed: Vec::new(), added: vec![list] }).into();
        }
        let mut all = Vec::new();
        if options.replicas.is_none() {
            all.push(Change { removed: Vec::new(), added: vec![vec![node]] });
        }
        for (r, list) in tries.found.lists().into_iter().enumerate().take(FEW) {
            for at in 0..=list.len() {
                if !tries.is_small() && at != by_memory(tries, &list, node) {
                    continue;
                }
                let mut longer = list.clone();
                longer.insert(at, node);
                all.push(Change { removed: vec![r], added: vec![longer] });
            }
        }
        all
    }

    /// A node with other unused nodes: the fastest, and the largest of them.
    fn replicas(&self, tries: &Tries<'_, '_, '_>, node: usize, stages: usize) -> [Vec<usize>; 2] {
        let nodes = &tries.problem().pool.nodes;
        let others: Vec<usize> = self.left.iter().copied().filter(|n| *n != node).collect();
        let (mut fastest, mut largest) = (others.clone(), others);
        fastest.sort_by(|a, b| nodes[*b].speed.total_cmp(&nodes[*a].speed).then(a.cmp(b)));
        largest.sort_by_key(|n| (Reverse(nodes[*n].memory), *n));
        [fastest, largest].map(|mut list| {
            list.truncate(stages - 1);
            list.push(node);
            list.sort_by_key(|n| (Reverse(nodes[*n].memory), *n));
            list
        })
    }
}

/// The position of a node in a list sorted by memory, largest first.
fn by_memory(tries: &Tries<'_, '_, '_>, list: &[usize], node: usize) -> usize {
    let nodes = &tries.problem().pool.nodes;
    list.iter().position(|n| nodes[*n].memory < nodes[node].memory).unwrap_or(list.len())
}
