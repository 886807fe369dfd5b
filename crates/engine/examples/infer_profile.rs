//! The time of a forward pass of dense layers by batch size, compiled for training and for inference:
//! `cargo run --release -p phalanx-engine --example inference -- 784 256 128 10`.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers of the engine")]

use phalanx_engine::{CompileOptions, CpuEngine, Engine, Model, Pass};
use phalanx_graph::Builder;
use phalanx_types::Seed;
use std::time::{Duration, Instant};

fn main() {
    let mut sizes: Vec<usize> = std::env::args().skip(1).map(|size| size.parse().unwrap()).collect();
    if sizes.is_empty() {
        sizes = vec![784, 256, 128, 10];
    }
    let mut builder = Builder::new("dense");
    let mut x = builder.input("x", &sizes[..1]);
    for (layer, size) in sizes.iter().enumerate().skip(1) {
        x = builder.linear(&format!("fc{layer}"), x, *size);
        x = builder.relu(x);
    }
    builder.output(x);
    let graph = builder.finish().unwrap();
    let engine = CpuEngine::new(1);
    let mut models = [false, true].map(|few_rows| {
        let options = CompileOptions { forward_only: true, few_rows, ..CompileOptions::default() };
        let mut model = engine.compile(&graph, &options).unwrap();
        model.load(&graph.initialise(Seed(1))).unwrap();
        model
    });
    println!("{:>5} {:>18} {:>18}", "batch", "training, µs", "inference, µs");
    for batch in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64] {
        let x: Vec<f32> = (0..batch * sizes[0]).map(|i| (i as f32 * 0.37).sin()).collect();
        let [training, inference] =
            models.each_mut().map(|model| fastest(model.as_mut(), batch, &x).as_secs_f64() * 1e6);
        println!("{batch:>5} {training:>18.1} {inference:>18.1}");
    }
}

/// The shortest of many passes: what the machine does beside it must not count.
fn fastest(model: &mut dyn Model, batch: usize, x: &[f32]) -> Duration {
    let begun = Instant::now();
    let mut fastest = Duration::MAX;
    while begun.elapsed() < Duration::from_millis(300) {
        let once = Instant::now();
        model.forward(0, batch, &[x], Pass { training: false, seed: 0 }).unwrap();
        fastest = fastest.min(once.elapsed());
    }
    fastest
}
