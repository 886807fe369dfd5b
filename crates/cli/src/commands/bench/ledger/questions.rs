//! Questions to a ledger with many runs, as users ask them: by a command each.

use super::runs::{write_long, write_short};
use crate::commands::bench::numbers::Numbers;
use crate::commands::bench::stats::median;
use crate::own_program::own_program;
use anyhow::{Context, ensure};
use phalanx_ledger::{LEDGER_FILE, LEDGER_VARIABLE, Ledger, LedgerUrl, Window};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

const FILTER: &str = "val_acc > 0.97 and model = \"digits-cnn\"";
/// A picture of a curve has about as many points.
const BUCKETS: usize = 600;
/// Commands are so short that each round runs several.
const COMMANDS: u32 = 5;

pub(super) fn measure(runs: u64, points: u64, rounds: u32) -> anyhow::Result<Numbers> {
    let scratch = tempfile::tempdir()?;
    let place = scratch.path().join("runs");
    write_short(&place, runs)?;
    write_long(&place.join("long"), points)?;
    let list = ["run", "list", "--where", FILTER, "--sort", "-val_acc", "--limit", "20"];
    // The first look brings everything into the ledger.
    let first = command(&place, &list)?.0;
    let ledger = Ledger::open(&LedgerUrl::Sqlite(place.join(LEDGER_FILE)))?;
    let uid = ledger.run("long")?.uid;
    let (mut listed, mut shown, mut curves) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds * COMMANDS {
        let (took, found) = command(&place, &list)?;
        let found = found.as_array().map_or(0, Vec::len);
        ensure!(found > 0 && found <= 20, "{found} runs were found");
        listed.push(took);
        shown.push(command(&place, &["run", "show", "run-000000"])?.0);
    }
    for _ in 0..rounds {
        let window = Window { buckets: Some(BUCKETS), ..Window::default() };
        let began = Instant::now();
        let curve = ledger.curve(&uid, "loss", window)?;
        curves.push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(curve.points == points, "{} of {points} points are in the curve", curve.points);
    }
    Ok(Numbers::from([
        ("first_look_s", first / 1e3),
        ("list_ms", median(&mut listed)),
        ("show_ms", median(&mut shown)),
        ("curve_ms", median(&mut curves)),
    ]))
}

/// Runs a command in a directory with runs; gives its milliseconds and what it printed.
fn command(runs: &Path, words: &[&str]) -> anyhow::Result<(f64, Value)> {
    let mut command = own_program().command();
    command.args(["--output", "json"]).args(words).env_remove(LEDGER_VARIABLE);
    command.current_dir(runs.parent().unwrap_or(runs)).stdin(Stdio::null()).stderr(Stdio::inherit());
    let began = Instant::now();
    let ended = command.output().context("could not start a command")?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    ensure!(ended.status.success(), "a command failed ({})", ended.status);
    Ok((took, serde_json::from_slice(&ended.stdout)?))
}
