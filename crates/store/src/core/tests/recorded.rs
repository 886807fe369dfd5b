//! Changes as bytes, and taking changes back.

use super::*;
use phalanx_types::{DType, Tensor, TensorError};
use std::sync::Arc;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tensor() -> Value {
    Value::Tensor(Arc::new(Tensor::new(DType::I16, vec![2, 1], Bytes::from_static(b"abcd")).unwrap()))
}

fn every_change() -> Vec<(Change, &'static str)> {
    let key = Bytes::from_static(b"k");
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    let at = Some(Time(300));
    let model = Model {
        backend: "TF",
        device: bytes("CPU"),
        tag: bytes("t"),
        batch_size: 1,
        min_batch_size: 2,
        min_batch_timeout: 3,
        inputs: vec![bytes("i")],
        outputs: vec![bytes("o")],
        blob: bytes("mm"),
    };
    let script =
        Script { device: bytes("C"), tag: bytes(""), entry_points: vec![bytes("f")], source: bytes("s") };
    let put = |value| Change::Put { key: key.clone(), value, expires: None };
    vec![
        (
            Change::Put { key: key.clone(), value: Value::String(bytes("v")), expires: at },
            "01026b01ac02010276",
        ),
        (put(tensor()), "01026b0004050202010861626364"),
        (put(Value::Model(Arc::new(model))), "01026b000502064350550274010203010269010 26f046d6d"),
        (put(Value::Script(Arc::new(script))), "01026b000602430001026602 73"),
        (Change::Delete { key: key.clone() }, "02026b"),
        (Change::Expire { key: key.clone(), at }, "03026b01ac02"),
        (
            Change::Push { key: key.clone(), side: Side::Right, items: [bytes("a"), bytes("")].into() },
            "04026b0102026100",
        ),
        (Change::Pop { key: key.clone(), side: Side::Left, count: 128 }, "05026b008001"),
        (Change::SetFields { key: key.clone(), fields: vec![(bytes("f"), bytes("v"))] }, "06026b0102660276"),
        (Change::DeleteFields { key, fields: vec![bytes("f")] }, "07026b010266"),
        (Change::Clear, "08"),
        (Change::Stream { name: bytes("s"), record: bytes("r") }, "0902730272"),
    ]
}

#[test]
fn changes_have_the_bytes_that_journals_have() {
    for (change, golden) in every_change() {
        let encoded = encode_changes([&change]);
        assert_eq!(hex(&encoded.body), golden.replace(' ', ""), "{change:?}");
        let decoded = decode_changes(ENCODED_KIND, &encoded.body, &encoded.values, 3);
        assert_eq!(decoded.as_deref(), Ok(&[change][..]));
    }
}

#[test]
fn large_values_are_stored_apart() {
    let large = Bytes::from(vec![7; STORED_APART]);
    let small = large.slice(1..);
    let items = [large.clone(), small.clone(), large.clone()];
    let change = Change::Push { key: "k".into(), side: Side::Left, items: items.into() };
    let encoded = encode_changes([&change]);
    assert_eq!(encoded.values, [large.clone(), large]);
    assert!(encoded.body.len() < small.len() + 20);
    assert_eq!(decode_changes(ENCODED_KIND, &encoded.body, &encoded.values, 3).as_deref(), Ok(&[change][..]));
    let missing = decode_changes(ENCODED_KIND, &encoded.body, &encoded.values[..1], 3);
    assert_eq!(missing, Err(ChangeError::NoValue { index: 1, count: 1 }));
}

