//! Whole training runs under faults, with the real driver core: nothing is violated, whatever dies.

use phalanx_sim::runs::{Options, Report, run};

fn random(seed: u64) -> Report {
    run(seed, &Options::random(seed))
}

#[test]
fn whatever_dies_the_run_ends_and_its_records_are_complete() {
    let (mut deaths, mut groups, mut redone, mut rewinds, mut staged) = (0, 0, 0, 0, 0);
    for seed in 0..1000 {
        let options = Options::random(seed);
        let report = run(seed, &options);
        assert_eq!(report.violation, None, "seed {seed}: {options:?}");
        deaths += report.deaths;
        groups += report.groups;
        redone += report.redone;
        rewinds += report.rewinds;
        staged += u32::from(options.stages > 0);
    }
    // The faults were there: groups formed anew, steps were done again, and some runs lost everything.
    assert!(deaths > 1500 && groups > 2500 && redone > 1500, "{deaths} {groups} {redone}");
    assert!(rewinds > 200 && staged > 500, "{rewinds} {staged}");
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
