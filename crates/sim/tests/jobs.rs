//! Many seeds of simulated chaos: no violation in any, and the same run for the same seed.

use phalanx_sim::jobs::{Options, Report, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 1000;
const THREADS: usize = 2;

fn seeds() -> u64 {
    std::env::var("PHALANX_SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

fn run_all(seeds: u64, options: &Options) -> Vec<Report> {
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
                    let report = run(seed, options);
                    reports.lock().expect("no thread panics").push(report);
                }
            });
        }
    });
    let mut reports = reports.into_inner().expect("no thread panics");
    reports.sort_by_key(|r| r.seed);
    reports
}

#[test]
fn no_seed_loses_a_job_or_ends_one_twice() {
    let reports = run_all(seeds(), &Options::default());
    let mut failing = 0;
    for report in &reports {
        if let Some(violation) = &report.violation {
            failing += 1;
            println!("seed {}: at {}: {}", report.seed, violation.at, violation.what);
            println!("replay: phalanx simulate jobs --seed {} --trace", report.seed);
        }
    }
    let sum = |f: fn(&Report) -> u64| reports.iter().map(f).sum::<u64>();
    println!(
        "{} seeds, {} events, {} jobs: {} solved, {} failed, {} cancelled, {} expired",
        reports.len(),
        sum(|r| r.events),
        sum(|r| r.outcomes.submitted),
        sum(|r| r.outcomes.solved),
        sum(|r| r.outcomes.failed),
        sum(|r| r.outcomes.cancelled),
        sum(|r| r.outcomes.expired),
    );
    assert_eq!(failing, 0, "{failing} of {} seeds were violated", reports.len());
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    let traced = Options { trace: true, ..Options::default() };
    for seed in [0, 1, 7, 42, 1234] {
        let (first, second) = (run(seed, &traced), run(seed, &traced));
        assert_eq!(first, second, "seed {seed}");
        assert!(first.trace.is_some_and(|t| t.lines().count() > 100), "seed {seed} has a trace");
        assert_eq!(run(seed, &Options::default()).trace_hash, second.trace_hash, "seed {seed} without text");
    }
}

#[test]
fn different_seeds_give_different_runs() {
    assert_ne!(run(1, &Options::default()).trace_hash, run(2, &Options::default()).trace_hash);
}
