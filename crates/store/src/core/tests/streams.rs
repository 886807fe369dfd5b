//! Streams behind the protocol: words that make no sense, and rebuilding from what was recorded.

use super::super::shards::{ShardMap, ShardPlace};
use super::*;
use phalanx_types::Seed;

const SETTINGS: &str = r#"{"retention":"Free","budget":400,"producer_silence":null,"trainer_silence":null}"#;
const ONCE: &str = r#"{"mode":{"Once":{"window":4}},"seed":1,"batch":2,"partial":"Keep","passes":null}"#;
const POOL: &str = r#"{"mode":{"Reservoir":{"capacity":5,"min_samples":1,"steps":null}},"seed":1,"batch":2,"partial":"Keep","passes":null}"#;
const GROW: &str = r#"{"mode":{"Grow":{"min_samples":1,"new_samples":0}},"seed":1,"batch":2,"partial":"Keep","passes":null}"#;

/// Numbers below an end, from a seed.
struct Dice(Seed);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.derive("next");
        (self.0.0 >> 33) % end
    }
}

/// One random request of a client that plays along, more or less.
fn request(dice: &mut Dice) -> String {
    let stream = ["free", "keep", "list"][dice.below(3) as usize];
    let (client, life, number) = (dice.below(2), 1 + dice.below(2), dice.below(6));
    let (pass, steps) = (dice.below(5), dice.below(3));
    let settings = if stream == "free" { [ONCE, POOL][client as usize] } else { GROW };
    match dice.below(12) {
        0 => format!("PHALANX.STREAM PRODUCER {stream} p{client} {life} -"),
        1 | 2 => format!("PHALANX.STREAM BEGIN {stream} p{client} {life} {number} 2 16 - 0 x"),
        3 | 4 => {
            format!("AI.TENSORSET {{{stream}.p{client}.{life}.{number}}}.x INT32 2 2 VALUES 1 2 3 {number}")
        }
        5 | 6 => format!("PHALANX.STREAM COMPLETE {stream} p{client} {life} {number}"),
        7 => format!("PHALANX.STREAM READER {stream} r{client} {life} {settings} - -"),
        8 => format!("PHALANX.STREAM PASS {stream} r{client} - {pass} - 0"),
        9 => format!("PHALANX.STREAM COMMIT {stream} r{client} {life} {pass} {steps}"),
        10 => format!("RPUSH list d{number}"),
        _ => match dice.below(6) {
            0 => format!("PHALANX.STREAM CLOSE {stream} p{client} {life} {number}"),
            1 => format!("PHALANX.STREAM READERCLOSE {stream} r{client} {life}"),
            2 => format!("PHALANX.STREAM JOIN {stream} r{client} {life} t{client} 1 - 0"),
            3 => format!(
                "PHALANX.STREAM DONE {stream} r{client} {life} t{client} 1 {number} {pass} {steps} - 0"
            ),
            4 => format!("AI.TENSORSET d{number}.x INT32 2 2 VALUES 1 2 3 {number}"),
            _ => format!("PHALANX.STREAM UPLOADS {stream} {number}"),
        },
    }
}

fn datasets(f: &mut Fixture) {
    for number in 0..6 {
        f.run(&format!("AI.TENSORSET d{number}.x INT32 2 2 VALUES 1 2 3 {number}"));
        let names = Bytes::from_static(b"\x07\x01\0\0\0\0\0\0\0x");
        let words = ["HSET".into(), format!("d{number}.meta").into(), ".tensor_names".into(), names];
        let words: Vec<Bytes> = words.into_iter().chain([".COMPLETE".into(), "1".into()]).collect();
        f.store.execute(f.now, ClientId(4), &words, &mut f.out);
    }
}

