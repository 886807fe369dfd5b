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
    let (told, violations) = judged(&Options::default());
    println!("{told}");
    assert_eq!(violations, Vec::<String>::new());
}

/// Kept solutions are made, moved, freed and made again while half of all messages come a second time, and late.
#[test]
fn no_seed_is_violated_by_messages_that_come_twice() {
    let (told, violations) = judged(&Options { doubled: true, ..Options::default() });
    println!("{told}");
    assert_eq!(violations, Vec::<String>::new());
}

/// Runs all seeds; gives what came of them, and the violations with the command that replays each.
fn judged(options: &Options) -> (String, Vec<String>) {
    let reports = run_all(seeds(), options);
    let doubled = if options.doubled { " --doubled" } else { "" };
    let violation = |report: &Report| {
        let violation = report.violation.as_ref()?;
        let replay = format!("phalanx simulate jobs --seed {}{doubled} --trace", report.seed);
        Some(format!("at {}: {}; {replay}", violation.at, violation.what))
    };
    let sum = |f: fn(&Report) -> u64| reports.iter().map(f).sum::<u64>();
    let told = format!(
        "{} seeds, {} events, {} jobs: {} solved, {} failed, {} cancelled, {} expired",
        reports.len(),
        sum(|r| r.events),
        sum(|r| r.outcomes.submitted),
        sum(|r| r.outcomes.solved),
        sum(|r| r.outcomes.failed),
        sum(|r| r.outcomes.cancelled),
        sum(|r| r.outcomes.expired),
    );
    (told, reports.iter().filter_map(violation).collect())
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
