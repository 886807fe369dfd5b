//! `phalanx run list`.

use crate::commands::train::RUNS;
use crate::failure::Failure;
use crate::output::{Output, Render, listing};
use anyhow::anyhow;
use clap::Args;
use phalanx_records::run_dir::{RunInfo, list_runs};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The width of the column that says how a run stands.
const STATE_CHARS: usize = 48;

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx run list --output json")]
pub(crate) struct ListArgs {
    /// The directory with the runs; runs/ when not given, which need not be there yet.
    #[arg(value_name = "DIR")]
    runs: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Runs(Vec<RunInfo>);

/// How a run stands, in words: `failed: the loss is NaN at step 7`.
pub(super) fn state_and_why(run: &RunInfo) -> String {
    match run.state.reason.as_ref().or(run.state.waiting.as_ref()) {
        Some(reason) => format!("{}: {reason}", run.state.state),
        None => run.state.state.to_string(),
    }
}

/// As much as a column has room for; `run show` says the rest.
fn shortened(text: String) -> String {
    if text.chars().count() <= STATE_CHARS {
        return text;
    }
    let kept: String = text.chars().take(STATE_CHARS - 1).collect();
    format!("{}…", kept.trim_end())
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
                shortened(state_and_why(run)),
                state.model.clone(),
                state.progress(),
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
    if let Some(missing) = args.runs.as_ref().filter(|runs| !runs.is_dir()) {
        return Err(Failure::usage(anyhow!("there is no directory {}", missing.display()))
            .hint("runs are in the directory in which `phalanx train` was started, in runs/"));
    }
    output.print(&Runs(list_runs(args.runs.as_deref().unwrap_or(Path::new(RUNS)))))
}
