//! Whole training runs under faults, with the real driver core: nothing is violated, whatever dies.

use phalanx_sim::runs::{Options, Report, kinds, run};
use std::collections::BTreeSet;

fn random(seed: u64) -> Report {
    run(seed, &Options::random(seed))
}

/// The first seed, and how many; more than in the usual tests when the environment says so.
fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("PHALANX_RUN_SEEDS").ok().and_then(|count| count.parse().ok());
    0..count.unwrap_or(2000)
}

#[test]
fn whatever_dies_the_run_ends_and_its_records_are_complete() {
    let (mut deaths, mut groups, mut redone, mut rewinds, mut staged) = (0, 0, 0, 0, 0);
    let (mut restarts, mut stops, mut failures, mut intervals, mut answers) = (0, 0, 0, 0, 0);
    let mut commits_waited = 0;
    let mut had = BTreeSet::new();
    let mut violated = Vec::new();
    for seed in seeds() {
        let options = Options::random(seed);
        let report = run(seed, &options);
        if let Some(violation) = report.violation {
            violated.push((seed, violation));
        }
        deaths += report.deaths;
        groups += report.groups;
        redone += report.redone;
        rewinds += report.rewinds;
        restarts += report.restarts;
        stops += report.stops;
        failures += report.failures;
        intervals += report.intervals;
        answers += report.answers;
        commits_waited += report.commits_waited;
        staged += u32::from(options.stages > 0);
        had.extend(report.kinds);
    }
    let first: Vec<_> = violated.iter().take(20).collect();
    assert!(violated.is_empty(), "{} seeds: {first:#?}", violated.len());
    // The faults were there: groups formed anew, steps were done again, and some runs lost everything.
    assert!(deaths > 1500 && groups > 2500 && redone > 1500, "{deaths} {groups} {redone}");
    assert!(rewinds > 200 && staged > 500, "{rewinds} {staged}");
    assert!(restarts > 300 && stops > 100 && failures > 20, "{restarts} {stops} {failures}");
    assert!(intervals > 2500 && answers > 500, "{intervals} {answers}");
    assert!(commits_waited > 500, "{commits_waited}");
    let never: Vec<_> = kinds().difference(&had).copied().collect();
    assert!(never.is_empty(), "no run had these events or commands of the driver's core: {never:?}");
}

#[test]
fn a_run_never_waits_for_a_store_that_waits_for_its_checkpoint() {
    let mut commits_waited = 0;
    let mut violated = Vec::new();
    for seed in seeds() {
        let report = run(seed, &Options::random_freeing(seed));
        commits_waited += report.commits_waited;
        violated.extend(report.violation.map(|violation| (seed, violation)));
    }
    let first: Vec<_> = violated.iter().take(20).collect();
    assert!(violated.is_empty(), "{} seeds: {first:#?}", violated.len());
    assert!(commits_waited > 5000, "{commits_waited}");
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    for seed in [3, 4, 5] {
        let traced = Options { trace: true, ..Options::random(seed) };
        let (first, second) = (run(seed, &traced), run(seed, &traced));
        assert_eq!(first, second, "seed {seed}");
        assert!(first.trace.is_some_and(|text| text.lines().count() > 50), "seed {seed} has a trace");
        assert_eq!(random(seed).trace_hash, second.trace_hash, "seed {seed} without text");
        assert_ne!(random(seed + 1).trace_hash, second.trace_hash, "seed {seed} and the next");
    }
}

/// Writes the trace of one seed: `PHALANX_RUN_SEED=17 cargo test … -- --ignored one_seed --nocapture`.
#[test]
#[ignore = "prints the trace of the seed that the environment names"]
fn one_seed() {
    let seed = std::env::var("PHALANX_RUN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let random = match std::env::var_os("PHALANX_RUN_FREEING") {
        Some(_) => Options::random_freeing(seed),
        None => Options::random(seed),
    };
    let options = Options { trace: true, ..random };
    let report = run(seed, &options);
    println!("{options:#?}\n{}", report.trace.unwrap_or_default());
    assert_eq!(report.violation, None);
}
