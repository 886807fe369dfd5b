//! Models that answer requests: few rows are computed another way than in training.

use super::zoo::noise;
use phalanx_engine::{CompileOptions, CpuEngine, Engine, Model, Pass};
use phalanx_graph::{Builder, Graph, Init};
use phalanx_types::Seed;

const INPUT: usize = 300;
const EVALUATION: Pass = Pass { training: false, seed: 0 };

/// Weights `[out, in]` of a linear layer, then weights `[in, out]` of a product, as exporters write either.
fn dense() -> Graph {
    let mut b = Builder::new("dense");
    let x = b.input("x", &[INPUT]);
    let x = b.linear("fc1", x, 130);
    let x = b.relu(x);
    let w = b.parameter("w", &[130, 70], Init::Uniform(0.1));
    let x = b.matmul(x, w);
    b.output(x);
    b.finish().unwrap()
}

fn compiled(graph: &Graph, threads: usize, few_rows: bool) -> Box<dyn Model> {
    let options = CompileOptions { forward_only: true, few_rows, ..CompileOptions::default() };
    let mut model = CpuEngine::new(threads).compile(graph, &options).unwrap();
    model.load(&graph.initialise(Seed(5))).unwrap();
    model
}

fn outputs(model: &mut dyn Model, x: &[f32]) -> Vec<f32> {
    model.forward(0, x.len() / INPUT, &[x], EVALUATION).unwrap();
    model.output(0, 0).to_vec()
}

#[test]
fn a_sample_has_the_same_bits_in_any_batch_and_on_any_number_of_threads() {
    let graph = dense();
    let x = noise(1, 64 * INPUT);
    let all = outputs(&mut *compiled(&graph, 1, true), &x);
    for threads in [1, 2] {
        let mut model = compiled(&graph, threads, true);
        for batch in [1, 2, 3, 5, 16, 31, 64] {
            let some = outputs(&mut *model, &x[..batch * INPUT]);
            assert_eq!(super::bits(&some), super::bits(&all[..some.len()]), "{batch} samples");
        }
    }
}

#[test]
fn results_are_close_to_those_of_a_model_that_trains() {
    let graph = dense();
    for batch in [1, 7, 64, 65] {
        let x = noise(3, batch * INPUT);
        let [training, inference] =
            [false, true].map(|few_rows| outputs(&mut *compiled(&graph, 2, few_rows), &x));
        let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
        assert!(training.iter().zip(&inference).all(close), "{batch} samples");
    }
}
