//! Replicas that share batch-norm statistics compute what one model computes from the whole batch.

use phalanx_engine::{CompileOptions, CpuEngine, Engine, Model, Pass, RunError};
use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_types::Seed;
use std::sync::{Arc, Barrier, Mutex};

const BATCH: usize = 12;
const PASS: Pass = Pass { training: true, seed: 7 };

/// Adds the values of all threads, in rank order.
#[derive(Debug)]
struct Sums {
    barrier: Barrier,
    brought: Mutex<Vec<Vec<f64>>>,
}

impl Sums {
    fn new(ranks: usize) -> Arc<Self> {
        Arc::new(Self { barrier: Barrier::new(ranks), brought: Mutex::new(vec![Vec::new(); ranks]) })
    }

    fn sum(&self, rank: usize, values: &mut [f64]) {
        self.brought.lock().unwrap()[rank] = values.to_vec();
        self.barrier.wait();
        let brought = self.brought.lock().unwrap().clone();
        for (i, value) in values.iter_mut().enumerate() {
            *value = brought.iter().map(|all| all[i]).sum();
        }
        self.barrier.wait();
    }
}

struct Result {
    output: Vec<f32>,
    gradients: Vec<Vec<f32>>,
    buffers: Vec<Vec<f32>>,
}

fn model() -> Box<dyn Model> {
    let graph = zoo::build("digits-cnn", &ZooOptions::default()).unwrap();
    let mut model = CpuEngine::new(1).compile(&graph, &CompileOptions::default()).unwrap();
    model.load(&graph.initialise(Seed(3))).unwrap();
    model
}

fn numbers(n: usize, seed: u32) -> Vec<f32> {
    (0..n as u32).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0).collect()
}

/// One step on some of the samples.
fn step(model: &mut dyn Model, samples: std::ops::Range<usize>) -> Result {
    let (x, dy) = (numbers(BATCH * 64, 1), numbers(BATCH * 10, 2));
    model.forward(0, samples.len(), &[&x[samples.start * 64..samples.end * 64]], PASS).unwrap();
    let output = model.output(0, 0).to_vec();
    model.backward(0, &[&dy[samples.start * 10..samples.end * 10]], &mut |_, _| ()).unwrap();
    let mut gradients = Vec::new();
    model.update(&mut |_, _, gradient| gradients.push(gradient.to_vec()));
    let weights = model.weights();
    let running = weights.iter().filter(|(name, _)| name.contains("running"));
    Result { output, gradients, buffers: running.map(|(_, t)| t.to_f32().unwrap().to_vec()).collect() }
}

fn far(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let size = b.iter().fold(1e-3, |m: f32, v| m.max(v.abs()));
    a.iter().zip(b).fold(0.0, |m: f32, (a, b)| m.max((a - b).abs())) / size
}

#[test]
fn a_batch_cut_over_replicas_is_normalised_as_one() {
    // Dropout draws by position in the batch, which differs; in evaluation there would be no statistics.
    let whole = |model: &mut dyn Model| step(model, 0..BATCH);
    let mut alone = no_dropout();
    let expected = whole(alone.as_mut());
    let cuts = [0..5, 5..6, 6..BATCH];
    let sums = Sums::new(cuts.len());
    let results: Vec<Result> = std::thread::scope(|scope| {
        let threads: Vec<_> = (cuts.iter().cloned().enumerate())
            .map(|(rank, samples)| {
                let sums = Arc::clone(&sums);
                scope.spawn(move || {
                    let mut model = no_dropout();
                    let sum = move |values: &mut [f64]| {
                        sums.sum(rank, values);
                        Ok(())
                    };
                    model.share_statistics(Some(Box::new(sum)));
                    step(model.as_mut(), samples)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let output: Vec<f32> = results.iter().flat_map(|result| result.output.iter().copied()).collect();
    assert!(far(&output, &expected.output) < 1e-5);
    for (i, wanted) in expected.gradients.iter().enumerate() {
        let mut sum = vec![0.0; wanted.len()];
        for result in &results {
            sum.iter_mut().zip(&result.gradients[i]).for_each(|(s, g)| *s += g);
        }
        assert!(far(&sum, wanted) < 1e-4, "gradient {i}: {}", far(&sum, wanted));
    }
    for result in &results {
        for (got, wanted) in result.buffers.iter().zip(&expected.buffers) {
            assert!(far(got, wanted) < 1e-5);
        }
    }
}

/// The model with every dropout left out.
fn no_dropout() -> Box<dyn Model> {
    let mut graph = zoo::build("digits-cnn", &ZooOptions::default()).unwrap();
    for node in &mut graph.nodes {
        if let phalanx_graph::Op::Dropout { ratio } = &mut node.op {
            *ratio = 0.0;
        }
    }
    let mut model = CpuEngine::new(1).compile(&graph, &CompileOptions::default()).unwrap();
    model.load(&graph.initialise(Seed(3))).unwrap();
    model
}

#[test]
fn who_cannot_reach_the_others_says_so_and_can_go_on_alone() {
    let mut model = model();
    model.share_statistics(Some(Box::new(|_| Err("rank 1 is gone".to_owned()))));
    let x = numbers(BATCH * 64, 1);
    let error = model.forward(0, BATCH, &[&x], PASS).unwrap_err();
    assert!(matches!(&error, RunError::Together { reason, .. } if reason == "rank 1 is gone"), "{error}");
    model.share_statistics(None);
    model.forward(0, BATCH, &[&x], PASS).unwrap();
}
