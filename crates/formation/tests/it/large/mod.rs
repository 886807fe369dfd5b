//! Large pools of machines of all kinds.

use crate::random::Random;
use phalanx_formation::{Link, ModelCost, Pool, PoolNode};

/// Evenly over the orders of magnitude.
fn unequal(dice: &mut Random, from: f64, to: f64) -> f64 {
    dice.between(from.ln(), to.ln()).exp()
}

/// Up to four nodes on each machine; a node has memory for a seventh of a model to three of them.
pub(crate) fn pool(dice: &mut Random, nodes: usize, model: &ModelCost) -> Pool {
    let whole = model.parameter_bytes() as f64 * 4.0 + 200_000.0;
    let mut pool = Pool::new(Vec::with_capacity(nodes));
    while pool.nodes.len() < nodes {
        let host = format!("h{}", pool.nodes.len());
        let (speed, memory) = (unequal(dice, 0.2, 4.0), unequal(dice, 0.15, 3.0) * whole);
        let uplink = Link::new(unequal(dice, 1e6, 1e8), unequal(dice, 1e-4, 2e-2));
        let here = dice.number(1, 4);
        for _ in 0..here.min(nodes - pool.nodes.len()) {
            let mut node = PoolNode::new(format!("n{}", pool.nodes.len()), memory as u64, speed);
            (node.host, node.cores, node.uplink) = (host.clone(), here as f64, Some(uplink));
            pool.nodes.push(node);
        }
    }
    pool
}
