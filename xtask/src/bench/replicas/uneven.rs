//! Four replicas with parts of cores, one with a quarter of what the others have, against the sum of what each could
//! do alone.

use super::nodes::{Allowed, Nodes};
use super::{Bench, cifar, middle, samples_per_s};
use crate::bench::say;
use anyhow::Context;

/// Hundredths of a core.
const FAST: u32 = 40;
const SLOW: u32 = 10;

pub(super) fn run(bench: &Bench, rounds: u32) -> anyhow::Result<()> {
    let file = cifar(&bench.work)?;
    let file = file.to_str().context("a path that is no text")?;
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let fast = throughput(bench, file, &[FAST], 160, 12)?;
        let slow = throughput(bench, file, &[SLOW], 40, 12)?;
        let together = throughput(bench, file, &[FAST, FAST, FAST, SLOW], 520, 40)?;
        let sum = 3.0 * fast + slow;
        say(&format!(
            "round {round}: alone {fast:.1} and {slow:.1}, so {sum:.1}; together {together:.1} samples/s, {:.3}",
            together / sum
        ));
        ratios.push(together / sum);
    }
    say(&format!("uneven: {:.3} of the sum of what each could do alone (bar: 0.85)", middle(ratios)));
    Ok(())
}

/// Samples per second of the second half of a run: shares have settled by then.
fn throughput(bench: &Bench, file: &str, percents: &[u32], batch: u32, steps: u32) -> anyhow::Result<f64> {
    let domain = format!("bench-{}", std::process::id());
    let allowed: Vec<Allowed> = percents.iter().map(|percent| Allowed::Percent(*percent)).collect();
    let _nodes = Nodes::start(bench, &domain, &allowed)?;
    let dir = bench.fresh("uneven")?;
    let (path, replicas) = (dir.to_string_lossy(), percents.len().to_string());
    let (batch, steps) = (batch.to_string(), steps.to_string());
    let args = [file, "--replicas", &replicas, "--domain", &domain, "--batch", &batch, "--steps", &steps];
    bench.train(&[&args[..], &["--run-dir", &path]].concat())?;
    let text = std::fs::read_to_string(dir.join("metrics.jsonl"))?;
    let lines: Vec<serde_json::Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let half = lines.get(lines.len() / 2..).unwrap_or_default();
    let seconds: Vec<f64> =
        half.iter().map(|line| Ok(1.0 / samples_per_s(line)?)).collect::<anyhow::Result<_>>()?;
    Ok(seconds.len() as f64 / seconds.iter().sum::<f64>())
}
