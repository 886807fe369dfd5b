//! A store with a journal that is killed at random moments under load.

use super::sandbox;
use phalanx_resp::Reply;
use phalanx_store_client::{Store, StoreError, StoreOptions};
use phalanx_testkit::{Process, Sandbox};
use phalanx_types::{DType, Tensor};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WRITERS: u64 = 4;

fn serve(sandbox: &Sandbox) -> (Process, String) {
    let args = ["store", "serve", "--bind", "127.0.0.1:0", "--output", "quiet", "--persist", "kept"];
    let process = sandbox.start(&[&args[..], &["--durability", "every-write"]].concat());
    let address = process.line();
    (process, address)
}

/// Bytes that say which operation wrote them, everywhere.
fn content(writer: u64, op: u64, len: usize) -> Vec<u8> {
    let pattern = format!("<{writer}:{op}>");
    pattern.bytes().cycle().take(len).collect()
}

fn length(op: u64) -> usize {
    [20, 3_000, 70_000, 200_000, 1_000_000][(op % 5) as usize]
}

/// One operation of a writer: all of it is to be there afterwards, or nothing.
fn write(store: &Store, writer: u64, op: u64) -> Result<(), StoreError> {
    let key = |name: &str| format!("{writer}/{op}/{name}").into_bytes();
    let value = content(writer, op, length(op));
    let list = format!("{writer}/list").into_bytes();
    match op % 7 {
        0 | 1 => store.command(&[b"SET", &key("s"), &value])?,
        2 => {
            // Through shared memory when it is large.
            let tensor = Tensor::new(DType::U8, vec![value.len() as u64], value.into()).unwrap();
            return store.put(&format!("{writer}/{op}/s"), &tensor);
        }
        3 => store.command(&[b"MSET", &key("s"), &value, &key("twin"), &value])?,
        4 => store.command(&[b"HSET", &key("s"), b"a", &value, b"b", &value])?,
        5 => store.command(&[b"RPUSH", &list, op.to_string().as_bytes(), &value])?,
        _ => {
            // The pair goes to another list and back: it is never in none and never in both.
            let (from, to) = if (op / 7).is_multiple_of(2) { ("x", "y") } else { ("y", "x") };
            let names = [from, to].map(|name| format!("{writer}/{name}").into_bytes());
            store.command(&[b"LMOVE", &names[0], &names[1], b"LEFT", b"RIGHT"])?
        }
    };
    Ok(())
}

fn bulk(reply: Reply) -> Option<Vec<u8>> {
    match reply {
        Reply::Bulk(bytes) => Some(bytes.to_vec()),
        Reply::Null => None,
        other => panic!("{other:?}"),
    }
}

/// Whether an operation is there; it panics when it is there in part. Lists are looked at elsewhere.
fn is_there(store: &Store, writer: u64, op: u64) -> Option<bool> {
    let name = format!("{writer}/{op}/s");
    let twin = format!("{writer}/{op}/twin");
    let expected = content(writer, op, length(op));
    let get = |words: &[&[u8]]| bulk(store.command(words).unwrap());
    let check = |found: Option<Vec<u8>>| {
        if let Some(found) = &found {
            assert!(*found == expected, "writer {writer}, operation {op}: another value");
        }
        Some(found.is_some())
    };
    match op % 7 {
        0 | 1 => check(get(&[b"GET", name.as_bytes()])),
        2 => check(match store.get(&name) {
            Ok(tensor) => Some(tensor.data().to_vec()),
            Err(StoreError::Missing { .. }) => None,
            Err(other) => panic!("{other}"),
        }),
        3 => {
            let both = [&name, &twin].map(|name| get(&[b"GET", name.as_bytes()]));
            assert_eq!(both[0], both[1], "writer {writer}, operation {op}: one of two keys");
            check(both[0].clone())
        }
        4 => {
            let both = [b"a", b"b"].map(|field| get(&[b"HGET", name.as_bytes(), field]));
            assert_eq!(both[0], both[1], "writer {writer}, operation {op}: one of two fields");
            check(both[0].clone())
        }
        _ => None,
    }
}

fn elements(store: &Store, key: &str) -> Vec<Vec<u8>> {
    match store.command(&[b"LRANGE", key.as_bytes(), b"0", b"-1"]).unwrap() {
        Reply::Array(items) => items.into_iter().filter_map(bulk).collect(),
        other => panic!("{other:?}"),
    }
}

