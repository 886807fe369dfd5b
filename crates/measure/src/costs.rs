//! The cost of a model in the form the planner needs.

mod cuts;

pub use cuts::{NoCut, keep_cuts};

use crate::error::CostError;
use crate::{Hop, USUAL_GFLOPS, measure_here, measure_hop};
use phalanx_engine::{Measurement, NodeTime, Optimizer, measure};
use phalanx_formation::{CutCost, Exchange, Link, Mode, ModelCost, OpCost, Options, Work};
use phalanx_graph::weights::Later;
use phalanx_graph::{Cost, Graph, Op};
use phalanx_records::pack_later;
use phalanx_train::config::{ExchangeOf, RunConfig};
use phalanx_train::{Compute, needs_several};
use phalanx_types::DType;
use std::io::Write;
use std::time::{Duration, Instant};

/// How long a model is measured with each of two batch sizes; with less time the result is noise.
const TIME: Duration = Duration::from_millis(150);
/// The least number of rounds, and the largest part of that time for one batch.
const ROUNDS: usize = 5;
const ONE_BATCH: f64 = 0.2;
/// The time for all stages to agree on a step, in wake-ups.
const AGREE_HOPS: f64 = 5.0 / 3.0;
/// How much nodes that share cores slow each other down.
const CROWDING: f64 = 1.55;
/// The extra time of a stage after a wake-up, as a fraction of the wake-up time.
const PASS_HOPS: f64 = 0.35;
/// Bytes per second between stages on one host, beyond the CPU time of both stages.
const LOCAL_BYTES_PER_S: f64 = 2e10;
/// The most bytes of parameters held at a time.
const HELD: usize = 256 << 20;
/// A backward pass computes about twice what a forward pass does.
const BACKWARD: f64 = 2.0;
/// The fewest samples with which batch norm is measured.
const NORMED: usize = 16;
/// The memory of a node's process before it holds anything of a model.
pub const PROCESS_BYTES: u64 = 24 << 20;

/// Measurements of this machine, in terms of which costs are expressed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Here {
    /// GFLOP/s of one thread, if it was measured.
    pub gflops: Option<f64>,
    pub hop: Hop,
}

impl Default for Here {
    fn default() -> Self {
        Self { gflops: None, hop: Hop::USUAL }
    }
}

impl Here {
    /// The link between stages on one host.
    pub fn local_link(&self) -> Link {
        Link::new(LOCAL_BYTES_PER_S, self.hop.latency_s)
    }

    /// Seconds that all stages take to agree on a step.
    pub fn agree_s(&self) -> f64 {
        AGREE_HOPS * self.hop.latency_s
    }
}

/// The cost of every operator of a model; work is in counted GFLOP.
pub fn counted(graph: &Graph) -> ModelCost {
    let of = |_: usize, flops: f64| {
        let work = |times: f64| Work { per_sample: times * flops / 1e9, per_batch: 0.0 };
        ([work(1.0), work(BACKWARD)], 0.0)
    };
    cost(graph, &graph.cost(), of)
}

/// The same, measured on this machine: work is in seconds times the GFLOP/s that this machine reaches in node
/// measurements. Returns these with the other measurements.
///
/// # Errors
/// The model cannot be computed here.
pub fn measured(
    graph: &Graph,
    compute: &Compute,
    config: &RunConfig,
) -> Result<(ModelCost, Here), CostError> {
    let batch = config.train.batch * config.train.accumulate;
    let counts = graph.cost();
    let unreadable = |what: String| CostError::Measure { what };
    let speed = f64::from(measure_here(compute).map_err(unreadable)?.gflops);
    let flops = (1.0 + BACKWARD) * counts.flops.max(1) as f64;
    // The samples that are computed at once, unless that takes too long.
    let parts = config.formation.micro_batches.unwrap_or(1).max(1);
    let in_time = (ONE_BATCH * TIME.as_secs_f64() * speed * 1e9 / flops) as usize;
    let fewest = if needs_several(graph).is_some() { 2 } else { 1 };
    let most = in_time.min(batch.div_ceil(parts)).max(fewest + 1);
    let few = (most / 4).max(fewest);
    let times = |batch: usize| -> Result<Vec<NodeTime>, CostError> {
        let how = Measurement { batch, rounds: ROUNDS, time: TIME, parameter_bytes: HELD };
        measure(&*compute.engine, graph, &how).map_err(|error| unreadable(error.to_string()))
    };
    let (less, more) = (times(few)?, times(most)?);
    let work = |less: f64, more: f64| {
        let per_sample = ((more - less) / (most - few) as f64).max(0.0);
        let per_sample = if per_sample > 0.0 { per_sample } else { more / most as f64 };
        let per_batch = (less - per_sample * few as f64).max(0.0);
        Work { per_sample: per_sample * speed, per_batch: per_batch * speed }
    };
    let update = (update_seconds(config, compute) + copy_seconds(config)) * speed;
    let of = |node: usize, _: f64| {
        let (less, more) = (&less[node], &more[node]);
        let passes = [work(less.forward, more.forward), work(less.backward, more.backward)];
        (passes, update * counts.nodes[node].parameters as f64)
    };
    let hop = measure_hop().unwrap_or(Hop::USUAL);
    Ok((cost(graph, &counts, of), Here { gflops: Some(speed), hop }))
}

/// Seconds per parameter of the gradient norm and the update.
fn update_seconds(config: &RunConfig, compute: &Compute) -> f64 {
    const ELEMENTS: usize = 1 << 18;
    let mut optimizer = Optimizer::new(config.train.optimizer, &[ELEMENTS]);
    let (mut parameter, gradient) = (vec![0.5; ELEMENTS], vec![0.25; ELEMENTS]);
    let mut once = || {
        let began = Instant::now();
        optimizer.begin_step();
        let norm = phalanx_engine::grad_norm(&compute.threads, [&gradient[..]]);
        optimizer.update(&compute.threads, 0, 1e-3 * norm as f32, &mut parameter, &gradient);
        began.elapsed().as_secs_f64()
    };
    (0..4).map(|_| once()).fold(f64::INFINITY, f64::min) / ELEMENTS as f64
}

