//! What a model asks of a step: operations, and gradients in the order they become final.

use super::options::{Options, Speed};
use phalanx_collective::{BucketLimits, Buckets};
use phalanx_graph::{Graph, Op, ValueKind};
use std::collections::BTreeSet;

/// Of forward and backward together: a backward pass costs about twice a forward pass.
const BACKWARD: f64 = 2.0 / 3.0;
/// Operations of a step, as a multiple of those of a forward pass.
const PASSES: f64 = 3.0;
/// Bytes that an update moves for each parameter: gradient, parameter and two moments are read, three are written.
const UPDATE_BYTES: f64 = 28.0;
/// What a core moves between memory and itself.
const MEMORY_BYTES_PER_SEC: f64 = 8e9;
/// Bytes of state for each parameter: itself and two moments.
const STATE_BYTES: u64 = 12;

/// Gradients that are exchanged together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    pub elements: usize,
    /// The part of forward and backward after which they are final.
    pub ready: f64,
}

/// What one step of a model takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    pub name: String,
    pub parameters: u64,
    /// Of a sample, forward.
    pub flops: u64,
    /// In the order they become ready.
    pub buckets: Vec<Bucket>,
    /// Channels of each batch norm.
    pub norms: Vec<usize>,
}

impl Work {
    /// Reads a model.
    pub fn new(name: &str, graph: &Graph) -> Self {
        let cost = graph.cost();
        let (mut sizes, mut ready, mut counted) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut done = 0u64;
        let mut norms = Vec::new();
        for (node, cost) in graph.nodes.iter().zip(&cost.nodes).rev() {
            done = done.saturating_add(cost.flops);
            for input in &node.inputs {
                let value = graph.value(*input);
                if matches!(value.kind, ValueKind::Parameter(_)) && counted.insert(*input) {
                    sizes.push(value.shape.at(1).iter().product::<usize>());
                    ready.push(done);
                }
            }
            if matches!(node.op, Op::BatchNorm { .. }) {
                norms.extend(sizes.last());
            }
        }
        let part = |done: u64| if cost.flops > 0 { done as f64 / cost.flops as f64 } else { 1.0 };
        let plan = Buckets::plan(&sizes, BucketLimits::default());
        let bucket = |index: usize| {
            // Neighbours become ready one after the other, the last of them last.
            let last = plan.tensors(index).end.saturating_sub(1);
            let done = ready.get(last).copied().unwrap_or(cost.flops);
            Bucket { elements: plan.length(index), ready: 1.0 - BACKWARD * (1.0 - part(done)) }
        };
        Self {
            name: name.to_owned(),
            parameters: cost.parameters,
            flops: cost.flops,
            buckets: (0..plan.count()).map(bucket).collect(),
            norms,
        }
    }

    /// Seconds that a node that is not slow computes for one sample.
    pub fn seconds_per_sample(&self, options: &Options) -> f64 {
        match options.speed {
            Speed::Flops(speed) => self.flops as f64 * PASSES / speed,
            Speed::Step(time) => time.as_secs_f64() / options.share(),
        }
    }

    /// Seconds that an update takes.
    pub(super) fn update_seconds(&self) -> f64 {
        self.parameters as f64 * UPDATE_BYTES / MEMORY_BYTES_PER_SEC
    }

    /// Bytes that a replica must hold to go on.
    pub fn state_bytes(&self) -> u64 {
        self.parameters * STATE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_graph::zoo::{self, ZooOptions};

    #[test]
    fn gradients_of_the_last_layers_are_ready_first() {
        let work = Work::new("resnet-18", &zoo::build("resnet-18", &ZooOptions::default()).unwrap());
        assert_eq!(work.parameters, 11_689_512);
        let elements: usize = work.buckets.iter().map(|bucket| bucket.elements).sum();
        assert!((11_689_512..11_700_000).contains(&elements), "{elements}");
        assert!(work.buckets.len() >= 3, "{:?}", work.buckets);
        assert!(work.buckets.is_sorted_by(|a, b| a.ready <= b.ready), "{:?}", work.buckets);
        assert!(work.buckets[0].ready > 1.0 - BACKWARD && work.buckets[0].ready < 0.5, "{:?}", work.buckets);
        assert_eq!(work.buckets.last().unwrap().ready, 1.0);
        assert_eq!((work.norms.len(), work.norms.iter().max()), (20, Some(&512)));
    }
}
