//! `cargo xtask bench ledger`: recording and searching runs, with MLflow's client and TensorBoard's writer in turn.
//!
//! ```text
//!   record      metric points per second, until they are in the ledger; peers until their call returns
//!   questions   commands of users in a directory with many runs, and a long curve
//!   training    the same training without any record, with files, with event files, with the ledger, with both
//!   viewers     a hundred viewers of a live run
//! ```
//! Points of a step come by one call on both sides; MLflow's largest batches stand beside bringing a whole run in.

use super::parts::PartsArgs;
use super::rows::{Bar, Row};
use super::{json, median, release};
use crate::python::Environment;
use crate::tool::{root, tool};
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct LedgerArgs {
    #[command(flatten)]
    parts: PartsArgs<Part>,
    /// Measure this program instead of the one that users have.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// How long each peer and each training is measured, in seconds.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Runs that are searched.
    #[arg(long, default_value_t = 10_000)]
    runs: u64,
    /// Steps that are recorded by us, and the points of the long curve in fours.
    #[arg(long, default_value_t = 250_000)]
    steps: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Record,
    Questions,
    Training,
    Viewers,
}

struct Bench<'a> {
    program: PathBuf,
    args: &'a LedgerArgs,
}

impl Bench<'_> {
    /// Our own benchmark; gives its numbers.
    fn own(&self, part: &str) -> anyhow::Result<Value> {
        let LedgerArgs { parts, seconds, runs, steps, .. } = self.args;
        let (steps, points) = (format!("--steps={steps}"), format!("--points={}", steps * 4));
        let (runs, rounds) = (format!("--runs={runs}"), format!("--rounds={}", parts.rounds));
        let (time, only) = (format!("--time={seconds}s"), format!("--only={part}"));
        let words = ["bench", "ledger", "--output", "json", &only, &steps, &points, &runs, &rounds, &time];
        json(&tool(&self.program, &words).capture()?)
    }
}

pub(super) fn run(args: &LedgerArgs) -> anyhow::Result<()> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None if args.parts.no_build => crate::tool::target().join("release/phalanx"),
        None => release()?,
    };
    let bench = Bench { program, args };
    args.parts.measure(|part| match part {
        Part::Record => record(&bench),
        Part::Questions => questions(&bench),
        Part::Training => training(&bench),
        Part::Viewers => viewers(&bench),
    })
}

fn record(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let python = Environment::ledger_bench()?.install()?;
    let script = root().join("xtask/bench/ledger_clients.py").to_string_lossy().into_owned();
    let seconds = bench.args.seconds.to_string();
    let mut peers = tool(python, &[script.as_str(), &seconds]).serve()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..bench.args.parts.rounds {
        ours.push(bench.own("record")?);
        theirs.push(json(&peers.ask("run")?)?);
    }
    let most = Some(20.0);
    let compared = [
        ("a step of 4 a call, in the ledger", "record", "MLflow file", "mlflow_file_step", most),
        ("a step of 4 a call, in the ledger", "record", "MLflow SQLite", "mlflow_sqlite_step", most),
        ("the same; MLflow 1 a call", "record", "MLflow file", "mlflow_file_call", most),
        ("the same; MLflow 1 a call", "record", "MLflow SQLite", "mlflow_sqlite_call", most),
        ("a run brought in; MLflow 1000 a call", "feed", "MLflow file", "mlflow_file_batch", most),
        ("a run brought in; MLflow 1000 a call", "feed", "MLflow SQLite", "mlflow_sqlite_batch", most),
        ("all files of the run, without the ledger", "record_files", "TensorBoard", "tensorboard", None),
        ("event file alone", "event_file", "TensorBoard", "tensorboard", None),
    ];
    let row = |(what, own, peer, key, least): (&str, &str, &'static str, &str, Option<f64>)| {
        let own = median(&ours, &format!("{own}_points_per_s"))?;
        let peer = Some((peer, median(&theirs, &format!("{key}_points_per_s"))?));
        let (part, unit, more_is_better, bar) = ("record", "points/s", true, Bar::TimesBetter(least));
        Ok(Row { part, what: what.to_owned(), unit, ours: own, peer, more_is_better, bar })
    };
    compared.into_iter().map(row).collect()
}

/// A number of ours that has a limit.
fn limit(part: &'static str, what: String, unit: &'static str, ours: f64, most: f64) -> Row {
    Row { part, what, unit, ours, peer: None, more_is_better: false, bar: Bar::AtMost(most) }
}

fn questions(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let runs = [bench.own("questions")?];
    let (count, points) = (bench.args.runs, bench.args.steps * 4);
    let (part, unit) = ("questions", "ms");
    Ok(vec![
        limit(part, format!("run list --where, {count} runs"), unit, median(&runs, "list_ms")?, 100.0),
        limit(part, "run show".to_owned(), unit, median(&runs, "show_ms")?, 100.0),
        limit(part, format!("curve of {points} in 600 buckets"), unit, median(&runs, "curve_ms")?, 1000.0),
        limit(part, "the first look at all runs".to_owned(), "s", median(&runs, "first_look_s")?, 60.0),
    ])
}

fn training(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let runs = [bench.own("training")?];
    let mut rows = Vec::new();
    for (key, model) in [("digits_cnn", "digits-cnn"), ("mlp", "mlp")] {
        let step = |recorded: &str| median(&runs, &format!("training_{key}_{recorded}_step_us"));
        let nothing = step("unrecorded")?;
        let ways =
            [("files", "files"), ("event_files", "event files"), ("ledger", "ledger"), ("both", "both")];
        for (key, shown) in ways {
            rows.push(Row {
                part: "training",
                what: format!("{model} step with {shown}"),
                unit: "µs",
                ours: step(key)?,
                peer: Some(("nothing", nothing)),
                more_is_better: false,
                bar: Bar::ShareOfTime(Some(1.01)),
            });
        }
    }
    Ok(rows)
}

fn viewers(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let runs = [bench.own("viewers")?];
    let what = "100 viewers of a live run".to_owned();
    Ok(vec![limit("viewers", what, "% of a core", median(&runs, "viewers_100_core_percent")?, 5.0)])
}
