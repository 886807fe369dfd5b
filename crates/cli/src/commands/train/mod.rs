//! `phalanx train`: trains a model as a run file says.

mod go;
mod watch;

pub(crate) use go::{compute, go, train_failure};

use crate::failure::Failure;
use crate::output::Output;
use anyhow::anyhow;
use clap::Args;
use phalanx_train::Task;
use phalanx_train::config::{Override, RunConfig, RunFile};
use phalanx_train::run_dir::{RUN_FILE, RunDir, is_run, new_id};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where runs are kept, from where the user stands.
pub(crate) const RUNS: &str = "runs";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx train examples/digits/run.toml
  phalanx train run.toml --epochs 5 --set train.optimizer.lr=0.01
  phalanx train run.toml --run-dir runs/first --output json

Everything a run file may say can be said here with --set, and the keys of [train] in the environment:
PHALANX_TRAIN_EPOCHS=5. Flags go before the environment, and that before the file.")]
pub(crate) struct TrainArgs {
    /// The run file.
    #[arg(value_name = "RUN.toml")]
    file: PathBuf,
    #[command(flatten)]
    said: Said,
    /// The directory of the run; runs/ and its time when not given. A run that is there goes on.
    #[arg(long, short = 'o', value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Train on this many nodes of this machine.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    local: u32,
}

/// What flags say in the place of a run file.
#[derive(Debug, Args)]
pub(crate) struct Said {
    /// How many passes over the data.
    #[arg(long, conflicts_with = "steps", allow_negative_numbers = true)]
    epochs: Option<i64>,
    /// How many steps.
    #[arg(long, allow_negative_numbers = true)]
    steps: Option<i64>,
    /// Samples that are computed at once.
    #[arg(long, allow_negative_numbers = true)]
    batch: Option<i64>,
    /// The learning rate.
    #[arg(long, allow_negative_numbers = true)]
    lr: Option<f64>,
    /// Decides everything that is random.
    #[arg(long, allow_negative_numbers = true)]
    seed: Option<i64>,
    /// Compute threads; all cores when not given. Results do not depend on it.
    #[arg(long, allow_negative_numbers = true)]
    threads: Option<i64>,
    /// Set any key of the run file; may be given more than once.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Said {
    /// As overrides, the strongest last.
    pub(crate) fn overrides(&self) -> Result<Vec<Override>, Failure> {
        let vars = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let mut all = Override::from_env(vars);
        for text in &self.set {
            all.push(Override::set(text).map_err(|error| train_failure(error.into()))?);
        }
        let numbers = [
            ("--epochs", "train.epochs", self.epochs),
            ("--steps", "train.steps", self.steps),
            ("--batch", "train.batch", self.batch),
            ("--seed", "train.seed", self.seed),
            ("--threads", "train.threads", self.threads),
        ];
        all.extend(numbers.into_iter().filter_map(|(flag, key, n)| Some(Override::flag(flag, key, n?))));
        // With a point or an exponent, so that it is read as a number and not as a whole one.
        all.extend(self.lr.map(|lr| Override::flag("--lr", "train.lr", format!("{lr:?}"))));
        Ok(all)
    }
}

pub(crate) async fn run(args: TrainArgs, output: Output) -> Result<(), Failure> {
    if args.local != 1 {
        let error = anyhow!(
            "--local {} is not available yet: runs on more than one node are still to come",
            args.local
        );
        return Err(Failure::usage(error).hint("leave it out: one process uses all cores of this machine"));
    }
    let file =
        RunFile::load(&args.file, &args.said.overrides()?).map_err(|error| train_failure(error.into()))?;
    let compute = compute(file.config.train.threads);
    let task = Task::new(file.config.clone(), &compute.threads).map_err(train_failure)?;
    let path = args.run_dir.unwrap_or_else(|| {
        let name = file.config.name.clone();
        Path::new(RUNS).join(name.unwrap_or_else(|| new_id(SystemTime::now())))
    });
    let dir = if is_run(&path) { same_run(&path, &file.config)? } else { new_run(&path, &file)? };
    go(task, compute, dir, output).await
}

fn new_run(path: &Path, file: &RunFile) -> Result<RunDir, Failure> {
    let dir = RunDir::create(path).map_err(|error| train_failure(error.into()))?;
    dir.write(RUN_FILE, file.resolved.to_toml().as_bytes()).map_err(|error| train_failure(error.into()))?;
    Ok(dir)
}

/// The directory of a run that was told the same, to go on with it.
fn same_run(path: &Path, config: &RunConfig) -> Result<RunDir, Failure> {
    let there = RunFile::load(&path.join(RUN_FILE), &[]).map_err(|error| train_failure(error.into()))?;
    let told = |config: &RunConfig| {
        let mut config = config.clone();
        // Results do not depend on it.
        config.train.threads = None;
        config
    };
    if told(&there.config) != told(config) {
        let path = path.display();
        return Err(Failure::usage(anyhow!("there is another run in {path}, which was told something else"))
            .hint(format!(
                "give another --run-dir, or `phalanx run resume {path}` to go on with it as it was"
            )));
    }
    RunDir::open(path).map_err(|error| train_failure(error.into()))
}
