//! Many seeds of simulated streams: no violation in any, and the same run for the same seed.

use phalanx_sim::streams::{Counts, Options, Report, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 1000;
const THREADS: usize = 2;

fn seeds() -> u64 {
    std::env::var("PHALANX_STREAM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

fn run_all(seeds: u64) -> Vec<Report> {
    let next = AtomicU64::new(0);
    let reports = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    let report = run(seed, &Options::default());
                    reports.lock().expect("no thread panics").push(report);
                }
            });
        }
    });
    let mut reports = reports.into_inner().expect("no thread panics");
    reports.sort_by_key(|report| report.seed);
    reports
}

#[test]
fn no_seed_loses_a_sample_or_uses_one_twice() {
    let reports = run_all(seeds());
    let violated: Vec<&Report> = reports.iter().filter(|report| report.violation.is_some()).collect();
    for report in violated.iter().take(10) {
        if let Some(violation) = &report.violation {
            println!("seed {}: at {}: {}", report.seed, violation.at, violation.what);
            println!(
                "replay: PHALANX_STREAM_SEED={} cargo test --package phalanx-sim --test streams -- --ignored one_seed --nocapture",
                report.seed
            );
        }
    }
    let sum = |count: fn(&Counts) -> u64| reports.iter().map(|report| count(&report.counts)).sum::<u64>();
    println!("{} seeds, {} events", reports.len(), reports.iter().map(|report| report.events).sum::<u64>());
    type Count = fn(&Counts) -> u64;
    let table: [(&str, Count); 14] = [
        ("uploads", |c| c.uploads),
        ("repeated uploads", |c| c.repeated),
        ("steps", |c| c.steps),
        ("passes", |c| c.passes),
        ("shares", |c| c.shares),
        ("store restarts", |c| c.store_restarts),
        ("lost facts", |c| c.lost_facts),
        ("fenced", |c| c.fenced),
        ("waits", |c| c.waits),
        ("cut windows", |c| c.cut_windows),
        ("rewinds", |c| c.rewinds),
        ("released readers", |c| c.released),
        ("freed uploads", |c| c.freed),
        ("shrunk uploads", |c| c.shrunk),
    ];
    for (name, count) in table {
        println!("{name}: {}", sum(count));
        // A simulation in which something never happens proves nothing about it.
        assert!(sum(count) > 0 || seeds() < SEEDS, "{name} never happened");
    }
    assert!(violated.is_empty(), "{} of {} seeds were violated", violated.len(), reports.len());
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    for seed in [0, 1, 7, 42, 1234] {
        let traced = Options { trace: true };
        let (first, second) = (run(seed, &traced), run(seed, &traced));
        assert_eq!(first, second, "seed {seed}");
        assert!(first.trace.is_some_and(|text| text.lines().count() > 20), "seed {seed} has a trace");
        assert_eq!(run(seed, &Options::default()).trace_hash, second.trace_hash, "seed {seed} without text");
    }
}

#[test]
fn different_seeds_give_different_runs() {
    assert_ne!(run(1, &Options::default()).trace_hash, run(2, &Options::default()).trace_hash);
}

/// Replays the seed `PHALANX_STREAM_SEED` with its trace.
#[test]
#[ignore = "for a person"]
fn one_seed() {
    let seed = std::env::var("PHALANX_STREAM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let report = run(seed, &Options { trace: true });
    println!("{}", report.trace.unwrap_or_default());
    assert_eq!(report.violation, None);
}