fn same_streams(a: &Keyspace, b: &Keyspace) {
    assert!(a.streams.entries.keys().eq(b.streams.entries.keys()));
    for (name, entry) in &a.streams.entries {
        let other = &b.streams.entries[name];
        assert_eq!(entry.state(), other.state(), "{name:?}");
        assert_eq!(entry.fields, other.fields, "{name:?}");
        for upload in entry.state().uploads().iter() {
            assert_eq!(entry.stored_at(upload.sequence), other.stored_at(upload.sequence), "{name:?}");
        }
    }
}

#[test]
fn streams_are_rebuilt_from_changes_and_from_snapshots() {
    for seed in 0..30 {
        let mut dice = Dice(Seed(seed));
        let mut f = Fixture::new();
        let mut changes = Vec::new();
        let mut take = |f: &mut Fixture| changes.append(&mut f.out.changes);
        datasets(&mut f);
        f.out.clear();
        f.store.snapshot_changes().into_iter().for_each(|change| f.out.changes.push(change));
        take(&mut f);
        for line in [&format!("PHALANX.STREAM CREATE free {SETTINGS}"), "PHALANX.STREAM CREATE keep {}"] {
            f.run(line);
            take(&mut f);
        }
        for step in 0..400 {
            let client = 1 + dice.below(3);
            f.outcome(client, &request(&mut dice));
            take(&mut f);
            if dice.below(40) == 0 {
                f.store.disconnect(f.now, ClientId(client), Ending::Unanswered);
                f.store.connect(f.now, ClientId(client), origin("10.0.0.9"));
            }
            f.later(dice.below(50));
            f.out.clear();
            f.store.tick(f.now, &mut f.out);
            take(&mut f);
            for (name, entry) in &f.store.streams.entries {
                entry.core().unwrap().check_invariants();
                assert!(!name.is_empty(), "step {step}");
            }
        }
        let uploads: usize =
            f.store.streams.entries.values().map(|entry| entry.state().uploads().len()).sum();
        assert!(uploads > 3, "seed {seed} has {uploads} uploads");
        let mut rebuilt = Keyspace::new(f.now, Settings { record_changes: true, ..Settings::default() });
        changes.iter().for_each(|change| rebuilt.apply(change).unwrap());
        same_streams(&f.store, &rebuilt);
        assert!(rebuilt.same_data(&f.store));
        let mut copied = Keyspace::new(f.now, Settings::default());
        f.store.snapshot_changes().iter().for_each(|change| copied.apply(change).unwrap());
        same_streams(&f.store, &copied);
        // A store that was rebuilt goes on: half-written uploads are gone, the rest can be read.
        let mut out = Effects::default();
        rebuilt.tick(f.now, &mut out);
        for (name, entry) in &f.store.streams.entries {
            for upload in entry.state().uploads().iter() {
                let samples: Vec<u64> = (upload.first..upload.end()).take(1).collect();
                let before = f.store.streams.entries[name].stored_at(upload.sequence).cloned();
                assert!(before.is_some(), "{name:?} {samples:?}");
            }
        }
    }
}

