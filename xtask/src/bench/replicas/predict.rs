//! What the simulator predicts for replicas of this machine, and what they then take.

use super::{Bench, cifar, middle};
use crate::bench::{json, number, say};
use crate::tool::tool;
use anyhow::Context;

const BATCH: &str = "128";

pub(super) fn run(bench: &Bench, rounds: u32) -> anyhow::Result<()> {
    let file = cifar(&bench.work)?;
    let file = file.to_str().context("a path that is no text")?;
    for replicas in ["2", "4"] {
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let args = ["simulate", "train", "--local", "--replicas", replicas, "--model", "cifar-cnn"];
            let args = [&args[..], &["--batch", BATCH, "--output", "json"]].concat();
            let predicted = number(&json(&tool(&bench.phalanx, &args).capture()?)?, "step_ms")?;
            let measured = measured(bench, file, replicas)?;
            say(&format!(
                "{replicas} replicas: predicted {predicted:.1} ms, measured {measured:.1} ms a step"
            ));
            ratios.push(predicted / measured);
        }
        say(&format!("{replicas} replicas: predicted / measured {:.2} (bar: 0.8 to 1.2)", middle(ratios)));
    }
    Ok(())
}

/// The median time of a step, in milliseconds.
fn measured(bench: &Bench, file: &str, replicas: &str) -> anyhow::Result<f64> {
    let dir = bench.fresh("predict")?;
    let path = dir.to_string_lossy();
    bench.train(&[file, "--local", replicas, "--batch", BATCH, "--steps", "40", "--run-dir", &path])?;
    let text = std::fs::read_to_string(dir.join("metrics.jsonl"))?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let samples: f64 = BATCH.parse()?;
    let times = lines.filter_map(|line| Some(1e3 * samples / line["samples_per_s"].as_f64()?));
    Ok(middle(times.skip(5).collect()))
}
