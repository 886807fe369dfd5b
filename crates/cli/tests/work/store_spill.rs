//! A store that holds more than its memory.

use super::sandbox;
use bytes::Bytes;
use phalanx_store_client::{ProducerOptions, Store, StoreError, StoreOptions};
use phalanx_testkit::{Process, Sandbox};
use phalanx_types::{DType, Tensor};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::time::Duration;

const VALUE: usize = 4 << 20;
const PAGE: usize = 4096;
/// What the program and its threads take, and values on their way from and to clients.
const BESIDE: u64 = 128 << 20;

/// The most that a store of this budget may take: a sixteenth of memory for new values is kept even when it is full.
fn bound(budget: u64) -> u64 {
    budget + budget / 4 + BESIDE
}

fn serve(sandbox: &Sandbox, args: &[&str]) -> (Process, String) {
    let all = [&["store", "serve", "--bind", "127.0.0.1:0", "--output", "quiet"], args].concat();
    let process = sandbox.start(&all);
    let address = process.line();
    (process, address)
}

fn base() -> Vec<u8> {
    let mut base = vec![0; VALUE];
    Pcg64::seed_from_u64(3).fill_bytes(&mut base);
    base
}

/// A value whose every page says which one it is.
fn value(base: &[u8], number: u64) -> Tensor {
    let mut data = base.to_vec();
    for page in data.chunks_mut(PAGE) {
        page[..8].copy_from_slice(&number.to_le_bytes());
    }
    Tensor::new(DType::U8, vec![data.len() as u64], Bytes::from(data)).unwrap()
}

