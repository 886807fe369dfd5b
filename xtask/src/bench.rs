//! `cargo xtask bench`: our numbers and a peer's, measured one after the other on this machine.

use crate::tool::{cargo, root, tool};
use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Work distribution against Ray, and starting commands against HyperQueue.
    Jobs {
        /// How many times each side is measured, in turn; medians are compared.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
}

/// The release of Ray that is compared with.
const RAY: [&str; 2] = ["ray==2.60.0", "numpy"];
/// The release of HyperQueue that is compared with.
const HYPERQUEUE: [&str; 1] = ["hyperqueue==0.27.0"];
/// As many commands as `hyperqueue_jobs.py` starts.
const COMMANDS: &str = "5000";

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    match args.what {
        What::Jobs { rounds } => jobs(rounds.max(1)),
    }
}

fn jobs(rounds: usize) -> anyhow::Result<()> {
    let python = environment("ray", &RAY)?;
    let hyperqueue = environment("hyperqueue", &HYPERQUEUE)?;
    let hyperqueue_script = root().join("xtask/bench/hyperqueue_jobs.py");
    cargo(&["build", "--release", "--package", "phalanx-cli"]).run()?;
    let phalanx = root().join("target/release/phalanx");
    let script = root().join("xtask/bench/ray_jobs.py");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut our_commands, mut their_commands) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(json(&tool(&phalanx, &["bench", "jobs", "--output", "json"]).capture()?)?);
        theirs.push(json(&tool(&python, &[&script]).env("RAY_DEDUP_LOGS", "0").capture()?)?);
        let commands = ["job", "submit", "--kind", "exec", "--count", COMMANDS, "--local", "2", "--wait"];
        let commands: Vec<&str> = commands.into_iter().chain(["--output", "json", "--", "true"]).collect();
        our_commands.push(json(&tool(&phalanx, &commands).capture()?)?);
        their_commands.push(json(&tool(&hyperqueue, &[&hyperqueue_script]).capture()?)?);
    }
    let rows = [
        ("no-op jobs/s", "jobs_per_s", true),
        ("round trip p50, µs", "rtt_p50_us", false),
        ("round trip p99, µs", "rtt_p99_us", false),
        ("round trip 1 MiB p50, µs", "rtt_1mib_p50_us", false),
    ];
    say(&format!("{:<28}{:>12}{:>12}{:>10}", "", "phalanx", RAY[0], "ratio"));
    for (name, key, higher_is_better) in rows {
        let (a, b) = (median(&ours, key)?, median(&theirs, key)?);
        let ratio = if higher_is_better { a / b } else { b / a };
        say(&format!("{name:<28}{a:>12.0}{b:>12.0}{ratio:>9.1}x"));
    }
    let (a, b) = (median(&our_commands, "jobs_per_s")?, median(&their_commands, "commands_per_s")?);
    say(&format!("{:<28}{:>12}{:>20}{:>10}", "", "phalanx", HYPERQUEUE[0], "ratio"));
    say(&format!("{:<28}{a:>12.0}{b:>20.0}{:>9.1}x", "commands started/s", a / b));
    say(&format!("{:<28}{:>12.0}", "bytes per queued job", median(&ours, "bytes_per_queued_job")?));
    let last = ours.last().and_then(|m| m.get("jobs_per_s_by_queue")).cloned().unwrap_or_default();
    say(&format!("jobs/s by queue length: {last}"));
    Ok(())
}

/// A virtual environment with these packages, made once and kept in the target directory.
fn environment(name: &str, packages: &[&str]) -> anyhow::Result<PathBuf> {
    let dir = root().join("target/venv").join(name);
    let python = dir.join("bin/python");
    let stamp = dir.join("installed");
    let wanted = packages.join(" ");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(python);
    }
    tool("python3", &["-m", "venv", &dir.to_string_lossy()]).run()?;
    let mut args = vec!["-m", "pip", "install", "--quiet"];
    args.extend(packages);
    tool(&python, &args).run()?;
    std::fs::write(&stamp, wanted)?;
    Ok(python)
}

/// The last line of the output that is a JSON object.
fn json(output: &str) -> anyhow::Result<Value> {
    let line = output.lines().rev().find(|l| l.starts_with('{')).context("no result in the output")?;
    serde_json::from_str(line).context("could not read the result")
}

fn median(runs: &[Value], key: &str) -> anyhow::Result<f64> {
    let mut values = Vec::new();
    for run in runs {
        values.push(run.get(key).and_then(Value::as_f64).with_context(|| format!("no {key} in a result"))?);
    }
    values.sort_unstable_by(f64::total_cmp);
    Ok(values[values.len() / 2])
}

#[expect(clippy::print_stdout, reason = "the result of the chore")]
fn say(line: &str) {
    println!("{line}");
}