/// Seconds per step and parameter for copies: a stage packs its parameters and optimizer state every few steps.
fn copy_seconds(config: &RunConfig) -> f64 {
    const ELEMENTS: usize = 1 << 19;
    if config.formation.copies == 0 {
        return 0.0;
    }
    let values = vec![0.5f32; ELEMENTS];
    let write = |out: &mut dyn Write| out.write_all(bytemuck::cast_slice(&values.clone()));
    let name = "copy".to_owned();
    let later = [Later { name, dtype: DType::F32, shape: vec![ELEMENTS], write: Box::new(write) }];
    let once = || {
        let began = Instant::now();
        // Without room for copies there are none.
        pack_later(0, [&later, &[]]).map_or(0.0, |_packed| began.elapsed().as_secs_f64())
    };
    let packed = (0..4).map(|_| once()).fold(f64::INFINITY, f64::min) / ELEMENTS as f64;
    let kept = 1 + config.train.optimizer.state_names().len();
    packed * kept as f64 / config.formation.copies as f64
}

/// `work` returns both passes of an operator, and its update.
fn cost(graph: &Graph, counts: &Cost, work: impl Fn(usize, f64) -> ([Work; 2], f64)) -> ModelCost {
    let op = |(index, node): (usize, &phalanx_graph::NodeCost)| {
        let ([forward, backward], update) = work(index, node.flops as f64);
        let buffers = graph.nodes[index].inputs.iter().map(|v| graph.value(*v));
        let buffers = buffers.filter(|value| matches!(value.kind, phalanx_graph::ValueKind::Buffer(_)));
        OpCost {
            name: node.name.clone(),
            parameter_bytes: 4 * node.parameters,
            buffer_bytes: buffers.map(|value| 4 * value.shape.count().map_or(0, |c| c.at(1) as u64)).sum(),
            // An operator's output and its gradient.
            activation_bytes: 8 * node.activations,
            forward,
            backward,
            update,
        }
    };
    let cut = |cut: phalanx_graph::CutPoint| {
        let floats = cut.alive.iter().filter(|v| graph.value(**v).dtype == DType::F32);
        let bytes = |v: &phalanx_graph::ValueId| 4 * graph.shape(*v).count().map_or(0, |c| c.at(1) as u64);
        CutCost {
            at: cut.at,
            forward_bytes: cut.alive.iter().map(bytes).sum(),
            backward_bytes: floats.map(bytes).sum(),
        }
    };
    ModelCost {
        ops: counts.nodes.iter().enumerate().map(op).collect(),
        cuts: graph.legal_cuts().into_iter().map(cut).collect(),
    }
}

/// The planner's options for a run.
pub fn options(config: &RunConfig, graph: &Graph, here: &Here) -> Options {
    let norms = graph.nodes.iter().any(|node| matches!(node.op, Op::BatchNorm { .. }));
    let (formation, sync) = (&config.formation, &config.sync);
    let states = config.train.optimizer.state_names().len() as f64;
    let averaged = if sync.average_optimizer { states } else { 0.0 };
    let compressed =
        |compression: phalanx_collective::Compression| compression.encoded_len(4096) as f64 / 16384.0;
    let batch = config.train.batch * config.train.accumulate;
    Options {
        batch,
        replicas: formation.pipelines,
        stages: formation.stages,
        micro_batches: formation.micro_batches,
        least_micro: if norms { NORMED } else { 1 },
        mode: match formation.is_asynchronous() {
            true => Mode::Asynchronous { in_flight: formation.in_flight },
            false => Mode::Exact,
        },
        ahead: formation.ahead,
        kept_per_parameter_byte: kept(config, states),
        base_bytes: PROCESS_BYTES,
        exchange: Exchange {
            every: sync.every,
            bytes_per_parameter_byte: compressed(sync.compress) + averaged,
        },
        transfer_factor: compressed(formation.compress),
        step_s: here.agree_s(),
        unit: formation.unit(),
        pass_work: PASS_HOPS * here.hop.latency_s * here.gflops.unwrap_or(USUAL_GFLOPS),
        byte_work: here.hop.byte_s * here.gflops.unwrap_or(USUAL_GFLOPS),
        crowding: CROWDING,
        seed: config.train.seed.0,
        ..Options::default()
    }
}

/// Bytes that a stage keeps for each byte of its parameters; `states` is the number of optimizer states per parameter.
fn kept(config: &RunConfig, states: f64) -> f64 {
    let (formation, sync) = (&config.formation, &config.sync);
    // Parameters, gradients, optimizer state, and a tensor that is being packed.
    let always = 2.0 + states + 0.5;
    // The sums of gradients over micro-batches.
    let sums = if formation.micro_batches == Some(1) { 0.0 } else { 1.0 };
    let several = formation.pipelines != Some(1);
    // Buffers of the rings.
    let rings = if several { 1.0 } else { 0.0 };
    let alone = several && sync.exchange != ExchangeOf::Gradients;
    // The anchor of an interval, and the delta since then while it is averaged.
    let anchor = if formation.is_asynchronous() || alone { 1.0 + states } else { 0.0 };
    let learned = if alone { 1.0 + states } else { 0.0 };
    let outer = if alone && sync.exchange == ExchangeOf::Outer { 1.0 } else { 0.0 };
    always + sums + rings + anchor + learned + outer
}
