//! Measures a journal and a spill: `segments_bench DIRECTORY`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers of this crate")]

use bytes::Bytes;
use phalanx_segments::{Durability, Journal, Record, Settings, Spill, SpillSettings, recover};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn open(path: &Path, durability: Durability) -> Journal {
    recover(path, Settings { durability, ..Settings::default() }).unwrap().start().unwrap()
}

/// Appends 1 KiB records from `clients` threads that wait for each acknowledgement; records per second.
fn closed_loop(path: &Path, durability: Durability, clients: usize) -> f64 {
    let journal = open(path, durability);
    let body = Bytes::from(vec![7; KIB]);
    let begun = Instant::now();
    let limit = Duration::from_secs(2);
    let records: u64 = std::thread::scope(|scope| {
        let client = || {
            let mut records = 0;
            while begun.elapsed() < limit {
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

fn main() {
    let parent = std::path::PathBuf::from(std::env::args_os().nth(1).unwrap());
    let fresh = |name: &str| {
        let path = parent.join(name);
        drop(std::fs::remove_dir_all(&path));
        path
    };
    for durability in [Durability::EveryWrite, Durability::EverySecond, Durability::Never] {
        for clients in [1, 64] {
            let rate = closed_loop(&fresh("closed"), durability, clients);
            println!("1 KiB records, {durability:?}, {clients} waiting clients: {rate:.0} /s");
        }
        let journal = open(&fresh("open"), durability);
        let body = Bytes::from(vec![7; KIB]);
        let count = 500_000;
        let seconds = open_loop(&journal, count, |_| Record::new(1, [body.clone()]));
        println!("1 KiB records, {durability:?}, without waiting: {:.0} /s", count as f64 / seconds);
    }
    let value = Bytes::from(vec![9; 16 * MIB]);
    for durability in [Durability::EveryWrite, Durability::EverySecond, Durability::Never] {
        let path = fresh("values");
        let journal = open(&path, durability);
        let count = 48;
        let kept = std::sync::Mutex::new(Vec::new());
        let seconds = open_loop(&journal, count, |_| {
            let stored = journal.value([value.clone()]);
            kept.lock().unwrap().push(stored.clone());
            Record::new(1, ["key".into()]).with_value(stored)
        });
        let gigabytes = (count * value.len()) as f64 / 1e9;
        println!("16 MiB values, {durability:?}: {:.2} GB/s", gigabytes / seconds);
    }
    measure_recovery(&parent.join("open"), &parent.join("values"));
    measure_spill(&parent, &value);
    for name in ["closed", "open", "values"] {
        drop(std::fs::remove_dir_all(parent.join(name)));
    }
}

fn measure_recovery(records: &Path, values: &Path) {
    let begun = Instant::now();
    let read = recover(records, Settings::default()).unwrap().map(Result::unwrap).count();
    let seconds = begun.elapsed().as_secs_f64();
    let bytes = (read * KIB) as f64;
    println!("recovery: {:.0} records/s, {:.2} GB/s", read as f64 / seconds, bytes / seconds / 1e9);
    let begun = Instant::now();
    let records: Vec<_> = recover(values, Settings::default()).unwrap().map(Result::unwrap).collect();
    println!("recovery of {} references: {:?}", records.len(), begun.elapsed());
    for (how, map) in [("read", false), ("map", true)] {
        let begun = Instant::now();
        let values = records.iter().flat_map(|record| &record.values);
        let read = |value: &phalanx_segments::StoredValue| if map { value.map() } else { value.read() };
        let bytes: usize = values.map(|value| read(value).unwrap().len()).sum();
        println!("values by {how}: {:.2} GB/s", bytes as f64 / begun.elapsed().as_secs_f64() / 1e9);
    }
}

fn measure_spill(directory: &Path, value: &Bytes) {
    let spill = Spill::open(directory, &SpillSettings::default()).unwrap();
    let begun = Instant::now();
    let values: Vec<_> = (0..48).map(|_| spill.put([value.clone()]).unwrap()).collect();
    let bytes = (values.len() * value.len()) as f64;
    println!("spill of 16 MiB values: {:.2} GB/s", bytes / begun.elapsed().as_secs_f64() / 1e9);
    let begun = Instant::now();
    values.iter().for_each(|value| assert_eq!(value.read().unwrap().len(), 16 * MIB));
    println!("spilled values by read: {:.2} GB/s", bytes / begun.elapsed().as_secs_f64() / 1e9);
    let begun = Instant::now();
    values.iter().for_each(|value| assert_eq!(value.map().unwrap().len(), 16 * MIB));
    println!("spilled values by map: {:.2} GB/s", bytes / begun.elapsed().as_secs_f64() / 1e9);
}
