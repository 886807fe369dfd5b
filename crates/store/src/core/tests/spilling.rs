//! Values that leave memory, and clients that wait for room.

use super::*;

const LARGE: usize = 100_000;

fn fixture(max_memory: u64) -> Fixture {
    Fixture::with(Settings { spill: true, max_memory, ..Settings::default() })
}

fn large(n: u8) -> String {
    char::from(b'a' + n).to_string().repeat(LARGE)
}

/// Takes all candidates out of memory; gives their keys.
fn spill_all(f: &mut Fixture) -> Vec<String> {
    let candidates = f.store.spill_candidates(0, u64::MAX);
    for candidate in &candidates {
        let away = candidate.parts.iter().map(|part| part.len() as u64).sum();
        let elsewhere = |part: &Bytes| Some(Bytes::copy_from_slice(part));
        assert!(f.store.on_spilled(candidate, &elsewhere, away, true).is_some());
    }
    candidates.iter().map(|candidate| String::from_utf8_lossy(&candidate.key).into_owned()).collect()
}

#[test]
fn the_values_that_were_written_longest_ago_leave_first_and_read_the_same() {
    let mut f = fixture(0);
    f.run(&format!("SET a {}", large(0)));
    f.run(&format!("HSET h small 1 large {}", large(1)));
    f.run(&format!("RPUSH l x {} y", large(2)));
    f.run("SET small 1");
    f.run(&format!("SET a {}", large(3)));
    let used = f.store.used();
    assert_eq!(f.store.resident(), used);
    let first = f.store.spill_candidates(0, 1);
    assert_eq!(first.iter().map(|c| &c.key[..]).collect::<Vec<_>>(), [b"h"]);
    assert_eq!(spill_all(&mut f), ["h", "l", "a"]);
    assert_eq!((f.store.used(), f.store.resident()), (used, used - 3 * LARGE as u64));
    assert!(f.store.spill_candidates(0, u64::MAX).is_empty());
    f.check(&[
        ("GET a", &format!("\"{}\"", large(3))),
        ("HGET h large", &format!("\"{}\"", large(1))),
        ("HGET h small", "\"1\""),
        ("LINDEX l 1", &format!("\"{}\"", large(2))),
    ]);
}

#[test]
fn what_is_changed_counts_as_in_memory_again() {
    let mut f = fixture(0);
    for key in ["a", "b", "c"] {
        f.run(&format!("SET {key} {}", large(0)));
    }
    f.run(&format!("HSET h large {}", large(1)));
    spill_all(&mut f);
    let away = |f: &Fixture| f.store.used() - f.store.resident();
    assert_eq!(away(&f), 4 * LARGE as u64);
    f.run("SET a short");
    assert_eq!(away(&f), 3 * LARGE as u64);
    f.run("HSET h small 1");
    assert_eq!(away(&f), 2 * LARGE as u64);
    f.run("RENAME b d");
    assert_eq!(away(&f), LARGE as u64);
    assert_eq!(spill_all(&mut f), ["h", "d"]);
    f.run("DEL c");
    assert_eq!(away(&f), 2 * LARGE as u64);
    f.run("FLUSHALL");
    assert_eq!((f.store.used(), f.store.resident()), (0, 0));
}

#[test]
fn a_value_that_was_written_meanwhile_stays_as_it_is() {
    let mut f = fixture(0);
    f.run(&format!("SET a {}", large(0)));
    let candidates = f.store.spill_candidates(0, u64::MAX);
    f.run(&format!("SET a {}", large(1)));
    let old = Bytes::from(large(0));
    let spilled = f.store.on_spilled(&candidates[0], &|_| Some(old.clone()), LARGE as u64, true);
    assert_eq!(spilled, None);
    assert_eq!(f.store.resident(), f.store.used());
    f.check(&[("GET a", &format!("\"{}\"", large(1)))]);
}

#[test]
fn clients_wait_for_room_in_their_order_and_are_told_what_holds_it() {
    let mut f = fixture(250_000);
    f.run(&format!("SET a {}", large(0)));
    f.run(&format!("SET b {}", large(1)));
    f.check(&[("PHALANX.ROOM 1000 50", ":1")]);
    assert_eq!(f.outcome(1, "PHALANX.ROOM 120000 50"), Outcome::Blocked);
    assert_eq!(f.outcome(2, "PHALANX.ROOM 60000 1000"), Outcome::Blocked);
    assert_eq!(f.outcome(3, "PHALANX.ROOM 60000 1000"), Outcome::Blocked);
    f.run_as(4, "SET c 1");
    assert_eq!(f.messages(), [], "there is room for none, or the first waits longest");
    f.later(60);
    f.out.clear();
    f.store.tick(f.now, &mut f.out);
    let [(1, text)] = &f.messages()[..] else { panic!("{:?}", f.messages()) };
    assert!(text.starts_with("!OOM there is no room for 120000 bytes: 3 keys hold 200"), "{text}");
    assert!(text.contains("of 250000 bytes in memory, 0 arrive, 0 are on disk"), "{text}");
    // A value leaves memory: both fit now.
    let candidates = f.store.spill_candidates(0, 1);
    f.store.on_spilled(&candidates[0], &|_| None, LARGE as u64, true);
    f.store.set_arriving(50_000);
    f.out.clear();
    f.store.serve_room(&mut f.out);
    assert_eq!(
        f.messages(),
        [(2, ":1".to_owned())],
        "what arrives takes room, and so does who was told first"
    );
    f.store.set_arriving(0);
    f.store.serve_room(&mut f.out);
    assert_eq!(f.messages().last(), Some(&(3, ":1".to_owned())));
    // What can never fit is not waited for.
    assert!(shown(&f.run("PHALANX.ROOM 250001 1000")).starts_with("!OOM there is no room"));
    f.check(&[("PHALANX.ROOM x 1", "!ERR value is not an integer or out of range")]);
}
