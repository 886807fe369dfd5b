//! Replicas compute what one model computes of the whole batch.

#![expect(clippy::unwrap_used, reason = "a test")]

use phalanx_collective::{BucketLimits, Buckets, SharedGroup};
use phalanx_data::{Batch, Columns, Dataset, SourceSpec};
use phalanx_engine::{CompileOptions, CpuEngine, Engine, Loss, Optimizer, OptimizerSpec, Sgd, Threads};
use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_graph::{Graph, Op};
use phalanx_train::replica::{Exchange, Together};
use phalanx_train::{StepInput, Stepper, StepperOptions, params_hash};
use phalanx_types::Seed;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const BATCH: usize = 64;
const LR: f32 = 0.005;

fn graph(name: &str) -> Graph {
    let mut graph = zoo::build(name, &ZooOptions::default()).unwrap();
    for node in &mut graph.nodes {
        if let Op::Dropout { ratio } = &mut node.op {
            *ratio = 0.0;
        }
    }
    graph
}

fn stepper(graph: &Graph) -> Stepper {
    let mut model = CpuEngine::new(1).compile(graph, &CompileOptions::default()).unwrap();
    model.load(&graph.initialise(Seed(5))).unwrap();
    let sizes: Vec<usize> = model.parameters().iter().map(|p| p.elements()).collect();
    // Adam divides by the size of gradients, and makes large differences of the smallest.
    let sgd = Sgd { lr: LR, momentum: 0.9, ..Sgd::default() };
    let optimizer = Optimizer::new(OptimizerSpec::Sgd(sgd), &sizes);
    let loss = Loss::Mse;
    let options = StepperOptions { loss, clip_norm: Some(1.0), clip_value: None, seed: Seed(1) };
    Stepper::new(model, optimizer, options, Arc::new(Threads::new(1)))
}

/// Samples of a step and their labels, one after the other through the file.
fn samples(data: &Dataset, step: u64) -> Batch {
    let indices: Vec<usize> = (0..BATCH).map(|i| (step as usize * BATCH + i) % data.len()).collect();
    let mut batch = Batch::new();
    data.read(&indices, &mut batch).unwrap();
    batch
}

fn digits() -> Dataset {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.npz");
    let (x, y) = (Some(Columns::One("x_train".into())), Some("y_train".into()));
    Dataset::open(&SourceSpec { x, y, ..SourceSpec::file(file) }, Path::new("")).unwrap()
}

struct Trained {
    losses: Vec<f64>,
    /// After every step.
    hashes: Vec<String>,
    parameters: Vec<f32>,
}

/// Trains on some samples of every batch.
fn train(mut stepper: Stepper, graph: &Graph, part: Range<usize>, steps: u64) -> Trained {
    let size: usize = graph.shape(graph.inputs[0]).at(1).iter().product();
    let (mut losses, mut hashes) = (Vec::new(), Vec::new());
    let data = digits();
    for step in 0..steps {
        let batch = samples(&data, step);
        let (x, y) = (&batch.x[part.start * size..part.end * size], &batch.y[part.clone()]);
        let (len, whole, batch, lr) = (part.len(), BATCH, part.len(), LR);
        let input = StepInput { x, y, y_shape: &[], len, whole, batch, step, lr };
        losses.push(stepper.step(&input).unwrap().loss);
        hashes.push(params_hash(&stepper.model().weights()));
    }
    let mut parameters = Vec::new();
    stepper.model().update(&mut |_, parameter, _| parameters.extend_from_slice(parameter));
    Trained { losses, hashes, parameters }
}

fn groups(ranks: usize, room: usize) -> Vec<SharedGroup> {
    let (prepared, addresses): (Vec<_>, Vec<_>) =
        (0..ranks).map(|rank| SharedGroup::prepare(rank, ranks, 1, room).unwrap()).unzip();
    prepared.into_iter().map(|p| p.connect(&addresses).unwrap()).collect()
}

/// A replica that trains on its samples together with the others.
fn replica(graph: &Graph, lanes: (SharedGroup, SharedGroup), part: Range<usize>, steps: u64) -> Trained {
    let mut stepper = stepper(graph);
    let sizes: Vec<usize> = stepper.model().parameters().iter().map(|p| p.elements()).collect();
    let exchange = Exchange::new(lanes.0, Buckets::plan(&sizes, BucketLimits::default())).unwrap();
    stepper.join(Some(Together::new(exchange, lanes.1)), true);
    train(stepper, graph, part, steps)
}

fn replicas_equal_one(name: &str, cuts: &[usize], steps: u64) {
    let graph = &graph(name);
    let alone = train(stepper(graph), graph, 0..BATCH, steps);
    let ranks = cuts.len() - 1;
    let lanes = groups(ranks, 64 << 20).into_iter().zip(groups(ranks, 1 << 20));
    let results: Vec<Trained> = std::thread::scope(|scope| {
        let parts = cuts.windows(2).map(|cut| cut[0]..cut[1]);
        let run = |(lanes, part)| scope.spawn(move || replica(graph, lanes, part, steps));
        let threads: Vec<_> = lanes.zip(parts).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (rank, result) in results.iter().enumerate() {
        assert_eq!(result.hashes, results[0].hashes, "hashes of rank {rank} and rank 0");
        for (step, (got, wanted)) in result.losses.iter().zip(&alone.losses).enumerate() {
            let far = (got - wanted).abs() / wanted.abs().max(1.0);
            assert!(far < 1e-5, "{name}: loss of step {step}: {got} and {wanted}");
        }
    }
    let pairs = results[0].parameters.iter().zip(&alone.parameters);
    let far = pairs.fold(0.0f32, |far, (a, b)| far.max((a - b).abs()));
    assert!(far < 1e-3, "{name}: parameters are {far} apart");
}

#[test]
fn four_replicas_of_digits_equal_one_model() {
    replicas_equal_one("digits-cnn", &[0, 16, 32, 48, 64], 200);
}

#[test]
fn replicas_with_unequal_shares_equal_one_model() {
    replicas_equal_one("digits-cnn", &[0, 1, 40, 64], 50);
}
