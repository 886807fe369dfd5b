//! `cargo xtask bench jobs`: work distribution.

use super::{json, median, release, say};
use crate::python::Environment;
use crate::tool::{root, tool};

/// The release of Ray that is compared with.
const RAY: [&str; 2] = ["ray==2.60.0", "numpy"];
/// The release of HyperQueue that is compared with.
const HYPERQUEUE: [&str; 1] = ["hyperqueue==0.27.0"];
/// As many commands as `hyperqueue_jobs.py` starts.
const COMMANDS: &str = "5000";

pub(super) fn run(rounds: usize) -> anyhow::Result<()> {
    let python = Environment::of("ray", &RAY).install()?;
    let hyperqueue = Environment::of("hyperqueue", &HYPERQUEUE).install()?;
    let hyperqueue_script = root().join("xtask/bench/hyperqueue_jobs.py");
    let phalanx = release()?;
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
