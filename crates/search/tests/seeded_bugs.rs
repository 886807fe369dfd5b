//! Plants known mistakes in the control of a search and asks whether simulated searches find each of them.
//!
//! `RUSTFLAGS="--cfg seeded_bugs" cargo test -p phalanx-search --test seeded_bugs --target-dir target/seeded-bugs`
#![cfg(seeded_bugs)]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod cluster;

use phalanx_search::core::control::bugs::{ControlBug, plant};

/// A mistake must show within this many seeds.
const SEEDS: u64 = 300;

fn first_violated() -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| Some((seed, cluster::run(seed).err()?)))
}

/// One test, because a planted mistake is there for the whole process.
#[test]
fn every_planted_mistake_in_a_search_is_found() {
    plant(None);
    assert_eq!(first_violated(), None, "without a mistake nothing is violated");
    let mut missed = Vec::new();
    for bug in ControlBug::ALL {
        plant(Some(bug));
        match first_violated() {
            Some((seed, what)) => println!("{bug:?}: seed {seed}: {what}"),
            None => missed.push(bug),
        }
    }
    plant(None);
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
