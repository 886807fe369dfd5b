//! Cutting a model into stages that run one after the other, on different machines.
//!
//! A stage is a graph of its own: the values alive at its beginning are its inputs, the values alive at its end its
//! outputs. A value that is made before a stage and needed after it passes through: it is both.

use crate::{Graph, Node, ValueId, ValueKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A cut between two nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutPoint {
    /// The number of nodes before it.
    pub at: usize,
    /// The values from before the cut that are needed after it.
    pub alive: Vec<ValueId>,
    /// Their bytes, per sample.
    pub bytes: u64,
}

/// Why a part of a model is not a stage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    #[error("nodes {start} to {end} are not a part of the {nodes} nodes of this model")]
    Range { start: usize, end: usize, nodes: usize },
    #[error("parameter `{name}` would be in two stages: it is used by `{inside}` and by `{outside}`")]
    Shared { name: String, inside: String, outside: String },
}

impl Graph {
    /// All cuts of the model, with the values that have to be sent there.
    pub fn cut_points(&self) -> Vec<CutPoint> {
        let ends = self.last_uses();
        let mut alive: BTreeSet<ValueId> = self.inputs.iter().copied().collect();
        let mut points = Vec::new();
        for (i, node) in self.nodes.iter().enumerate() {
            if i > 0 {
                alive.retain(|v| ends.get(v).is_some_and(|end| *end >= i));
                let bytes = alive.iter().map(|v| self.bytes_per_sample(*v)).fold(0, u64::saturating_add);
                points.push(CutPoint { at: i, alive: alive.iter().copied().collect(), bytes });
            }
            alive.extend(&node.outputs);
        }
        points
    }

    /// The cuts at which every parameter and buffer is used on one side only. The nodes between two of them, or between
    /// one and an end of the model, form a stage.
    pub fn legal_cuts(&self) -> Vec<CutPoint> {
        let spans = self.kept_spans();
        let mut points = self.cut_points();
        points.retain(|p| !spans.iter().any(|(first, last)| (first + 1..=*last).contains(&p.at)));
        points
    }

    /// The first and the last user of every parameter and buffer with more than one user.
    fn kept_spans(&self) -> Vec<(usize, usize)> {
        let mut spans: BTreeMap<ValueId, (usize, usize)> = BTreeMap::new();
        for (i, node) in self.nodes.iter().enumerate() {
            for v in node.inputs.iter().filter(|v| self.is_kept(**v)) {
                spans.entry(*v).or_insert((i, i)).1 = i;
            }
        }
        spans.into_values().filter(|(first, last)| first < last).collect()
    }

    fn is_kept(&self, v: ValueId) -> bool {
        matches!(self.value(v).kind, ValueKind::Parameter(_) | ValueKind::Buffer(_))
    }

    fn bytes_per_sample(&self, v: ValueId) -> u64 {
        let elements = self.shape(v).count().map_or(u64::MAX, |c| c.at(1) as u64);
        elements.saturating_mul(self.value(v).dtype.size() as u64)
    }

    /// The last node that reads a value; outputs of the model are read at the very end.
    fn last_uses(&self) -> BTreeMap<ValueId, usize> {
        let mut ends = BTreeMap::new();
        for (i, node) in self.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|v| _ = ends.insert(*v, i));
        }
        self.outputs.iter().for_each(|v| _ = ends.insert(*v, usize::MAX));
        ends
    }

    /// Values from before node `at` that are needed from there on.
    fn alive_at(&self, at: usize) -> Vec<ValueId> {
        let made = self.nodes[..at].iter().flat_map(|n| &n.outputs);
        let ends = self.last_uses();
        let mut alive: Vec<ValueId> = self.inputs.iter().chain(made).copied().collect();
        alive.retain(|v| ends.get(v).is_some_and(|end| *end >= at));
        alive.sort_unstable();
        alive.dedup();
        alive
    }

    /// The stage of these nodes as a graph, with the original names of nodes and parameters.
    ///
    /// # Errors
    /// There are no such nodes, or a parameter is also used outside of them.
    pub fn stage(&self, nodes: Range<usize>) -> Result<Graph, CutError> {
        let (start, end, all) = (nodes.start, nodes.end, self.nodes.len());
        if start >= end || end > all {
            return Err(CutError::Range { start, end, nodes: all });
        }
        self.check_shared(&nodes)?;
        let inputs = if start == 0 { self.inputs.clone() } else { self.alive_at(start) };
        let outputs = if end == all { self.outputs.clone() } else { self.alive_at(end) };
        let part = &self.nodes[nodes];
        let mut used: BTreeSet<ValueId> = inputs.iter().chain(&outputs).copied().collect();
        used.extend(part.iter().flat_map(|n| n.inputs.iter().chain(&n.outputs)));
        used.extend(self.idle_buffers(&used, start == 0));
        let mut stage = Graph { name: self.name.clone(), ..Graph::default() };
        let mut numbers = BTreeMap::new();
        for v in used {
            let mut value = self.value(v).clone();
            if inputs.contains(&v) {
                value.kind = ValueKind::Input;
            }
            numbers.insert(v, stage.add_value(value));
        }
        let renumber = |all: &[ValueId]| all.iter().map(|v| numbers[v]).collect::<Vec<_>>();
        stage.nodes = part
            .iter()
            .map(|n| Node {
                name: n.name.clone(),
                op: n.op.clone(),
                inputs: renumber(&n.inputs),
                outputs: renumber(&n.outputs),
            })
            .collect();
        (stage.inputs, stage.outputs) = (renumber(&inputs), renumber(&outputs));
        if end == all {
            stage.output_names.clone_from(&self.output_names);
        }
        let own = self.aliases.iter().filter_map(|(name, v)| Some((name.clone(), *numbers.get(v)?)));
        stage.aliases = own.collect();
        Ok(stage)
    }

    /// Buffers that no node reads: a batch counter goes with its norm, all others with the first stage.
    fn idle_buffers(&self, used: &BTreeSet<ValueId>, first: bool) -> Vec<ValueId> {
        let read: BTreeSet<ValueId> = self.nodes.iter().flat_map(|n| n.inputs.iter().copied()).collect();
        let names: BTreeSet<&str> = used.iter().map(|v| self.value(*v).name.as_str()).collect();
        let known: BTreeSet<&str> = self.values.iter().map(|v| v.name.as_str()).collect();
        let idle = self.buffers().filter(|(v, _)| !read.contains(v));
        let ours = idle.filter(|(_, value)| {
            let norm = value.name.strip_suffix("num_batches_tracked").map(|m| format!("{m}running_mean"));
            match norm.filter(|n| known.contains(n.as_str())) {
                Some(norm) => names.contains(norm.as_str()),
                None => first,
            }
        });
        ours.map(|(v, _)| v).collect()
    }

    fn check_shared(&self, nodes: &Range<usize>) -> Result<(), CutError> {
        let mut users: BTreeMap<ValueId, &Node> = BTreeMap::new();
        for node in &self.nodes[nodes.clone()] {
            node.inputs.iter().for_each(|v| _ = users.entry(*v).or_insert(node));
        }
        for (_, node) in self.nodes.iter().enumerate().filter(|(i, _)| !nodes.contains(i)) {
            for v in &node.inputs {
                if let Some(inside) = users.get(v).filter(|_| self.is_kept(*v)) {
                    let (name, outside) = (self.value(*v).name.clone(), node.name.clone());
                    return Err(CutError::Shared { name, inside: inside.name.clone(), outside });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
