//! Plain models and pools.

use phalanx_formation::{CutCost, ModelCost, OpCost, Options, Pool, PoolNode, Work};

pub(crate) const MIB: u64 = 1 << 20;

/// Equal layers of 10 MiB with 1 ms forward a sample, cut anywhere.
pub(crate) fn model(layers: usize) -> ModelCost {
    let op = |i: usize| OpCost {
        name: format!("fc{}", i + 1),
        parameter_bytes: 10 * MIB,
        forward: Work { per_sample: 1e-3, per_batch: 0.0 },
        backward: Work { per_sample: 2e-3, per_batch: 0.0 },
        ..OpCost::default()
    };
    let cut = |at| CutCost { at, forward_bytes: 1000, backward_bytes: 1000 };
    ModelCost { ops: (0..layers).map(op).collect(), cuts: (1..layers).map(cut).collect() }
}

pub(crate) fn pool(nodes: &[(u64, f64)]) -> Pool {
    let node =
        |(i, (mib, speed)): (usize, &(u64, f64))| PoolNode::new(format!("n{}", i + 1), mib * MIB, *speed);
    Pool::new(nodes.iter().enumerate().map(node).collect())
}

pub(crate) fn options() -> Options {
    Options { kept_per_parameter_byte: 1.0, ..Options::default() }
}
