//! Plants known mistakes in the cores and asks whether the simulator finds each of them.
//!
//! `RUSTFLAGS="--cfg seeded_bugs" cargo test -p phalanx-sim --test seeded_bugs --target-dir target/seeded-bugs`
#![cfg(seeded_bugs)]

use phalanx_jobs::core::bugs::{Bug, plant};
use phalanx_protocol::bugs::{self, RunBug};
use phalanx_sim::jobs::{Options, Report, run};
use phalanx_sim::{runs, streams};
use phalanx_streams::bugs::{StreamBug, plant as plant_in_stream};

/// A mistake must show within this many seeds.
const SEEDS: u64 = 60;

fn first_violated() -> Option<Report> {
    let ordinary = (0..SEEDS).map(|seed| run(seed, &Options::default()));
    let doubled = (0..SEEDS).map(|seed| run(seed, &Options { doubled: true, ..Options::default() }));
    ordinary.chain(doubled).find(|r| r.violation.is_some())
}

/// One test, because a planted mistake is there for the whole process.
#[test]
fn every_planted_mistake_is_found() {
    // The mistakes make cores panic by the dozen; what they say is in the reports.
    std::panic::set_hook(Box::new(|_| {}));
    plant(None);
    let clean = first_violated();
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        plant(Some(bug));
        match first_violated() {
            Some(Report { seed, violation: Some(violation), .. }) => {
                println!("{bug:?}: seed {seed}: {}", violation.what);
            }
            _ => missed.push(bug),
        }
    }
    plant(None);
    drop(std::panic::take_hook());
    assert_eq!(clean, None, "without a mistake nothing is violated");
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}

/// A mistake in a run shows within this many seeds.
const RUN_SEEDS: u64 = 1000;

/// The same for the cores of training runs.
#[test]
fn every_planted_mistake_in_a_run_is_found() {
    let first_violated = || {
        let random = (0..RUN_SEEDS).map(|seed| (seed, runs::Options::random(seed)));
        let freeing = (0..RUN_SEEDS).map(|seed| (seed, runs::Options::random_freeing(seed)));
        let all = random.chain(freeing).map(|(seed, options)| runs::run(seed, &options));
        all.filter_map(|report| Some((report.seed, report.violation?.what))).next()
    };
    let mut missed = Vec::new();
    for bug in RunBug::ALL {
        bugs::plant(Some(bug));
        match first_violated() {
            Some((seed, what)) => println!("{bug:?}: seed {seed}: {what}"),
            None => missed.push(bug),
        }
    }
    bugs::plant(None);
    assert_eq!(first_violated(), None, "without a mistake nothing is violated");
    assert!(missed.is_empty(), "not found within {RUN_SEEDS} seeds: {missed:?}");
}

/// A mistake in a stream shows within this many seeds.
const STREAM_SEEDS: u64 = 1000;

/// The same for the core of streams.
#[test]
fn every_planted_mistake_in_a_stream_is_found() {
    let first_violated = || {
        let all = (0..STREAM_SEEDS).map(|seed| streams::run(seed, &streams::Options::default()));
        all.filter_map(|report| Some((report.seed, report.violation?.what))).next()
    };
    let mut missed = Vec::new();
    for bug in StreamBug::ALL {
        plant_in_stream(Some(bug));
        match first_violated() {
            Some((seed, what)) => println!("{bug:?}: seed {seed}: {what}"),
            None => missed.push(bug),
        }
    }
    plant_in_stream(None);
    assert_eq!(first_violated(), None, "without a mistake nothing is violated");
    assert!(missed.is_empty(), "not found within {STREAM_SEEDS} seeds: {missed:?}");
}
