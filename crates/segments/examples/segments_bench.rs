//! Measures a journal and a spill: `segments_bench DIRECTORY`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers of this crate")]

use bytes::Bytes;
use phalanx_segments::{Durability, Journal, Record, Settings, Spill, SpillSettings, recover};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const PHASE: Duration = Duration::from_secs(1);
const RECORDS: usize = 300_000;
const VALUES: usize = 32;

fn open(path: &Path, durability: Durability) -> Journal {
    recover(path, Settings { durability, ..Settings::default() }).unwrap().start().unwrap()
}

/// Appends 1 KiB records from `clients` threads that wait for each acknowledgement; records per second.
fn closed_loop(path: &Path, durability: Durability, clients: usize) -> f64 {
    settle();
    let journal = open(path, durability);
    let body = Bytes::from(vec![7; KIB]);
    let begun = Instant::now();
    let records: u64 = std::thread::scope(|scope| {
        let client = || {
            let mut records = 0;
            while begun.elapsed() < PHASE {
                journal.append_and_wait(Record::new(1, [body.clone()])).unwrap();
                records += 1;
            }
            records
        };
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    records as f64 / begun.elapsed().as_secs_f64()
}

/// Appends records without waiting, until all are acknowledged; seconds.
fn open_loop(journal: &Journal, count: usize, record: impl Fn(usize) -> Record) -> f64 {
    settle();
    let begun = Instant::now();
    let (reply, replies) = channel();
    for number in 0..count {
        let reply = (number + 1 == count).then(|| reply.clone());
        let done = move |result: Result<_, _>| {
            result.unwrap();
            reply.inspect(|reply| reply.send(()).unwrap());
        };
        journal.append(record(number), Box::new(done)).unwrap();
    }
    replies.recv().unwrap();
    begun.elapsed().as_secs_f64()
}

/// Waits until nothing is left to be written: a phase must not pay for the one before.
fn settle() {
    rustix::fs::sync();
}

/// What the disk does by itself: 1 KiB written and flushed, again and again; flushes per second.
fn raw_flushes(path: &Path) -> f64 {
    settle();
    let file = File::create(path).unwrap();
    let body = [7; KIB];
    let begun = Instant::now();
    let mut count = 0_u64;
    while begun.elapsed() < PHASE {
        file.write_all_at(&body, count * KIB as u64).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    std::fs::remove_file(path).unwrap();
    rate
}

/// What the disk does by itself: values written to a new file, and flushed at the end or not; GB/s.
fn raw_values(path: &Path, value: &[u8], flush: bool) -> f64 {
    settle();
    let file = File::create(path).unwrap();
    let begun = Instant::now();
    for number in 0..VALUES {
        file.write_all_at(value, (number * value.len()) as u64).unwrap();
    }
    if flush {
        file.sync_data().unwrap();
    }
    let rate = (VALUES * value.len()) as f64 / begun.elapsed().as_secs_f64() / 1e9;
    std::fs::remove_file(path).unwrap();
    rate
}

fn journal_values(path: &Path, durability: Durability, value: &Bytes) -> f64 {
    let journal = open(path, durability);
    let kept = std::sync::Mutex::new(Vec::new());
    let seconds = open_loop(&journal, VALUES, |_| {
        let stored = journal.value([value.clone()]);
        kept.lock().unwrap().push(stored.clone());
        Record::new(1, ["key".into()]).with_value(stored)
    });
    (VALUES * value.len()) as f64 / seconds / 1e9
}

/// Every number stands beside what the disk did by itself a moment before: it is shared and changes by the second.
fn main() {
    let parent = std::path::PathBuf::from(std::env::args_os().nth(1).unwrap());
    let rounds = std::env::args().nth(2).map_or(3, |rounds| rounds.parse().unwrap());
    let fresh = |name: &str| {
        let path = parent.join(name);
        drop(std::fs::remove_dir_all(&path));
        path
    };
    let durabilities = [Durability::EveryWrite, Durability::EverySecond, Durability::Never];
    let value = Bytes::from((0..16 * MIB).map(|at| ((at * at) >> 7) as u8).collect::<Vec<_>>());
    for round in 0..rounds {
        println!("round {round}");
        println!("  disk alone: {:.0} flushes/s of 1 KiB", raw_flushes(&parent.join("raw")));
        for durability in durabilities {
            let rates = [1, 64].map(|clients| closed_loop(&fresh("closed"), durability, clients));
            let journal = open(&fresh("open"), durability);
            let body = Bytes::from(vec![7; KIB]);
            let seconds = open_loop(&journal, RECORDS, |_| Record::new(1, [body.clone()]));
            let rate = RECORDS as f64 / seconds;
            println!(
                "  1 KiB, {durability:?}: {:.0} /s 1 client, {:.0} /s 64 clients, {rate:.0} /s without waiting",
                rates[0], rates[1]
            );
        }
        for durability in durabilities {
            let flush = durability == Durability::EveryWrite;
            let raw = raw_values(&parent.join("raw"), &value, flush);
            let rate = journal_values(&fresh("values"), durability, &value);
            println!("  16 MiB, {durability:?}: {rate:.2} GB/s; disk alone {raw:.2} GB/s");
        }
        measure_recovery(&parent.join("open"), &parent.join("values"), &value);
        measure_spill(&parent, &value);
    }
    for name in ["closed", "open", "values"] {
        drop(std::fs::remove_dir_all(parent.join(name)));
    }
}

fn measure_recovery(records: &Path, values: &Path, value: &Bytes) {
    let begun = Instant::now();
    let sums: Vec<u32> = (0..VALUES).map(|_| crc32fast::hash(std::hint::black_box(value))).collect();
    let bytes = (sums.len() * value.len()) as f64;
    println!("  checksum alone: {:.2} GB/s", bytes / begun.elapsed().as_secs_f64() / 1e9);
    let begun = Instant::now();
    let read = recover(records, Settings::default()).unwrap().map(Result::unwrap).count();
    let seconds = begun.elapsed().as_secs_f64();
    let bytes = (read * KIB) as f64;
    println!("  recovery: {:.0} records/s, {:.2} GB/s", read as f64 / seconds, bytes / seconds / 1e9);
    let begun = Instant::now();
    let records: Vec<_> = recover(values, Settings::default()).unwrap().map(Result::unwrap).collect();
    println!("  recovery of {} references: {:?}", records.len(), begun.elapsed());
    for (how, map) in [("read", false), ("map", true)] {
        let begun = Instant::now();
        let values = records.iter().flat_map(|record| &record.values);
        let read = |value: &phalanx_segments::StoredValue| if map { value.map() } else { value.read() };
        let bytes: usize = values.map(|value| read(value).unwrap().len()).sum();
        println!("  values by {how}: {:.2} GB/s", bytes as f64 / begun.elapsed().as_secs_f64() / 1e9);
    }
}

fn measure_spill(directory: &Path, value: &Bytes) {
    settle();
    let spill = Spill::open(directory, &SpillSettings::default()).unwrap();
    let begun = Instant::now();
    let values: Vec<_> = (0..VALUES).map(|_| spill.put([value.clone()]).unwrap()).collect();
    let bytes = (values.len() * value.len()) as f64;
    println!("  spill of 16 MiB values: {:.2} GB/s", bytes / begun.elapsed().as_secs_f64() / 1e9);
    let begun = Instant::now();
    values.iter().for_each(|value| assert_eq!(value.read().unwrap().len(), 16 * MIB));
    println!("  spilled values by read: {:.2} GB/s", bytes / begun.elapsed().as_secs_f64() / 1e9);
    let begun = Instant::now();
    values.iter().for_each(|value| assert_eq!(value.map().unwrap().len(), 16 * MIB));
    println!("  spilled values by map: {:.2} GB/s", bytes / begun.elapsed().as_secs_f64() / 1e9);
}
