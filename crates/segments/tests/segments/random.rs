//! Random operations against a model.

use crate::table::{Lengths, Table, small_settings};
use phalanx_segments::{Durability, Journal, Settings, recover};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::path::Path;

const LENGTHS: Lengths = Lengths { small: 500, large: 20_000 };

fn open(path: &Path, settings: Settings) -> (Table, Journal) {
    let mut recovery = recover(path, settings).unwrap();
    let table = Table::read(LENGTHS, &mut recovery);
    assert_eq!(recovery.notes(), [], "the journal was closed in order");
    (table, recovery.start().unwrap())
}

fn one_seed(seed: u64) {
    // In memory: nothing here depends on what a disk does, and flushing takes most of the time.
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("j");
    let mut dice = Pcg64::seed_from_u64(seed);
    let durability = [Durability::EverySecond, Durability::Never, Durability::EveryWrite][seed as usize % 3];
    let settings = Settings { segment_bytes: dice.random_range(1..100_000), ..small_settings(durability) };
    let (mut table, mut journal) = open(&path, settings.clone());
    for _ in 0..40 {
        match dice.random_range(0..10) {
            0..=5 => {
                for _ in 0..dice.random_range(1..30) {
                    let (record, key, entry) = table.prepare(&journal).split();
                    journal.append(record, Box::new(|done| assert!(done.is_ok(), "{done:?}"))).unwrap();
                    table.commit(key, entry);
                }
            }
            6 => {
                let pending = journal.begin_snapshot().unwrap();
                let records = table.snapshot();
                // More is appended before the snapshot is written.
                let (record, key, entry) = table.prepare(&journal).split();
                journal.append_and_wait(record).unwrap();
                table.commit(key, entry);
                assert_eq!(pending.write(records.clone()).unwrap().records, records.len() as u64);
            }
            7 => drop(journal.compact().unwrap()),
            8 => table.check(),
            _ => {
                // Dropped before the table, or behind it.
                let last = table.last;
                if dice.random_bool(0.5) {
                    drop(table);
                }
                drop(journal);
                (table, journal) = open(&path, settings.clone());
                assert_eq!(table.last, last);
                table.check();
            }
        }
    }
    // What is unused is deleted by two snapshots at most: compaction moves values for the second.
    for _ in 0..2 {
        journal.compact().unwrap();
        journal.begin_snapshot().unwrap().write(table.snapshot()).unwrap();
    }
    let status = journal.status();
    let bound = 2 * status.value_bytes + 2 * settings.segment_bytes.max(4096) + 3 * 21_000;
    assert!(status.value_file_bytes <= bound, "seed {seed}: {status:?}");
    table.check();
}

#[test]
fn a_journal_holds_what_a_model_holds() {
    let seeds: u64 = std::env::var("PHALANX_SEGMENT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    (0..seeds).for_each(one_seed);
}
