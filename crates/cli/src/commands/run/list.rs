//! `phalanx run list`.

use super::columns::{Chosen, parse_columns};
use crate::commands::ledger::{ledger_failure, ledger_of, temporary_ledger};
use crate::commands::train::RUNS;
use crate::failure::Failure;
use crate::output::{Output, Render, listing};
use crate::times::rfc3339;
use anyhow::anyhow;
use clap::Args;
use phalanx_ledger::{Column, Ledger, RunQuery, RunRow};
use phalanx_records::run_dir::{RunInfo, RunState, Status, list_runs};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The width of the column that says how a run stands.
const STATE_CHARS: usize = 48;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx run list --output json
  phalanx run list --where 'val_acc > 0.97 and model = \"digits-cnn\"' --sort -val_acc --limit 10
  phalanx run list --where 'train.batch = 64 and not state = failed' --columns run,best.val_acc,train.optimizer.lr
  phalanx run list --where 'tag.owner ~ ada and started > 2026-11-01'

Names: metrics (val_acc: the last value; min.loss, max.val_acc, best.val_acc), keys of the run file (train.batch),
tags (tag.owner), and name, state, reason, model, kind, experiment, seed, steps, total_steps, started, ended, wall_s,
host, uid. Names with other characters stand in quotes. ~ finds text in text.")]
pub(crate) struct ListArgs {
    /// The directory with the runs; runs/ when not given, which need not be there yet.
    #[arg(value_name = "DIR")]
    runs: Option<PathBuf>,
    /// Only runs for which this holds: comparisons with = != < <= > >= ~ !~, and, or, not and parentheses.
    #[arg(long = "where", value_name = "FILTER")]
    filter: Option<String>,
    /// The order: names with commas between, a minus before those with the largest first.
    #[arg(long, value_name = "NAMES", allow_hyphen_values = true)]
    sort: Option<String>,
    /// What to show of each run: names with commas between.
    #[arg(long, value_name = "NAMES")]
    columns: Option<String>,
    /// At most this many runs.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl ListArgs {
    /// Whether the files alone answer it.
    fn is_plain(&self) -> bool {
        self.filter.is_none() && self.sort.is_none() && self.columns.is_none()
    }
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

/// A run of the ledger as its state file would say it.
fn info_of(row: RunRow) -> RunInfo {
    let status = match row.state.as_str() {
        "running" => Status::Running,
        "finished" => Status::Finished,
        "failed" => Status::Failed,
        _ => Status::Interrupted,
    };
    let state = RunState {
        state: status,
        reason: row.reason,
        waiting: row.waiting,
        started: row.started_ms.map(rfc3339).unwrap_or_default(),
        ended: row.ended_ms.map(rfc3339),
        model: row.model,
        total_steps: row.total_steps,
        steps: row.steps,
        // Recorded with this precision.
        loss: row.loss.map(|loss| loss as f32),
        val_loss: row.val_loss,
        val_acc: row.val_acc,
        samples_per_s: row.samples_per_s,
        wall_s: row.wall_s,
        params_hash: row.params_hash,
    };
    RunInfo { id: row.name, path: row.dir, state }
}

pub(crate) fn run(args: &ListArgs, output: Output) -> Result<(), Failure> {
    if let Some(missing) = args.runs.as_ref().filter(|runs| !runs.is_dir()) {
        return Err(Failure::usage(anyhow!("there is no directory {}", missing.display()))
            .hint("runs are in the directory in which `phalanx train` was started, in runs/"));
    }
    let runs = args.runs.as_deref().unwrap_or(Path::new(RUNS));
    // A filter that cannot be understood is refused before anything is opened.
    let mut query = query(args).map_err(ledger_failure)?;
    let ledger = ledger_of(runs)?;
    let (ledger, _kept) = match ledger {
        Some(ledger) => (ledger, None),
        None if args.is_plain() => {
            let mut all = list_runs(runs);
            all.truncate(args.limit.unwrap_or(usize::MAX));
            return output.print(&Runs(all));
        }
        None => {
            query.runs = None;
            let (ledger, kept) = temporary_ledger(runs)?;
            (ledger, Some(kept))
        }
    };
    show(&ledger, args, query, output)
}

fn query(args: &ListArgs) -> Result<RunQuery, phalanx_ledger::LedgerError> {
    let mut query = RunQuery::parse(args.filter.as_deref(), args.sort.as_deref())?;
    query.limit = args.limit;
    query.runs = args.runs.clone();
    Ok(query)
}

fn show(ledger: &Ledger, args: &ListArgs, mut query: RunQuery, output: Output) -> Result<(), Failure> {
    let Some(columns) = &args.columns else {
        let rows = ledger.runs(&query).map_err(ledger_failure)?;
        return output.print(&Runs(rows.into_iter().map(info_of).collect()));
    };
    let columns = parse_columns(columns)?;
    for (_, column) in &columns {
        match column {
            Column::Field(_) => {}
            Column::Metric { .. } => query.with.metrics = true,
            Column::Param(_) => query.with.params = true,
            Column::Tag(_) => query.with.tags = true,
        }
    }
    let rows = ledger.runs(&query).map_err(ledger_failure)?;
    output.print(&Chosen { columns, rows })
}
