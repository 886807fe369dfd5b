//! Nodes that are killed and frozen at random moments while thousands of jobs run.

use crate::BINARY;
use phalanx_testkit::{NodeWatch, Process, Sandbox, chaos_seed};
use phalanx_types::Seed;
use rustix::process::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

const JOBS: u64 = 5_000;
const JOB: Duration = Duration::from_millis(5);
const CORES: u32 = 2;
/// Three nodes are killed, one is frozen, one is left.
const NODES: usize = 5;
const RECORDING: &str = "chaos.recording";

/// What happens to a node after this fraction of the jobs has ended.
struct Misfortune {
    at: f64,
    node: usize,
    signal: Signal,
}

/// Misfortunes for four of the five nodes, in the order in which they strike.
fn misfortunes(seed: Seed) -> Vec<Misfortune> {
    let mut nodes: Vec<usize> = (0..NODES).collect();
    nodes.sort_by_key(|node| seed.derive(&format!("order {node}")).0);
    let signals = [Signal::KILL, Signal::KILL, Signal::KILL, Signal::STOP];
    let mut all: Vec<Misfortune> = signals
        .into_iter()
        .zip(nodes)
        .map(|(signal, node)| {
            let random = seed.derive(&format!("moment {node}")).0 as f64 / u64::MAX as f64;
            Misfortune { at: 0.05 + 0.6 * random, node, signal }
        })
        .collect();
    all.sort_by(|a, b| a.at.total_cmp(&b.at));
    all
}

fn jobs_done(node: &Value) -> u64 {
    node["jobs_done"].as_u64().unwrap_or_default()
}

fn await_done(watch: &mut NodeWatch, jobs: u64) {
    watch.until(|nodes| (nodes.values().map(jobs_done).sum::<u64>() >= jobs).then_some(()));
}

/// The best possible time when a node's cores are lost at each of these times.
fn ideal(losses: &[Duration]) -> Duration {
    let mut work = JOB * u32::try_from(JOBS).unwrap();
    let mut cores = CORES * u32::try_from(NODES).unwrap();
    let mut now = Duration::ZERO;
    for at in losses {
        let done = at.saturating_sub(now) * cores;
        if done >= work {
            break;
        }
        work -= done;
        now = *at;
        cores -= CORES;
    }
    now + work / cores
}

fn submit(sandbox: &Sandbox, count: u64) -> Process {
    let (job, count) = (format!("{}ms", JOB.as_millis()), count.to_string());
    let job = ["job", "submit", "--kind", "sleep", "--arg", &job, "--count", &count];
    sandbox.start(
        &[&job[..], &["--wait", "--output", "json", "--heartbeat", "500ms", "--recording", RECORDING]]
            .concat(),
    )
}

#[test]
fn no_job_is_lost_when_three_nodes_of_five_are_killed_and_one_is_frozen() {
    let plan = misfortunes(chaos_seed());
    let sandbox = Sandbox::alone(BINARY);
    let cores = CORES.to_string();
    let nodes: Vec<(Process, String)> =
        (0..NODES).map(|_| sandbox.node(&["--cores", &cores, "--heartbeat", "500ms"])).collect();
    let mut watch = sandbox.watch(&["--heartbeat", "500ms"]);
    watch.until(|seen| (seen.len() == NODES).then_some(()));

    let started = Instant::now();
    let mut main = submit(&sandbox, JOBS);
    let mut losses = Vec::new();
    for Misfortune { at, node, signal } in &plan {
        await_done(&mut watch, (at * JOBS as f64) as u64);
        nodes[*node].0.signal(*signal);
        losses.push(started.elapsed());
    }
    let (code, summary) = main.summary();
    println!("losses after {losses:?}: {summary}");
    let count = |key: &str| summary[key].as_u64().unwrap();
    assert_eq!((code, count("submitted"), count("solved")), (Some(0), JOBS, JOBS), "{summary}");
    assert_eq!([count("failed"), count("cancelled"), count("expired")], [0; 3], "{summary}");
    assert!(count("reruns") > 0, "{summary}");
    let (wall, ideal) = (summary["wall_s"].as_f64().unwrap(), ideal(&losses).as_secs_f64());
    assert!(wall < 2.0 * ideal, "took {wall:.2} s, at best {ideal:.2} s");

    let frozen = plan.iter().find(|m| m.signal == Signal::STOP).map(|m| &nodes[m.node]).unwrap();
    watch.until_state(&frozen.1, "lost");
    frozen.0.signal(Signal::CONT);
    watch.until_state(&frozen.1, "running");
    let before = watch.until(|nodes| Some(jobs_done(&nodes[&frozen.1])));
    let (code, summary) = submit(&sandbox, 400).summary();
    assert_eq!((code, &summary["solved"]), (Some(0), &400.into()), "{summary}");
    // The jobs it held when it froze count once more; a fair share is far above that.
    watch.until(|nodes| (jobs_done(&nodes[&frozen.1]) > before + 50).then_some(()));
    assert_eq!(sandbox.replay(RECORDING).sections, 2);
}
