//! `cargo xtask bench replicas`: replicas against as many trainings that know nothing of each other.
//!
//! ```text
//!   scaling   two replicas on a core each        against two trainings on a core each, at the same time
//!   uneven    four replicas, one slowed to 1/4   against the sum of what each could do alone
//!   predict   what `simulate train --local` says   against what `train --local` then does
//!   exchange  compressed and rare exchange       against gradients every step: accuracy and bytes
//! ```

mod exchange;
pub(super) mod nodes;
mod predict;
mod scaling;
mod uneven;

use super::{json, release};
use crate::tool::{root, tool};
use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct ReplicasArgs {
    /// What to measure; all when not given.
    what: Option<Which>,
    /// How many times each side is measured, in turn; medians are compared.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Scaling,
    Uneven,
    Predict,
    Exchange,
}

pub(super) fn run(args: &ReplicasArgs) -> anyhow::Result<()> {
    let bench = Bench { phalanx: release()?, work: root().join("target/bench-replicas") };
    let wanted = |which| args.what.is_none_or(|what| what == which);
    if wanted(Which::Scaling) {
        scaling::run(&bench, args.rounds)?;
    }
    if wanted(Which::Uneven) {
        uneven::run(&bench, args.rounds)?;
    }
    if wanted(Which::Predict) {
        predict::run(&bench, args.rounds)?;
    }
    if wanted(Which::Exchange) {
        exchange::run(&bench)?;
    }
    Ok(())
}

/// The program that is measured, and a place for what it writes.
pub(super) struct Bench {
    pub(super) phalanx: PathBuf,
    pub(super) work: PathBuf,
}

impl Bench {
    /// An empty directory.
    pub(super) fn fresh(&self, name: &str) -> anyhow::Result<PathBuf> {
        let dir = self.work.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| format!("could not empty {}", dir.display()))?;
        }
        std::fs::create_dir_all(self.work.join("domains"))?;
        Ok(dir)
    }

    /// Trains, and gives the summary.
    pub(super) fn train(&self, args: &[&str]) -> anyhow::Result<Value> {
        let args = [&["train"], args, &["--output", "json"]].concat();
        let output = tool(&self.phalanx, &args).env("PHALANX_RUNTIME_DIR", self.work.join("domains"));
        json(&output.capture()?)
    }
}

/// A run file of the CIFAR network on real images.
pub(super) fn cifar(dir: &Path) -> anyhow::Result<PathBuf> {
    let data = crate::data::cifar_10()?.join("cifar-10.safetensors");
    let text = format!(
        "[model]\nzoo = \"cifar-cnn\"\ndropout = 0.0\n[data]\ntrain = {{ file = {data:?}, x = \"x_train\", \
         y = \"y_train\" }}\nscale = 0.00392\nshuffle = true\n[train]\nloss = \"cross_entropy\"\n\
         optimizer = \"adam\"\nsteps = 60\nbatch = 64\nvalidate_every = \"never\"\n"
    );
    let file = dir.join("cifar.toml");
    std::fs::create_dir_all(dir)?;
    std::fs::write(&file, text)?;
    Ok(file)
}

fn samples_per_s(summary: &Value) -> anyhow::Result<f64> {
    super::number(summary, "samples_per_s")
}

pub(super) fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
