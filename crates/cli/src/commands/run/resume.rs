//! `phalanx run resume`.

use super::run_path;
use crate::commands::inputs;
use crate::commands::train::{Who, start, train_failure};
use crate::failure::Failure;
use crate::output::Output;
use anyhow::anyhow;
use clap::Args;
use phalanx_records::run_dir::{RUN_FILE, RunDir};
use phalanx_train::config::{Override, RunFile};
use phalanx_train::{Compute, Task};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx run resume runs/2026-11-16-141502-3fa9
  phalanx run resume first --epochs 200
  phalanx run resume first --local 2")]
pub(crate) struct ResumeArgs {
    /// The run: its directory, or its name in runs/.
    run: PathBuf,
    /// Go on to this many passes over the data.
    #[arg(long, conflicts_with = "steps", allow_negative_numbers = true)]
    epochs: Option<i64>,
    /// Go on to this many steps.
    #[arg(long, allow_negative_numbers = true)]
    steps: Option<i64>,
    /// Compute threads; as the run was told when not given. Results do not depend on it.
    #[arg(long, allow_negative_numbers = true)]
    threads: Option<i64>,
    /// Go on also if files of the model or the data are not those that the run began with.
    #[arg(long)]
    changed_inputs: bool,
    #[command(flatten)]
    who: Who,
}

pub(crate) async fn run(args: ResumeArgs, output: Output) -> Result<(), Failure> {
    let dir = RunDir::open(run_path(&args.run)).map_err(train_failure)?;
    let numbers = [
        ("--epochs", "train.epochs", args.epochs),
        ("--steps", "train.steps", args.steps),
        ("--threads", "train.threads", args.threads),
    ];
    let mut said: Vec<Override> =
        numbers.into_iter().filter_map(|(flag, key, n)| Some(Override::flag(flag, key, n?))).collect();
    said.extend(args.who.overrides());
    let file = RunFile::load(&dir.file(RUN_FILE), &said).map_err(train_failure)?;
    if args.changed_inputs {
        inputs::record_anew(dir.path(), &file.config)?;
    } else {
        inputs::check(dir.path(), |_| true)?;
    }
    let compute = Compute::cpu(file.config.threads());
    let task = Task::new(file.config.clone(), &compute.threads).map_err(train_failure)?;
    if args.epochs.is_some() || args.steps.is_some() {
        let done = dir.steps();
        if let Some(asked) = task.total_steps().filter(|asked| *asked < done) {
            let path = dir.path().display();
            let error = anyhow!("the run in {path} is at step {done} already, {asked} steps were asked for");
            return Err(Failure::usage(error).hint("ask for more, or start a new run with `phalanx train`"));
        }
        // What it is told now holds for the next time, too.
        let text = file.resolved.to_toml();
        dir.write(RUN_FILE, text.as_bytes()).map_err(train_failure)?;
    }
    start(task, compute, dir, &file.resolved, &args.who, output).await
}
