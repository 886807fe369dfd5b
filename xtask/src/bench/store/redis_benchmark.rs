//! Redis's own benchmark against both servers.

use super::Bench;
use crate::bench::rows::{Bar, Row};
use crate::tool::tool;
use anyhow::Context;

/// One call of `redis-benchmark`.
struct Case {
    command: &'static str,
    clients: u32,
    pipeline: u32,
    bytes: u32,
    requests: u32,
    /// How many times Redis is wanted.
    wanted: f64,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for command in ["SET", "GET", "LPUSH", "HSET"] {
        for (clients, pipeline, requests) in
            [(1, 1, 40_000), (50, 1, 150_000), (1, 16, 400_000), (50, 16, 800_000)]
        {
            cases.push(Case { command, clients, pipeline, bytes: 1024, requests, wanted: 1.0 });
        }
    }
    for command in ["SET", "GET"] {
        for clients in [1, 4, 50] {
            let (pipeline, bytes, requests, wanted) = (1, 1 << 20, 4000, 1.5);
            cases.push(Case { command, clients, pipeline, bytes, requests, wanted });
        }
    }
    cases
}

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    cases().iter().map(|case| compare(bench, case)).collect()
}

fn compare(bench: &Bench, case: &Case) -> anyhow::Result<Row> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        ours.push(requests_per_second(bench.servers.ours(), case)?);
        theirs.push(requests_per_second(bench.servers.redis(), case)?);
    }
    let size = if case.bytes == 1024 { "1 KB" } else { "1 MB" };
    let Case { command, clients, pipeline, wanted, .. } = case;
    Ok(Row {
        part: "redis-benchmark",
        what: format!("{size} {command}, {clients} clients, pipeline {pipeline}"),
        unit: "1/s",
        ours: middle(&mut ours),
        peer: Some(("redis", middle(&mut theirs))),
        more_is_better: true,
        bar: Bar::TimesBetter(Some(*wanted)),
    })
}

fn middle(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn requests_per_second(address: &str, case: &Case) -> anyhow::Result<f64> {
    let port = address.rsplit(':').next().unwrap_or_default();
    // Lists would grow from one case to the next.
    tool("redis-cli", &["-p", port, "FLUSHALL"]).capture()?;
    let numbers = [case.clients, case.pipeline, case.bytes, case.requests].map(|n| n.to_string());
    let [clients, pipeline, bytes, requests] = &numbers;
    let words =
        ["-p", port, "-t", case.command, "-c", clients, "-P", pipeline, "-d", bytes, "-n", requests, "--csv"];
    let output = tool("redis-benchmark", &words).capture()?;
    rate(&output, case.command).context("redis-benchmark said nothing of the command")
}

/// The second field of the line of a command.
fn rate(output: &str, command: &str) -> Option<f64> {
    let line = output.lines().find(|line| line.starts_with(&format!("\"{command}")))?;
    line.split(',').nth(1)?.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found() {
        let output = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"55555.56\",\"0.01\"\n";
        assert_eq!(rate(output, "SET"), Some(55555.56));
        assert_eq!(rate(output, "GET"), None);
    }
}
