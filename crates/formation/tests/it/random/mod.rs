//! Random models, pools and options from a seed.

use phalanx_formation::{
    CutCost, Exchange, Held, Link, Mode, ModelCost, OpCost, Options, Pool, PoolNode, Work,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

#[derive(Debug)]
pub(crate) struct Random(Pcg64);

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) model: ModelCost,
    pub(crate) pool: Pool,
    pub(crate) options: Options,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    pub(crate) fn number(&mut self, from: usize, to: usize) -> usize {
        self.0.random_range(from..=to)
    }

    pub(crate) fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.0.random_range(0..1_000_000u32) as f64 / 1e6
    }

    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.0.random_ratio(percent, 100)
    }

    /// Operators of very different weight, as a small network has them.
    pub(crate) fn model(&mut self, ops: usize, cuts: usize) -> ModelCost {
        let op = |i: usize, dice: &mut Self| {
            let forward = Work { per_sample: dice.between(1e-4, 4e-3), per_batch: dice.between(0.0, 1e-3) };
            let backward = Work { per_sample: 2.0 * forward.per_sample, per_batch: forward.per_batch };
            OpCost {
                name: format!("op{i}"),
                parameter_bytes: if dice.chance(70) { dice.number(1_000, 400_000) as u64 } else { 0 },
                buffer_bytes: dice.number(0, 2_000) as u64,
                activation_bytes: dice.number(100, 20_000) as u64,
                forward,
                backward,
                update: if dice.chance(50) { dice.between(0.0, 4e-3) } else { 0.0 },
            }
        };
        let ops_made = (0..ops).map(|i| op(i, self)).collect();
        let mut at: Vec<usize> = (1..ops).collect();
        while at.len() > cuts {
            at.remove(self.number(0, at.len() - 1));
        }
        let cut = |at: usize, dice: &mut Self| {
            let forward_bytes = dice.number(200, 40_000) as u64;
            CutCost { at, forward_bytes, backward_bytes: forward_bytes - dice.number(0, 100) as u64 }
        };
        ModelCost { ops: ops_made, cuts: at.into_iter().map(|a| cut(a, self)).collect() }
    }

    pub(crate) fn link(&mut self) -> Link {
        Link::new(self.between(1e6, 3e7), self.between(1e-4, 4e-3))
    }

    /// Unequal machines, some or all on one host; a node holds a third to two and a half of a model.
    pub(crate) fn pool(&mut self, nodes: usize, model: &ModelCost) -> Pool {
        let whole = model.parameter_bytes() as f64 * 4.0 + 200_000.0;
        let like = self.chance(30);
        let (memory, speed) = (self.between(0.4, 2.0) * whole, self.between(0.5, 2.0));
        let mut pool = Pool::new(Vec::new());
        pool.default_link = self.link();
        let uplinks = self.chance(50);
        let (together, busy) = (self.chance(15), self.chance(30));
        let host_of = |i: usize, dice: &mut Self| match dice.chance(35) {
            _ if together => 0,
            true => i / 2,
            false => 100 + i,
        };
        for i in 0..nodes {
            let own = if like { memory } else { self.between(0.3, 2.5) * whole };
            let speed = if like { speed } else { self.between(0.2, 4.0) };
            let mut node = PoolNode::new(format!("n{i}"), own as u64, speed);
            node.host = format!("h{}", host_of(i, self));
            node.cores = self.number(1, 3) as f64;
            node.threads = if busy { self.number(1, 3) as f64 } else { 1.0 };
            node.uplink = uplinks.then(|| self.link());
            pool.nodes.push(node);
        }
        if self.chance(30) && nodes > 1 {
            let (a, b) = (self.number(0, nodes - 1), self.number(0, nodes - 1));
            if a != b {
                pool.links.insert((a, b), self.link());
            }
        }
        pool
    }

    pub(crate) fn options(&mut self, nodes: usize, ops: usize) -> Options {
        let mut options =
            Options { batch: self.number(4, 40), seed: self.number(0, 1000) as u64, ..Options::default() };
        options.exchange = Exchange { every: [1, 4, 20][self.number(0, 2)], bytes_per_parameter_byte: 1.0 };
        // As runs have them: steps that begin with an agreement, and cores that threads have to share.
        if self.chance(60) {
            options.crowding = self.between(1.05, 1.4);
        }
        if self.chance(40) {
            options.step_s = self.between(1e-4, 5e-2);
        }
        if self.chance(20) {
            let in_flight = if self.chance(50) { Some(self.number(1, 6)) } else { None };
            options.mode = Mode::Asynchronous { in_flight };
            options.unit = [4, 30, u64::MAX][self.number(0, 2)];
        }
        if self.chance(50) {
            options.byte_work = self.between(0.0, 1e-7);
            options.pass_work = self.between(0.0, 2e-3);
        }
        if self.chance(40) {
            options.ahead = self.number(1, 2);
        }
        if self.chance(60) {
            options.micro_batches = Some(self.number(1, 8));
        }
        if self.chance(20) {
            options.replicas = Some(self.number(1, nodes));
        }
        if self.chance(15) {
            options.stages = Some(self.number(1, nodes));
        }
        if self.chance(25) {
            let to = self.number(1, ops);
            options.held.push(Held { node: self.number(0, nodes - 1), ops: 0..to });
            options.held.push(Held { node: self.number(0, nodes - 1), ops: to / 2..ops });
            options.move_horizon = self.between(0.5, 20.0);
        }
        options
    }

    pub(crate) fn case(&mut self, nodes: usize, cuts: usize) -> Case {
        let ops = cuts + 1 + self.number(0, 2);
        let model = self.model(ops, cuts);
        let pool = self.pool(nodes, &model);
        Case { options: self.options(nodes, ops), model, pool }
    }
}
