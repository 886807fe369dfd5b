//! Redis's own benchmark against both servers.

use super::Bench;
use super::servers::RunningServer;
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
    let mut rows = Vec::new();
    for case in cases() {
        rows.extend(compare(bench, &case)?);
    }
    Ok(rows)
}

/// Requests per second, and the server's microseconds for one: those depend little on what else the machine does.
struct Speed {
    rate: f64,
    processor: f64,
}

fn compare(bench: &Bench, case: &Case) -> anyhow::Result<[Row; 2]> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        ours.push(speed(&bench.servers.ours, case)?);
        theirs.push(speed(&bench.servers.redis, case)?);
    }
    let size = if case.bytes == 1024 { "1 KB" } else { "1 MB" };
    let Case { command, clients, pipeline, wanted, .. } = case;
    let what = format!("{size} {command}, {clients} clients, pipeline {pipeline}");
    let row = |unit, of: fn(&Speed) -> f64, more_is_better, bar| Row {
        part: "redis-benchmark",
        what: what.clone(),
        unit,
        ours: middle(ours.iter().map(of)),
        peer: Some(("redis", middle(theirs.iter().map(of)))),
        more_is_better,
        bar,
    };
    Ok([
        row("1/s", |speed| speed.rate, true, Bar::TimesBetter(Some(*wanted))),
        row("processor µs", |speed| speed.processor, false, Bar::TimesBetter(None)),
    ])
}

fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn speed(server: &RunningServer, case: &Case) -> anyhow::Result<Speed> {
    let port = server.address.rsplit(':').next().unwrap_or_default();
    // Lists would grow from one case to the next, and what is read must be there.
    tool("redis-cli", &["-p", port, "FLUSHALL"]).capture()?;
    call(port, &Case { command: "SET", clients: 1, pipeline: 1, requests: 1, ..*case })?;
    let before = server.processor_time()?;
    let rate = call(port, case)?;
    let processor = (server.processor_time()? - before) / f64::from(case.requests) * 1e6;
    Ok(Speed { rate, processor })
}

/// Runs `redis-benchmark`; gives the requests per second.
fn call(port: &str, case: &Case) -> anyhow::Result<f64> {
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