fn number(store: &Store, name: &str) -> u64 {
    let info = format!("{:?}", store.command(&[b"INFO"]).unwrap());
    let at = info.find(&format!("{name}:")).unwrap() + name.len() + 1;
    info[at..].chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// Puts values, reads some of them meanwhile and all of them at the end; gives the most memory that the store held.
/// Pages of values on disk that were just read do not count: how long they stay is the system's affair.
fn flow(process: &Process, at: &str, count: u64, budget: u64) -> u64 {
    let base = base();
    let shared = Store::connect(at, StoreOptions::default()).unwrap();
    let options = StoreOptions { no_shared_memory: true, ..StoreOptions::default() };
    let socket = Store::connect(at, options).unwrap();
    let mut dice = Pcg64::seed_from_u64(9);
    let mut most = 0;
    let check = |store: &Store, n: u64| {
        assert!(store.get(&format!("v{n}")).unwrap() == value(&base, n), "value {n} came back changed");
    };
    for n in 0..count {
        let store = if n % 2 == 0 { &shared } else { &socket };
        store.put(&format!("v{n}"), &value(&base, n)).unwrap();
        if n % 4 == 0 {
            check(if n % 8 == 0 { &shared } else { &socket }, dice.random_range(0..=n));
        }
        if n % 16 == 0 {
            most = most.max(process.held_bytes());
            assert!(number(&shared, "resident_bytes") <= budget);
        }
    }
    for n in 0..count {
        check(if n % 2 == 0 { &socket } else { &shared }, n);
        if n % 16 == 0 {
            most = most.max(process.held_bytes());
        }
    }
    assert!(number(&shared, "used_memory") >= count * VALUE as u64);
    assert!(number(&shared, "spilled_bytes") >= count * VALUE as u64 - budget);
    most
}

#[test]
fn values_flow_through_a_small_memory_and_come_back() {
    let gib: Option<u64> = std::env::var("PHALANX_STORE_SPILL_GIB").ok().and_then(|n| n.parse().ok());
    let (size, budget) = gib.map_or((1 << 30, 128 << 20), |gib| (gib << 30, 1 << 30));
    let memory = (budget >> 20).to_string() + "MiB";
    let sandbox = sandbox();
    let (process, at) = serve(&sandbox, &["--memory", &memory, "--spill", "scratch"]);
    let most = flow(&process, &at, size / VALUE as u64, budget);
    println!("{} MiB through {} MiB: at most {} MiB held", size >> 20, budget >> 20, most >> 20);
    assert!(most < bound(budget), "{} MiB held", most >> 20);
}

#[test]
fn a_store_with_a_journal_forgets_values_that_are_on_disk_and_finds_them_again() {
    let sandbox = sandbox();
    let args = ["--memory", "64MiB", "--persist", "kept", "--durability", "never"];
    let (mut process, at) = serve(&sandbox, &args);
    let count = (384 << 20) / VALUE as u64;
    let most = flow(&process, &at, count, 64 << 20);
    // Values that wait to be written are in memory, too.
    assert!(most < bound(64 << 20) + (160 << 20), "{} MiB held", most >> 20);
    process.signal(rustix::process::Signal::KILL);
    process.finish();
    let (_process, at) = serve(&sandbox, &args);
    let store = Store::connect(&at, StoreOptions::default()).unwrap();
    let base = base();
    assert!(number(&store, "resident_bytes") < 1 << 20, "large values are on disk after a restart");
    for n in 0..count {
        assert!(store.get(&format!("v{n}")).unwrap() == value(&base, n), "value {n} came back changed");
    }
    // There is room for new ones.
    store.put("new", &value(&base, 7)).unwrap();
    assert!(store.get("new").unwrap() == value(&base, 7));
}

#[test]
fn a_spill_that_is_full_is_told_with_what_holds_the_memory() {
    let sandbox = sandbox();
    let args = ["--memory", "32MiB", "--spill", "scratch", "--spill-limit", "64MiB"];
    let (_process, at) = serve(&sandbox, &args);
    let patience = Duration::from_millis(300);
    let store = Store::connect(&at, StoreOptions { patience, ..StoreOptions::default() }).unwrap();
    let base = base();
    let mut count = 0;
    let text = loop {
        match store.put(&format!("v{count}"), &value(&base, count)) {
            Ok(()) => count += 1,
            Err(StoreError::Full { text }) => break text,
            Err(other) => panic!("{other}"),
        }
    };
    assert!((22..=24).contains(&count), "{count} values of 4 MiB in 32 and 64 MiB");
    assert!(text.contains("of 33554432 bytes in memory") && text.contains("the spill holds"), "{text}");
    // A client without patience is refused at once; what is there stays.
    let hasty = StoreOptions { patience: Duration::ZERO, ..StoreOptions::default() };
    let hasty = Store::connect(&at, hasty).unwrap();
    assert!(matches!(hasty.put("more", &value(&base, 1)), Err(StoreError::Full { .. })));
    for n in 0..count {
        assert!(hasty.get(&format!("v{n}")).unwrap() == value(&base, n), "value {n} came back changed");
    }
    hasty.delete("v3").unwrap();
    hasty.delete("v20").unwrap();
    store.put("v3", &value(&base, 5)).unwrap();
    assert!(store.get("v3").unwrap() == value(&base, 5));
}

#[test]
fn watching_streams_shows_what_is_on_disk_and_was_read_back() {
    let sandbox = sandbox();
    let (_process, at) = serve(&sandbox, &["--memory", "32MiB", "--spill", "scratch"]);
    let store = Store::connect(&at, StoreOptions::default()).unwrap();
    let options = ProducerOptions::new("sim".parse().unwrap());
    let mut producer = store.produce("data", options).unwrap();
    let base = base();
    let watch = |output: &str| {
        let words = ["store", "watch", "data", "--once", "--at", &at, "--output", output];
        String::from_utf8(sandbox.run(&words).stdout).unwrap()
    };
    producer.put(&[("x", &value(&base, 0))]).unwrap();
    assert!(!watch("table").contains("\ndisk "), "{}", watch("table"));
    for number in 1..16 {
        producer.put(&[("x", &value(&base, number))]).unwrap();
    }
    let shown: serde_json::Value = serde_json::from_str(&watch("json")).unwrap();
    assert_eq!(shown["streams"][0]["read_back_values"], 0);
    for number in [0, 1] {
        let key = format!("{{data.sim.1.{number}}}.x");
        assert!(store.get(&key).unwrap() == value(&base, number));
    }
    let shown: serde_json::Value = serde_json::from_str(&watch("json")).unwrap();
    let stream = &shown["streams"][0];
    assert!(stream["store_on_disk"].as_u64().unwrap() >= 32 << 20, "{stream}");
    assert_eq!((&stream["read_back_values"], &stream["read_back"]), (&2.into(), &(2 * VALUE).into()));
    assert!(watch("table").contains("of the store; 2 values read back, 8 MiB"), "{}", watch("table"));
}