/// Checks the operations `from..=to + 1` of a writer: up to `to` they were acknowledged, one more may be there.
fn check(store: &Store, writer: u64, from: u64, to: u64) {
    for op in from..=to {
        assert_ne!(
            is_there(store, writer, op),
            Some(false),
            "writer {writer} lost operation {op} of {from}..={to}"
        );
    }
    let mut listed = (from..=to).filter(|op| op % 7 == 5).peekable();
    let list = elements(store, &format!("{writer}/list"));
    assert!(list.len().is_multiple_of(2), "writer {writer}: half of an append");
    let mut last = 0;
    for pair in list.chunks(2) {
        let op: u64 = String::from_utf8(pair[0].clone()).unwrap().parse().unwrap();
        assert!(
            op > last && op <= to + 1,
            "writer {writer}: operation {op} behind {last}, {to} was the last"
        );
        assert!(pair[1] == content(writer, op, length(op)), "writer {writer}: element of {op}");
        last = op;
        listed.next_if_eq(&op);
    }
    assert_eq!(listed.next(), None, "writer {writer}: an append was lost");
    let mut both =
        [elements(store, &format!("{writer}/x")), elements(store, &format!("{writer}/y"))].concat();
    both.sort();
    assert_eq!(both, [b"1", b"2"], "writer {writer}: elements that moved");
}

/// Writes until the store is gone; the last operation that was acknowledged.
fn load(at: &str, writer: u64, from: u64, stop: &AtomicBool) -> u64 {
    let Ok(store) = Store::connect(at, StoreOptions::default()) else { return from - 1 };
    let mut op = from;
    while !stop.load(Ordering::Relaxed) {
        match write(&store, writer, op) {
            Ok(()) => op += 1,
            Err(StoreError::Lost { .. } | StoreError::Connect { .. }) => break,
            Err(other) => panic!("{other}"),
        }
        if op.is_multiple_of(200) && store.command(&[b"BGSAVE"]).is_err() {
            break;
        }
    }
    op - 1
}

#[test]
fn a_store_that_is_killed_under_load_has_everything_it_acknowledged() {
    let kills: u64 = std::env::var("PHALANX_STORE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let sandbox = sandbox();
    let mut dice = Pcg64::seed_from_u64(kills);
    let (mut process, mut at) = serve(&sandbox);
    let store = Store::connect(&at, StoreOptions::default()).unwrap();
    for writer in 0..WRITERS {
        store.command(&[b"RPUSH", format!("{writer}/x").as_bytes(), b"1", b"2"]).unwrap();
    }
    let mut next = vec![1u64; WRITERS as usize];
    let mut acknowledged = 0;
    for kill in 0..kills {
        let stop = AtomicBool::new(false);
        let until = Instant::now() + Duration::from_micros(dice.random_range(2_000..400_000));
        let last: Vec<u64> = std::thread::scope(|scope| {
            let (at, stop, next) = (&at, &stop, &next);
            let start = |writer: u64| scope.spawn(move || load(at, writer, next[writer as usize], stop));
            let writers: Vec<_> = (0..WRITERS).map(start).collect();
            // The moment is random, so it is a time and not an event.
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            process.signal(Signal::KILL);
            process.finish();
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        (process, at) = serve(&sandbox);
        let store = Store::connect(&at, StoreOptions::default()).unwrap();
        for writer in 0..WRITERS {
            let (from, to) = (next[writer as usize], last[writer as usize]);
            check(&store, writer, from, to);
            acknowledged += to + 1 - from;
            // The values are checked; the store would grow with every round.
            for op in from..=to + 1 {
                let keys = ["s", "twin"].map(|name| format!("{writer}/{op}/{name}").into_bytes());
                store.command(&[b"DEL", &keys[0], &keys[1]]).unwrap();
            }
            store.command(&[b"DEL", format!("{writer}/list").as_bytes()]).unwrap();
            next[writer as usize] = to + 2;
        }
        // What was deleted after the last kill stays deleted.
        let size = store.command(&[b"DBSIZE"]).unwrap();
        let lists = (0..WRITERS).flat_map(|w| [format!("{w}/x"), format!("{w}/y")]);
        let there = lists.filter(|key| !elements(&store, key).is_empty()).count();
        assert_eq!(size, Reply::Integer(there as i64), "kill {kill}: a key that was deleted is there");
    }
    println!("{kills} kills, {acknowledged} acknowledged operations");
    assert!(acknowledged > kills * 10, "{acknowledged} operations in {kills} rounds");
}
