//! `phalanx run list`.

use crate::commands::train::RUNS;
use crate::failure::Failure;
use crate::output::{Output, Render, listing};
use clap::Args;
use phalanx_train::run_dir::{RunInfo, list_runs};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx run list --output json")]
pub(crate) struct ListArgs {
    /// The directory with the runs.
    #[arg(default_value = RUNS, value_name = "DIR")]
    runs: PathBuf,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Runs(Vec<RunInfo>);

/// How a run stands, in words: `failed: the loss is NaN at step 7`.
pub(super) fn state_and_why(run: &RunInfo) -> String {
    match &run.state.reason {
        Some(reason) => format!("{}: {reason}", run.state.state),
        None => run.state.state.to_string(),
    }
}

impl Render for Runs {
    fn table(&self) -> String {
        if self.0.is_empty() {
            return "no runs".to_owned();
        }
        let rows = self.0.iter().map(|run| {
            let state = &run.state;
            [
                run.id.clone(),
                state_and_why(run),
                state.model.clone(),
                format!("{}/{}", state.steps, state.total_steps),
                state.loss.map_or("-".to_owned(), |x| format!("{x:.4}")),
                state.val_acc.map_or("-".to_owned(), |x| format!("{:.2} %", x * 100.0)),
                state.started.clone(),
            ]
        });
        listing(["run", "state", "model", "steps", "loss", "accuracy", "started"], rows)
    }

    fn quiet(&self) -> String {
        self.0.iter().map(|run| run.id.as_str()).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: ListArgs, output: Output) -> Result<(), Failure> {
    output.print(&Runs(list_runs(&args.runs)))
}