#[test]
fn words_that_make_no_sense_break_no_stream() {
    let mut f = Fixture::with(Settings { max_memory: 1 << 20, record_changes: true, ..Settings::default() });
    let mut dice = Dice(Seed(3));
    let verbs = "CREATE SEAL DELETE INFO LIST WATCH PRODUCER BEGIN COMPLETE ABORT CLOSE ALIVE FIELDS READER ATTACH PASS \
                 COMMIT READERCLOSE JOIN DONE LEAVE UPLOADS GATHER NONSENSE";
    let verbs: Vec<&str> = verbs.split(' ').collect();
    let words = [
        "s",
        "t",
        "-",
        "0",
        "1",
        "2",
        "p0",
        "r0",
        "list",
        "",
        "18446744073709551615",
        "-1",
        "4294967296",
        "x",
        "meta",
        "{}",
        "null",
        "[1",
        ONCE,
        GROW,
        POOL,
        SETTINGS,
        "budget",
        "12345678",
        "\u{fffd}",
        r#"{"mode":"Static","seed":18446744073709551615,"batch":16777216,"partial":"Drop","passes":1}"#,
        r#"{"mode":{"Once":{"window":18446744073709551615}},"seed":1,"batch":1,"partial":"Keep","passes":null}"#,
        r#"{"mode":{"Reservoir":{"capacity":4294967296,"min_samples":0,"steps":1}},"seed":1,"batch":1,"partial":"Keep","passes":null}"#,
        r#"{"seed":1,"pass":18446744073709551615,"base":0,"horizon":18446744073709551615,"step":9}"#,
    ];
    for _ in 0..20_000 {
        let mut args = vec![Bytes::from_static(b"PHALANX.STREAM")];
        args.push(Bytes::from(verbs[dice.below(verbs.len() as u64) as usize].to_owned()));
        let count = dice.below(10);
        args.extend(
            (0..count).map(|_| Bytes::from(words[dice.below(words.len() as u64) as usize].to_owned())),
        );
        let client = ClientId(1 + dice.below(3));
        f.out.clear();
        f.store.execute(f.now, client, &args, &mut f.out);
        f.store.streams.waiters.remove(client);
        assert_eq!(f.store.used(), f.store.database.counted(), "{args:?}");
        if dice.below(50) == 0 {
            f.later(dice.below(2000));
            f.out.clear();
            f.store.tick(f.now, &mut f.out);
        }
    }
    f.store.streams.entries.values().for_each(|entry| entry.core().unwrap().check_invariants());
}

#[test]
fn in_a_shared_store_uploads_are_at_the_node_of_their_stream_and_half_written_ones_end() {
    let place = ShardPlace::new(2, 7).unwrap();
    let shared = |f: &mut Fixture| f.store.set_shards(ShardMap::new(place, "n2"));
    let mut f = Fixture::with(Settings { record_changes: true, ..Settings::default() });
    shared(&mut f);
    let mut changes = Vec::new();
    f.run("PHALANX.STREAM PRODUCER s sim 1 -");
    changes.append(&mut f.out.changes);
    for number in 0..20 {
        let base = f.store.upload_base(&"s".into(), &sim(), number);
        assert!(place.slots().contains(&phalanx_resp::slot(&base)), "{base:?}");
        assert!(base.starts_with(format!("{{s.sim.1.{number}").as_bytes()), "{base:?}");
        let base = std::str::from_utf8(&base).unwrap().to_owned();
        for line in [
            format!("PHALANX.STREAM BEGIN s sim 1 {number} 2 8 - 0 x"),
            format!("AI.TENSORSET {base}.x INT32 2 VALUES 1 2"),
            format!("PHALANX.STREAM COMPLETE s sim 1 {number}"),
        ] {
            // The last upload is not completed.
            if number < 19 || !line.contains("COMPLETE") {
                f.run(&line);
                changes.append(&mut f.out.changes);
            }
        }
    }
    let mut rebuilt = Fixture::new();
    shared(&mut rebuilt);
    changes.iter().for_each(|change| rebuilt.store.apply(change).unwrap());
    assert_eq!(rebuilt.store.place_without_key(), None);
    rebuilt.store.tick(rebuilt.now, &mut Effects::default());
    let keys = rebuilt.store.database.table().iter().filter(|(key, _)| key.ends_with(b".x")).count();
    assert_eq!(keys, 19);
    // What was kept by another part is noticed.
    rebuilt.store.set_shards(ShardMap::new(ShardPlace::new(3, 7).unwrap(), "n3"));
    assert_eq!(rebuilt.store.place_without_key(), ShardPlace::new(3, 7).ok());
}

fn sim() -> phalanx_streams::ProducerLife {
    let id = phalanx_types::ProducerId::new("sim").unwrap();
    phalanx_streams::ProducerLife { id, incarnation: phalanx_types::Incarnation(1) }
}
