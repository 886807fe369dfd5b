//! The workload that measures a node's speed.

use phalanx_engine::{CompileOptions, Model, Pass};
use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_train::Compute;
use phalanx_types::Seed;
use phalanx_wire::measure::Speed;
use std::time::{Duration, Instant};

/// Its time is dominated by convolutions and matrix products.
const MODEL: &str = "cifar-cnn";
const BATCH: usize = 16;
const SEED: Seed = Seed(42);
/// Longer than two periods of a CPU quota, so that a quota shows.
const LEAST: Duration = Duration::from_millis(250);
/// The limit for steps of unequal length: a quota applies in the middle, or another process computes.
const MOST: Duration = Duration::from_secs(1);
/// Steps count as equal if the slowest takes at most this many times the fastest.
const EQUAL: f64 = 1.5;
/// With fewer steps this cannot be decided.
const FEW: usize = 6;

/// Trains the model for a while.
pub fn measure(compute: &Compute) -> Result<Speed, String> {
    let said = |error: &dyn std::error::Error| format!("could not compute: {error}");
    let graph = zoo::build(MODEL, &ZooOptions::default()).map_err(|error| said(&error))?;
    let model = compute.engine.compile(&graph, &CompileOptions::default());
    let mut model = model.map_err(|error| said(&error))?;
    model.load(&graph.initialise(SEED)).map_err(|error| said(&error))?;
    let input: usize = graph.inputs.first().map_or(0, |v| graph.shape(*v).at(BATCH).iter().product());
    let x: Vec<f32> = (0..input).map(|i| (i % 13) as f32 / 6.0 - 1.0).collect();
    let mut step = || once(model.as_mut(), &x).map_err(|error| said(&error));
    // The first step allocates memory and wakes threads.
    step()?;
    let begun = Instant::now();
    let mut times = Vec::new();
    while !is_enough(&times) {
        let step_begun = Instant::now();
        step()?;
        times.push(step_begun.elapsed());
    }
    let took = begun.elapsed();
    // A backward pass costs about twice a forward pass.
    let flops = graph.cost().flops as f64 * 3.0 * (BATCH * times.len()) as f64;
    Ok(Speed {
        gflops: (flops / took.as_secs_f64() / 1e9) as f32,
        threads: u32::try_from(compute.threads.count()).unwrap_or(u32::MAX),
        millis: u32::try_from(took.as_millis()).unwrap_or(u32::MAX),
    })
}

/// Forward and backward, with an output gradient that does not depend on a loss.
fn once(model: &mut dyn Model, x: &[f32]) -> Result<(), phalanx_engine::RunError> {
    model.forward(0, BATCH, &[x], Pass { training: true, seed: SEED.0 })?;
    let gradient = vec![1.0 / BATCH as f32; model.output(0, 0).len()];
    model.backward(0, &[&gradient], &mut |_, _| ())
}

/// Whether steps of these lengths are sufficient.
fn is_enough(times: &[Duration]) -> bool {
    let took: Duration = times.iter().sum();
    let (Some(fastest), Some(slowest)) = (times.iter().min(), times.iter().max()) else { return false };
    let equal = times.len() >= FEW && slowest.as_secs_f64() <= fastest.as_secs_f64() * EQUAL;
    took >= if equal { LEAST } else { MOST }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_engine::CpuEngine;
    use std::sync::Arc;

    fn ms(times: &[u64]) -> Vec<Duration> {
        times.iter().map(|ms| Duration::from_millis(*ms)).collect()
    }

    #[test]
    fn equal_steps_are_enough_sooner_than_unequal_ones() {
        assert!(!is_enough(&[]));
        assert!(!is_enough(&ms(&[40; 6])));
        assert!(is_enough(&ms(&[40; 7])));
        assert!(!is_enough(&ms(&[100; 5])), "too few to see whether they are equal");
        assert!(is_enough(&ms(&[100; 6])));
        assert!(!is_enough(&ms(&[50, 150, 50, 150, 50, 150])));
        assert!(is_enough(&ms(&[50, 150, 50, 150, 50, 150, 50, 150, 50, 150])));
        // A node so slow that it does one step in that time.
        assert!(is_enough(&ms(&[3000])));
    }

    #[test]
    fn a_speed_is_measured_with_all_the_threads_for_long_enough() {
        let engine = CpuEngine::new(2);
        let threads = engine.threads().clone();
        let speed = measure(&Compute { engine: Arc::new(engine), threads }).unwrap();
        assert!(speed.gflops > 0.0 && speed.gflops.is_finite(), "{speed:?}");
        assert_eq!(speed.threads, 2);
        assert!(speed.millis >= 250, "{speed:?}");
    }
}
