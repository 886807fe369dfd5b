//! How long a model takes for one sample.

use phalanx_engine::Pass;
use phalanx_train::{Compute, LoadOptions, TrainError, TrainedModel, TrainedModelError, fixed_batch};
use std::path::Path;
use std::time::Instant;

const SLOT: usize = 0;
/// Runs that are not counted: memory is touched for the first time.
const WARM_UP: u32 = 2;

/// The median of several runs, in milliseconds: of one sample, or of one batch of a model with a fixed batch.
pub(crate) fn median_ms(model: &TrainedModel, compute: &Compute, runs: u32) -> Result<f64, TrainError> {
    let rows = fixed_batch(&model.graph).unwrap_or(1);
    let of_input = |input: &phalanx_graph::ValueId| {
        vec![0.0f32; model.graph.shape(*input).at(rows).iter().product::<usize>()]
    };
    let inputs: Vec<Vec<f32>> = model.graph.inputs.iter().map(of_input).collect();
    let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
    let mut compiled = model.compile_for_requests(compute)?;
    let mut times = Vec::new();
    for run in 0..WARM_UP + runs {
        let began = Instant::now();
        compiled.forward(SLOT, rows, &inputs, Pass { training: false, seed: 0 })?;
        if run >= WARM_UP {
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(median(&mut times))
}

/// The same of the model as it is exported to ONNX and read again.
pub(crate) fn onnx_median_ms(
    model: &TrainedModel,
    dir: &Path,
    compute: &Compute,
    runs: u32,
) -> Result<f64, TrainedModelError> {
    let path = dir.join("model.onnx");
    if !path.is_file() {
        model.save_onnx(&path)?;
    }
    let read = TrainedModel::load(&path, LoadOptions::default())?;
    Ok(median_ms(&read, compute, runs)?)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    match (times.get(middle.wrapping_sub(1)), times.get(middle)) {
        (Some(below), Some(above)) if times.len().is_multiple_of(2) => (below + above) / 2.0,
        (_, Some(middle)) => *middle,
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&mut [7.0]), 7.0);
        assert!(median(&mut []).is_nan());
    }
}
