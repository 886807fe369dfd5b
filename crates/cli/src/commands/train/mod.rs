//! `phalanx train`: trains a model as a run file says.

mod drive;
mod go;
mod watch;

pub(crate) use go::train_failure;

use crate::args::DomainArgs;
use crate::commands::artifacts::place_of_finished;
use crate::commands::inputs;
use crate::commands::metrics::{MetricsArgs, RunSource};
use crate::failure::Failure;
use crate::output::Output;
use anyhow::anyhow;
use clap::Args;
use drive::drive;
use go::{go, nothing_left};
use phalanx_records::Summary;
use phalanx_records::run_dir::{RUN_FILE, RunDir, is_run, new_id};
use phalanx_train::config::{Override, Resolved, RunConfig, RunFile};
use phalanx_train::{Compute, Task};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use watch::Watch;

/// Where runs are kept, from where the user stands.
pub(crate) const RUNS: &str = "runs";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx train examples/digits/run.toml
  phalanx train run.toml --epochs 5 --set train.optimizer.lr=0.01
  phalanx train run.toml --run-dir runs/first --output json
  phalanx train run.toml --local 4               four replicas on this machine
  phalanx train run.toml --replicas 4            on nodes of this user, each started by `phalanx node`

Everything a run file may say can be said here with --set, and the keys of [train] in the environment:
PHALANX_TRAIN_EPOCHS=5. Flags go before the environment, and that before the file.
PHALANX_ARTIFACTS=s3://BUCKET/PREFIX sends the finished run there, as `phalanx run push` does.")]
pub(crate) struct TrainArgs {
    /// The run file.
    #[arg(value_name = "RUN.toml")]
    file: PathBuf,
    #[command(flatten)]
    said: Said,
    /// The directory of the run; runs/ and its time when not given. A run that is there goes on.
    #[arg(long, short = 'o', value_name = "DIR")]
    run_dir: Option<PathBuf>,
    #[command(flatten)]
    who: Who,
}

/// What flags say of who trains.
#[derive(Debug, Args)]
pub(crate) struct Who {
    /// Start this many nodes on this machine and train on them: one replica on each, or a stage of one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    local: Option<u32>,
    /// Train this many replicas on nodes of the domain, one on each, or cut into stages over several.
    #[arg(long, value_name = "N", conflicts_with = "local", value_parser = clap::value_parser!(u32).range(1..))]
    replicas: Option<u32>,
    /// Write a timeline of all replicas to trace.json in the run directory.
    #[arg(long)]
    trace: bool,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    domain: DomainArgs,
}

impl Who {
    /// As overrides.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        match (self.local, self.replicas) {
            // One node is this process itself.
            (Some(1), _) => vec![
                Override::flag("--local", "formation.local", 0),
                Override::flag("--local", "formation.replicas", 1),
                Override::flag("--local", "formation.stages", 1),
            ],
            (Some(local), _) => vec![Override::flag("--local", "formation.local", local)],
            (None, Some(replicas)) => vec![
                Override::flag("--replicas", "formation.local", 0),
                Override::flag("--replicas", "formation.replicas", replicas),
            ],
            (None, None) => Vec::new(),
        }
    }
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
            all.push(Override::set(text).map_err(train_failure)?);
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
    // A wrong place is known before anything is trained.
    place_of_finished()?;
    let mut said = args.said.overrides()?;
    said.extend(args.who.overrides());
    let file = RunFile::load(&args.file, &said).map_err(train_failure)?;
    let compute = Compute::cpu(file.config.threads());
    let task = Task::new(file.config.clone(), &compute.threads).map_err(train_failure)?;
    let path = args.run_dir.unwrap_or_else(|| {
        let name = file.config.name.clone();
        Path::new(RUNS).join(name.unwrap_or_else(|| new_id(SystemTime::now())))
    });
    let dir = if is_run(&path) { same_run(&path, &file.config)? } else { new_run(&path, &file)? };
    start(task, compute, dir, &file.resolved, &args.who, output).await
}

/// Trains in this process, or on nodes, as the run and the flags say; a run that is finished stays as it is.
pub(crate) async fn start(
    task: Task,
    compute: Compute,
    dir: RunDir,
    resolved: &Resolved,
    who: &Who,
    output: Output,
) -> Result<(), Failure> {
    if let Some(summary) = Summary::of_finished(&dir, task.plan(), task.validates()) {
        return nothing_left(summary, output);
    }
    inputs::record(dir.path(), task.config())?;
    let numbers = who.metrics.is_wanted().then(RunSource::default);
    let server = who.metrics.serve(numbers.clone().unwrap_or_default()).await?;
    let watch = Watch::new(output, numbers);
    if let Some(server) = &server {
        watch.say(&format!("metrics at {}", server.url()));
    }
    if task.config().formation.is_distributed() || who.trace || who.replicas.is_some() {
        // Replicas compute, not their driver.
        drop(compute);
        drive(task, dir, resolved, who, watch, output).await
    } else {
        go(task, compute, dir, watch, output).await
    }
}

fn new_run(path: &Path, file: &RunFile) -> Result<RunDir, Failure> {
    let dir = RunDir::create(path).map_err(train_failure)?;
    dir.write(RUN_FILE, file.resolved.to_toml().as_bytes()).map_err(train_failure)?;
    Ok(dir)
}

/// The directory of a run that was told the same, to go on with it.
fn same_run(path: &Path, config: &RunConfig) -> Result<RunDir, Failure> {
    let there = RunFile::load(&path.join(RUN_FILE), &[]).map_err(train_failure)?;
    if there.config.told() != config.told() {
        let path = path.display();
        return Err(Failure::usage(anyhow!("there is another run in {path}, which was told something else"))
            .hint(format!(
                "give another --run-dir, or `phalanx run resume {path}` to go on with it as it was"
            )));
    }
    let dir = RunDir::open(path).map_err(train_failure)?;
    inputs::check(path, |_| true).map_err(|failure| {
        let place = path.display();
        failure.hint(format!(
            "put the file back, or `phalanx run resume {place} --changed-inputs` to use it as it is"
        ))
    })?;
    Ok(dir)
}