#[test]
fn bytes_that_are_no_changes_are_typed_errors() {
    for (change, _) in every_change() {
        let encoded = encode_changes([&change]);
        for len in 1..encoded.body.len() {
            let cut = decode_changes(ENCODED_KIND, &encoded.body[..len], &[], 3);
            assert_eq!(cut, Err(ChangeError::Short), "{change:?} {len}");
        }
    }
    let decode = |bytes: &[u8]| decode_changes(ENCODED_KIND, bytes, &[], 3).unwrap_err();
    assert_eq!(decode_changes(9, b"", &[], 3), Err(ChangeError::Kind { kind: 9 }));
    assert_eq!(decode(&[99]), ChangeError::Tag { what: "change", tag: 99 });
    assert_eq!(decode(&[1, 2, b'k', 0, 77]), ChangeError::Tag { what: "value", tag: 77 });
    assert_eq!(decode(&[1, 2, b'k', 5]), ChangeError::Tag { what: "form of times", tag: 5 });
    assert_eq!(decode(&[4, 2, b'k', 2]), ChangeError::Tag { what: "end of lists", tag: 2 });
    assert_eq!(decode(&[1, 2, b'k', 0, 4, 13]), ChangeError::Tag { what: "type of tensors", tag: 13 });
    assert_eq!(decode(&[1, 2, b'k', 0, 5, 4]), ChangeError::Tag { what: "backend of models", tag: 4 });
    // A count of 2^63 elements reserves nothing.
    let many = [4, 2, b'k', 0, 255, 255, 255, 255, 255, 255, 255, 255, 127];
    assert_eq!(decode(&many), ChangeError::Short);
    assert_eq!(decode(&[2, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2]), ChangeError::Number);
    let short = TensorError::Length { dtype: DType::U8, shape: vec![3], needed: 3, got: 2 };
    assert_eq!(decode(&[1, 2, b'k', 0, 4, 8, 1, 3, 4, 1, 2]), ChangeError::Tensor(short));
}

/// Everything that changes keys, in all the ways that lists and hashes can begin and end.
const WRITES: [&str; 26] = [
    "SET a 1",
    "SET a 2 EX 100",
    "APPEND a xyz",
    "INCRBY n 5",
    "DEL a",
    "RPUSH l 1 2 3 4",
    "LPUSH l 0 x",
    "LPOP l 2",
    "RPOP l 2",
    "RPOP l 9",
    "RPUSH l2 p q r",
    "LMOVE l2 l RIGHT LEFT",
    "LSET l2 0 z",
    "LTRIM l2 1 1",
    "HSET h f 1 g 2",
    "HSET h f 3 i 4",
    "HDEL h f g",
    "HDEL h i",
    "HSET h2 only 1",
    "EXPIRE h2 500",
    "RENAME h2 h3",
    "COPY h3 h4",
    "PERSIST h3",
    "FLUSHALL",
    "MSET m1 a m2 b",
    "GETDEL m1",
];

#[test]
fn a_write_that_is_taken_back_leaves_no_trace() {
    let mut f = Fixture::new();
    for line in WRITES {
        let mut before = Fixture::new();
        f.store.snapshot_changes().iter().for_each(|change| before.store.apply(change).unwrap());
        f.run(line);
        let (changes, undo) = (std::mem::take(&mut f.out.changes), std::mem::take(&mut f.out.undo));
        assert!(!changes.is_empty() && changes.iter().all(Change::has_undo), "{line}");
        f.store.undo(undo);
        assert!(f.store.same_data(&before.store), "{line} was not taken back");
        assert_eq!(f.store.used(), f.store.database.counted(), "{line}");
        assert_eq!(f.store.next_deadline(), before.store.next_deadline(), "{line}");
        changes.iter().for_each(|change| f.store.apply(change).unwrap());
    }
}

#[test]
fn several_writes_are_taken_back_from_the_last_to_the_first() {
    let mut f = Fixture::new();
    f.run("RPUSH l a b c");
    f.run("SET s 1");
    let mut before = Fixture::new();
    f.store.snapshot_changes().iter().for_each(|change| before.store.apply(change).unwrap());
    let mut undo = Vec::new();
    for line in WRITES {
        f.run(line);
        undo.append(&mut f.out.undo);
    }
    f.store.undo(undo);
    assert!(f.store.same_data(&before.store));
    assert_eq!(f.store.used(), f.store.database.counted());
}

#[test]
fn a_snapshot_rebuilds_everything_through_its_bytes() {
    let mut f = Fixture::new();
    WRITES.into_iter().for_each(|line| drop(f.run(line)));
    f.run("RPUSH l a b c");
    f.run("HSET h f 1 g 2");
    f.run("SET e 1 PX 500");
    f.run("AI.TENSORSET t INT8 2 VALUES 1 2");
    let mut copy = Fixture::new();
    for change in f.store.snapshot_changes() {
        let encoded = encode_changes([&change]);
        for change in decode_changes(ENCODED_KIND, &encoded.body, &encoded.values, 3).unwrap() {
            copy.store.apply(&change).unwrap();
        }
    }
    assert!(f.store.same_data(&copy.store));
    assert_eq!(copy.store.next_deadline(), f.store.next_deadline());
}
