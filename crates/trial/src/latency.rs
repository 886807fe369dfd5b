//! How long a model takes for one sample.

use phalanx_engine::Pass;
use phalanx_train::{Compute, LoadOptions, TrainError, TrainedModel, TrainedModelError, fixed_batch};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const SCRIPT: &str = include_str!("time_onnx.py");
/// The file of a run directory with what was measured of its model's speed.
pub const LATENCY: &str = "latency.json";
const SLOT: usize = 0;
/// Runs that are not counted: memory is touched for the first time.
const WARM_UP: u32 = 2;
/// No further run is begun after this long.
const LONGEST: Duration = Duration::from_secs(5);

/// The median of several runs, in milliseconds: of one sample, or of one batch of a model with a fixed batch. Of a slow
/// model fewer runs are measured.
///
/// # Errors
/// The model cannot be computed.
pub fn median_ms(model: &TrainedModel, compute: &Compute, runs: u32) -> Result<f64, TrainError> {
    let rows = fixed_batch(&model.graph).unwrap_or(1);
    let of_input = |input: &phalanx_graph::ValueId| {
        vec![0.0f32; model.graph.shape(*input).at(rows).iter().product::<usize>()]
    };
    let inputs: Vec<Vec<f32>> = model.graph.inputs.iter().map(of_input).collect();
    let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
    let mut compiled = model.compile_for_requests(compute)?;
    let mut times = Vec::new();
    let first = Instant::now();
    for run in 0..WARM_UP + runs.max(1) {
        if !times.is_empty() && first.elapsed() >= LONGEST {
            break;
        }
        let began = Instant::now();
        compiled.forward(SLOT, rows, &inputs, Pass { training: false, seed: 0 })?;
        if run >= WARM_UP {
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(median(&mut times))
}

/// The latency of an exported model, and what ran it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OnnxLatency {
    /// For one sample.
    pub milliseconds: f64,
    /// `onnxruntime 1.23.0` or `phalanx`.
    pub run_by: String,
}

/// What is in [`LATENCY`], in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latencies {
    pub latency: Option<f64>,
    pub onnx_latency: Option<OnnxLatency>,
}

/// What was measured of the speed of a run's model, if anything was.
pub fn measured_latencies(run: &Path) -> Option<Latencies> {
    serde_json::from_slice(&std::fs::read(run.join(LATENCY)).ok()?).ok()
}

/// The same of the model as it is exported to ONNX: run by onnxruntime where that is installed, in the Python of
/// `PHALANX_PYTHON` or in `python3`, else by this project's own engine after reading the file again.
///
/// # Errors
/// The model cannot be exported, or not be computed.
pub fn onnx_median(
    model: &TrainedModel,
    compute: &Compute,
    cores: u32,
    runs: u32,
) -> Result<OnnxLatency, OnnxLatencyError> {
    let dir = tempfile::tempdir().map_err(OnnxLatencyError::Directory)?;
    let path = dir.path().join("model.onnx");
    model.save_onnx(&path)?;
    if let Some(python) = python_with_onnxruntime() {
        let batch = fixed_batch(&model.graph).unwrap_or(1);
        match run_onnxruntime(python, &path, [batch as u64, u64::from(runs.max(1)), u64::from(cores)]) {
            Some(latency) => return Ok(latency),
            None => tracing::warn!("onnxruntime could not run an exported model, so it is timed by phalanx"),
        }
    }
    let read = TrainedModel::load(&path, LoadOptions::default())?;
    let milliseconds = median_ms(&read, compute, runs)?;
    Ok(OnnxLatency { milliseconds, run_by: "phalanx".to_owned() })
}

/// Why an exported model could not be timed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxLatencyError {
    #[error("could not make a directory for the exported model")]
    Directory(#[source] std::io::Error),
    #[error(transparent)]
    Model(#[from] TrainedModelError),
    #[error(transparent)]
    Run(#[from] TrainError),
}

/// Looked for once in a process.
fn python_with_onnxruntime() -> Option<&'static str> {
    static PYTHON: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let python = std::env::var("PHALANX_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let asked = Command::new(&python).args(["-c", "import numpy, onnxruntime"]).output();
        asked.is_ok_and(|asked| asked.status.success()).then_some(python)
    };
    PYTHON.get_or_init(find).as_deref()
}

fn run_onnxruntime(python: &str, model: &Path, numbers: [u64; 3]) -> Option<OnnxLatency> {
    let numbers = numbers.map(|number| number.to_string());
    let ran = Command::new(python).args(["-c", SCRIPT]).arg(model).args(numbers).output().ok()?;
    if !ran.status.success() {
        tracing::debug!(said = %String::from_utf8_lossy(&ran.stderr), "onnxruntime failed");
        return None;
    }
    latency_of(&String::from_utf8_lossy(&ran.stdout))
}

/// The version and the times, as the script prints them.
fn latency_of(printed: &str) -> Option<OnnxLatency> {
    let mut words = printed.split_whitespace();
    let run_by = format!("onnxruntime {}", words.next()?);
    let mut times = words.map(str::parse).collect::<Result<Vec<f64>, _>>().ok()?;
    let milliseconds = median(&mut times);
    milliseconds.is_finite().then_some(OnnxLatency { milliseconds, run_by })
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

    #[test]
    fn what_onnxruntime_prints_is_its_version_and_the_times() {
        let expected = OnnxLatency { milliseconds: 2.0, run_by: "onnxruntime 1.23.0".to_owned() };
        assert_eq!(latency_of("1.23.0 3.0 1.0 2.0\n"), Some(expected));
        for other in ["", "1.23.0", "1.23.0 fast", "1.23.0 nan"] {
            assert_eq!(latency_of(other), None, "{other:?}");
        }
    }
}
