//! Measures how long each node of a model takes on this machine, forward and backward.

use crate::engine::{CompileOptions, Engine, Model, OpTime, Pass};
use crate::error::{RunError, StageError, WeightsError};
use phalanx_graph::{Graph, ValueId, ValueKind, Weights};
use phalanx_types::{Class, DType, Seed, Tensor};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How a model is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    pub batch: usize,
    /// The least number of rounds, after one warm-up round.
    pub rounds: usize,
    /// The least time to measure.
    pub time: Duration,
    /// The most bytes of parameters held at a time: a larger model is measured stage by stage.
    pub parameter_bytes: usize,
}

/// The time of one node in one pass, in seconds; the time of merged nodes is reported for the last one.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeTime {
    pub node: String,
    pub forward: f64,
    pub backward: f64,
}

/// A model could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Run(#[from] RunError),
}

impl MeasureError {
    pub fn class(&self) -> Class {
        match self {
            MeasureError::Stage(e) => e.class(),
            MeasureError::Weights(e) => e.class(),
            MeasureError::Run(e) => e.class(),
        }
    }
}

/// Trains on random samples and measures every node, in the order of the graph's nodes. Nodes without a call of their
/// own take no time.
///
/// # Errors
/// The engine cannot compute the model, or not with this batch size.
pub fn measure(engine: &dyn Engine, graph: &Graph, how: &Measurement) -> Result<Vec<NodeTime>, MeasureError> {
    let mut times = Vec::new();
    for nodes in pieces(graph, how.parameter_bytes) {
        times.extend(measure_stage(engine, graph, nodes, how)?);
    }
    Ok(times)
}

/// The model in pieces with at most this many bytes of parameters, where it can be cut.
fn pieces(graph: &Graph, most: usize) -> Vec<Range<usize>> {
    let mut own = vec![0; graph.nodes.len()];
    for (id, value) in graph.parameters() {
        if let Some(user) = graph.nodes.iter().position(|n| n.inputs.contains(&id)) {
            own[user] += value.shape.count().map_or(0, |c| c.at(1)) * value.dtype.size();
        }
    }
    let ends = graph.legal_cuts().into_iter().map(|p| p.at).chain([graph.nodes.len()]);
    let (mut start, mut last, mut pieces) = (0, 0, Vec::new());
    for end in ends {
        if last > start && own[start..end].iter().sum::<usize>() > most {
            pieces.push(start..last);
            start = last;
        }
        last = end;
    }
    pieces.push(start..last);
    pieces.retain(|p| !p.is_empty());
    pieces
}

fn measure_stage(
    engine: &dyn Engine,
    graph: &Graph,
    nodes: Range<usize>,
    how: &Measurement,
) -> Result<Vec<NodeTime>, MeasureError> {
    let options = CompileOptions { profile: true, ..CompileOptions::default() };
    let mut model = engine.compile_stage(graph, nodes.clone(), &options)?;
    let stage = graph.stage(nodes).map_err(StageError::Cut)?;
    model.load(&weights(&stage))?;
    let inputs: Vec<Vec<f32>> = stage.inputs.iter().map(|id| input(&stage, *id, how.batch)).collect();
    let mut rounds: BTreeMap<(String, bool), Vec<f64>> = BTreeMap::new();
    round(model.as_mut(), &stage, &inputs, how.batch, 0)?;
    let began = Instant::now();
    for number in 1..=MOST_ROUNDS {
        let taken = round(model.as_mut(), &stage, &inputs, how.batch, number as u64)?;
        let mut sums: BTreeMap<(String, bool), f64> = BTreeMap::new();
        let each = 1.0 / IN_PASSING as f64;
        taken.into_iter().for_each(|t| *sums.entry((t.node, t.backward)).or_default() += t.seconds * each);
        sums.into_iter().for_each(|(key, seconds)| rounds.entry(key).or_default().push(seconds));
        if number >= how.rounds && began.elapsed() >= how.time {
            break;
        }
    }
    let time = |node: &str, backward| rounds.get(&(node.to_owned(), backward)).map_or(0.0, |t| median(t));
    let times = stage.nodes.iter().map(|n| NodeTime {
        node: n.name.clone(),
        forward: time(&n.name, false),
        backward: time(&n.name, true),
    });
    Ok(times.collect())
}

/// Batches between forward and backward at a time. As in a pipeline there is more than one, so that a batch's data has
/// left the caches before its backward.
const IN_PASSING: usize = 2;
/// The most rounds, however short they are.
const MOST_ROUNDS: usize = 1000;

fn round(
    model: &mut dyn Model,
    stage: &Graph,
    inputs: &[Vec<f32>],
    batch: usize,
    seed: u64,
) -> Result<Vec<OpTime>, RunError> {
    let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
    for slot in 0..IN_PASSING {
        model.forward(slot, batch, &inputs, Pass { training: true, seed })?;
    }
    for slot in 0..IN_PASSING {
        let gradients: Vec<Vec<f32>> =
            (0..stage.outputs.len()).map(|o| vec![0.01; model.output(slot, o).len()]).collect();
        let gradients: Vec<&[f32]> = gradients.iter().map(Vec::as_slice).collect();
        model.backward(slot, &gradients, &mut |_, _| ())?;
    }
    Ok(model.take_profile())
}

/// First weights; zeros where they would come with the model.
fn weights(stage: &Graph) -> Weights {
    let mut weights = stage.initialise(Seed(0));
    for (_, value) in stage.parameters().chain(stage.buffers()) {
        let given = !weights.contains_key(&value.name) && value.dtype == DType::F32;
        let dims = value.shape.as_fixed().filter(|_| given);
        let zeros = dims.and_then(|dims| {
            let zeros = vec![0.0; dims.iter().product()];
            Tensor::from_f32(dims.into_iter().map(|d| d as u64).collect(), &zeros).ok()
        });
        zeros.into_iter().for_each(|zeros| _ = weights.insert(value.name.clone(), zeros));
    }
    weights
}

/// Numbers between 0 and 1; zero for integers, which is an index of anything.
fn input(stage: &Graph, id: ValueId, batch: usize) -> Vec<f32> {
    debug_assert_eq!(stage.value(id).kind, ValueKind::Input);
    let n: usize = stage.shape(id).at(batch).iter().product();
    match stage.value(id).dtype {
        DType::F32 => (0..n).map(|i| (i * 7919 % 1000) as f32 / 1000.0).collect(),
        _ => vec![0.0; n],
    }
}

fn median(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
