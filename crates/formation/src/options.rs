use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What a formation is for, and which of its properties are fixed.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Samples of a step, over all replicas.
    pub batch: usize,
    /// The number of replicas; `None` lets the planner choose.
    pub replicas: Option<usize>,
    /// The number of stages in each replica; `None` lets the planner choose.
    pub stages: Option<usize>,
    /// Micro-batches of each replica's share of a batch; `None` lets the planner choose.
    pub micro_batches: Option<usize>,
    /// The fewest samples of a micro-batch that the planner chooses.
    pub least_micro: usize,
    pub mode: Mode,
    /// Micro-batches that a stage of an exact pipeline admits beyond those that keep the stages behind it busy.
    pub ahead: usize,
    /// Bytes kept for each byte of a parameter: weights, gradients, optimizer state, copies.
    pub kept_per_parameter_byte: f64,
    /// The base memory of a process.
    pub base_bytes: u64,
    pub exchange: Exchange,
    /// Bytes sent for each byte of an activation or its gradient.
    pub transfer_factor: f64,
    /// Work of a stage for every forward and every backward of a micro-batch, besides its operators, if there are other
    /// stages.
    pub pass_work: f64,
    /// Work of sending or receiving a byte of an activation or its gradient, on either side.
    pub byte_work: f64,
    /// Seconds that all stages take to agree on a step, links between hosts aside.
    pub step_s: f64,
    /// Steps after which an asynchronous pipeline of one replica stops; several replicas stop for every exchange.
    pub unit: u64,
    /// How many times longer everything takes on a host with more busy threads than cores.
    pub crowding: f64,
    /// Which nodes hold which parameters already.
    pub held: Vec<Held>,
    /// Seconds over which moving parameters must pay off; with 0 moving is free.
    pub move_horizon: f64,
    pub seed: u64,
    pub effort: Effort,
}

/// How a replica processes its micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One forward, one backward: the pipeline fills and drains in every step.
    Exact,
    /// The pipeline stays full, with `in_flight` micro-batches; by default twice as many as stages.
    Asynchronous { in_flight: Option<usize> },
}

/// What replicas exchange, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// Steps from one exchange to the next.
    pub every: u64,
    pub bytes_per_parameter_byte: f64,
}

/// Parameters that a node holds already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub node: usize,
    pub ops: Range<usize>,
}

/// How much effort to spend on the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// The number of formations to evaluate before the best of them is taken.
    pub evaluations: u64,
    /// Pools of up to this many nodes are planned exactly, as far as `evaluations` reach.
    pub exact_nodes: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { evaluations: 12_000, exact_nodes: 7 }
    }
}

impl Default for Exchange {
    fn default() -> Self {
        Self { every: 1, bytes_per_parameter_byte: 1.0 }
    }
}

impl Default for Options {
    /// A batch of 32, trained exactly with Adam.
    fn default() -> Self {
        Self {
            batch: 32,
            replicas: None,
            stages: None,
            micro_batches: None,
            least_micro: 1,
            mode: Mode::Exact,
            ahead: 0,
            kept_per_parameter_byte: 4.0,
            base_bytes: 0,
            exchange: Exchange::default(),
            transfer_factor: 1.0,
            pass_work: 0.0,
            byte_work: 0.0,
            step_s: 0.0,
            unit: u64::MAX,
            crowding: 1.0,
            held: Vec::new(),
            move_horizon: 0.0,
            seed: 0,
            effort: Effort::default(),
        }
    }
}

/// The most micro-batches that are tried if the number is not given.
const MOST_MICRO_BATCHES: usize = 256;

impl Options {
    /// The numbers of micro-batches a planner chooses from: the given one, otherwise 1, 2, 4, … up to the batch.
    pub fn micro_batch_choices(&self) -> Vec<usize> {
        match (self.micro_batches, self.mode) {
            (Some(given), _) => vec![given.clamp(1, self.batch.max(1))],
            (None, Mode::Asynchronous { .. }) => vec![1],
            (None, Mode::Exact) => {
                let most = (self.batch / self.least_micro.max(1)).min(MOST_MICRO_BATCHES);
                std::iter::successors(Some(1), |m| Some(m * 2)).take_while(|m| *m <= most.max(1)).collect()
            }
        }
    }
}
