//! Much more data than memory: alone in its process, since it measures the memory of it.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use bytes::Bytes;
use phalanx_segments::{Spill, SpillSettings, StoredValue};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::VecDeque;

const VALUE: usize = 4 << 20;
/// Values that stay in memory.
const BUDGET: usize = 8;

fn value(number: u64) -> Bytes {
    let mut bytes = vec![0; VALUE];
    Pcg64::seed_from_u64(number).fill_bytes(&mut bytes);
    bytes.into()
}

/// Memory of this process that is not a file, in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn values_flow_through_a_small_budget() {
    let mib: u64 = std::env::var("PHALANX_SPILL_MIB").ok().and_then(|n| n.parse().ok()).unwrap_or(256);
    let count = (mib << 20) / VALUE as u64;
    let directory = tempfile::tempdir().unwrap();
    let spill = Spill::open(directory.path(), &SpillSettings::default()).unwrap();
    let mut in_memory: VecDeque<(u64, Bytes)> = VecDeque::new();
    let mut spilled: Vec<(u64, StoredValue)> = Vec::new();
    let mut dice = Pcg64::seed_from_u64(1);
    let mut most = 0;
    let mut read = 0_u64;
    for number in 0..count {
        in_memory.push_back((number, value(number)));
        if in_memory.len() > BUDGET {
            // The oldest is written and forgotten.
            let (number, bytes) = in_memory.pop_front().unwrap();
            spilled.push((number, spill.put([bytes]).unwrap()));
        }
        if let Some((number, stored)) = spilled.get(dice.random_range(0..spilled.len().max(1))) {
            let bytes = if dice.random_bool(0.5) { stored.read() } else { stored.map() };
            assert!(bytes.unwrap() == value(*number), "value {number} came back changed");
            read += 1;
        }
        most = most.max(memory());
    }
    assert!(read >= count - BUDGET as u64 - 1);
    assert_eq!(spill.used_bytes(), spilled.len() as u64 * VALUE as u64);
    // The budget, the values that are compared, and what the allocator keeps.
    let bound = (BUDGET as u64 + 8) * VALUE as u64;
    assert!(most < bound, "{most} bytes of memory for {mib} MiB of values");
    for (number, stored) in spilled.drain(..) {
        assert!(stored.read().unwrap() == value(number), "value {number} came back changed");
    }
    assert!(spill.used_bytes() == 0 && spill.segments() <= 1);
    println!("{mib} MiB of values with {} MiB of memory", most >> 20);
}
