//! Two replicas on a core each, against two trainings on a core each at the same time.

use super::nodes::{Allowed, Nodes};
use super::{Bench, cifar, middle, samples_per_s};
use crate::bench::{json, say};
use crate::tool::tool;
use anyhow::Context;

/// Samples that one core computes at once.
const BATCH: u32 = 64;

pub(super) fn run(bench: &Bench, rounds: u32) -> anyhow::Result<()> {
    let file = cifar(&bench.work)?;
    let file = file.to_str().context("a path that is no text")?;
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let (alone, together) = (alone(bench, file)?, together(bench, file)?);
        let ratio = together / alone;
        say(&format!("round {round}: apart {alone:.0}, together {together:.0} samples/s, {ratio:.3}"));
        ratios.push(ratio);
    }
    say(&format!("scaling: {:.3} of two trainings at the same time (bar: 0.9)", middle(ratios)));
    Ok(())
}

/// What two trainings do that know nothing of each other.
fn alone(bench: &Bench, file: &str) -> anyhow::Result<f64> {
    let batch = BATCH.to_string();
    let start = |core: usize| -> anyhow::Result<_> {
        let dir = bench.fresh(&format!("alone-{core}"))?;
        let (core, dir) = (core.to_string(), dir.to_string_lossy().into_owned());
        let phalanx = bench.phalanx.to_string_lossy().into_owned();
        let args =
            ["-c", &core, &phalanx, "train", file, "--threads", "1", "--batch", &batch, "--run-dir", &dir];
        let args = [&args[..], &["--output", "json"]].concat();
        let args: Vec<String> = args.into_iter().map(ToOwned::to_owned).collect();
        Ok(std::thread::spawn(move || tool("taskset", &args).capture()))
    };
    let both = [start(0)?, start(1)?];
    let mut sum = 0.0;
    for thread in both {
        let output = thread.join().map_err(|_panic| anyhow::anyhow!("a thread panicked"))??;
        sum += samples_per_s(&json(&output)?)?;
    }
    Ok(sum)
}

fn together(bench: &Bench, file: &str) -> anyhow::Result<f64> {
    let domain = format!("bench-{}", std::process::id());
    let _nodes = Nodes::start(bench, &domain, &[Allowed::Core(0), Allowed::Core(1)])?;
    let dir = bench.fresh("together")?;
    let (dir, batch) = (dir.to_string_lossy(), (2 * BATCH).to_string());
    let args = [file, "--replicas", "2", "--domain", &domain, "--batch", &batch, "--run-dir", &dir];
    samples_per_s(&bench.train(&args)?)
}
