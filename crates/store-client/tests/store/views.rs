//! Views of tensors that have not changed: read without a command, and never old.

use crate::running::Running;
use phalanx_resp::Reply;
use phalanx_store_client::{Store, StoreError};
use phalanx_types::{DType, Tensor};
use std::sync::atomic::{AtomicU64, Ordering};

/// Large enough to be shared.
const LEN: usize = 256 << 10;

fn tensor(value: u64) -> Tensor {
    let data: Vec<u8> = value.to_le_bytes().repeat(LEN / 8);
    Tensor::new(DType::U64, vec![LEN as u64 / 8], data.into()).unwrap()
}

/// The number that the tensor is made of, after a look at its ends.
fn value(tensor: &Tensor) -> u64 {
    let (first, last) = (&tensor.data()[..8], &tensor.data()[LEN - 8..]);
    assert_eq!(first, last, "a tensor of two values");
    u64::from_le_bytes(first.try_into().unwrap())
}

/// How many commands the server has carried out, with this one.
fn commands(store: &Store) -> u64 {
    let Reply::Bulk(info) = store.command(&[b"INFO", b"stats"]).unwrap() else { panic!("no bulk") };
    let info = String::from_utf8(info.to_vec()).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap();
    line.trim().parse().unwrap()
}

/// Reads until the client has what it needs to keep a view.
fn warm(store: &Store, name: &str) {
    (0..3).for_each(|_| drop(store.get(name).unwrap()));
}

#[test]
fn an_unchanged_tensor_is_read_without_a_command() {
    let server = Running::start();
    let (reader, other) = (server.client(), server.client());
    other.put("x", &tensor(7)).unwrap();
    warm(&reader, "x");
    let before = commands(&other);
    for _ in 0..100 {
        assert_eq!(value(&reader.get("x").unwrap()), 7);
    }
    assert_eq!(commands(&other), before + 1, "only INFO itself");
    // Not a tensor that is small, and not for a client without shared memory.
    other.put("small", &Tensor::from_f32(vec![1], &[1.0]).unwrap()).unwrap();
    warm(&reader, "small");
    let before = commands(&other);
    reader.get("small").unwrap();
    assert_eq!(commands(&other), before + 2);
}

#[test]
fn every_kind_of_change_is_seen_at_once() {
    let server = Running::start();
    let (reader, writer) = (server.client(), server.client());
    let is_gone = || matches!(reader.get("x"), Err(StoreError::Missing { .. }));
    let reset = |value| {
        writer.put("x", &tensor(value)).unwrap();
        warm(&reader, "x");
    };
    reset(1);
    writer.put("x", &tensor(2)).unwrap();
    assert_eq!(value(&reader.get("x").unwrap()), 2);
    reset(3);
    writer.delete("x").unwrap();
    assert!(is_gone());
    reset(4);
    writer.put("other", &tensor(5)).unwrap();
    writer.rename("other", "x").unwrap();
    assert_eq!(value(&reader.get("x").unwrap()), 5);
    reset(6);
    writer.put("other", &tensor(7)).unwrap();
    writer.copy("other", "x").unwrap();
    assert_eq!(value(&reader.get("x").unwrap()), 7);
    reset(8);
    writer.rename("x", "elsewhere").unwrap();
    assert!(is_gone());
    reset(9);
    writer.command(&[b"FLUSHALL"]).unwrap();
    assert!(is_gone());
    reset(10);
    writer.command(&[b"SET", b"x", b"no tensor"]).unwrap();
    assert!(matches!(reader.get("x"), Err(StoreError::Refused { .. })));
    // What the client changes itself.
    reset(11);
    reader.put("x", &tensor(12)).unwrap();
    assert_eq!(value(&reader.get("x").unwrap()), 12);
}

#[test]
fn a_tensor_that_ends_by_time_is_asked_for() {
    let server = Running::start();
    let (reader, other) = (server.client(), server.client());
    other.put("x", &tensor(1)).unwrap();
    warm(&reader, "x");
    other.command(&[b"PEXPIRE", b"x", b"300"]).unwrap();
    let before = commands(&other);
    let asked = 3;
    for _ in 0..asked {
        reader.get("x").unwrap();
    }
    assert_eq!(commands(&other), before + asked + 1);
    while reader.get("x").is_ok() {}
    other.put("x", &tensor(2)).unwrap();
    assert_eq!(value(&reader.get("x").unwrap()), 2);
}

#[test]
fn a_view_is_never_older_than_what_was_acknowledged() {
    let server = Running::start();
    let writer = server.client();
    writer.put("x", &tensor(0)).unwrap();
    let acknowledged = AtomicU64::new(0);
    let last = 500;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (reader, acknowledged) = (server.client(), &acknowledged);
            scope.spawn(move || {
                let mut unchanged = 0;
                loop {
                    let least = acknowledged.load(Ordering::SeqCst);
                    let seen = value(&reader.get("x").unwrap());
                    assert!(seen >= least, "{seen} was read after {least} was acknowledged");
                    unchanged += u64::from(seen == least);
                    if least == last {
                        break;
                    }
                }
                assert!(unchanged > 0);
            });
        }
        for n in 1..=last {
            writer.put("x", &tensor(n)).unwrap();
            acknowledged.store(n, Ordering::SeqCst);
        }
    });
}

#[test]
fn nothing_is_served_from_a_server_that_is_gone() {
    let server = Running::start();
    let (reader, address) = (server.client(), server.address.clone());
    reader.put("x", &tensor(1)).unwrap();
    warm(&reader, "x");
    let held = reader.get("x").unwrap();
    drop(server);
    assert!(matches!(reader.get("x"), Err(StoreError::Lost { .. } | StoreError::Connect { .. })));
    assert_eq!(value(&held), 1, "what the program holds stays");
    // Another server at the same address has other data.
    let next = Running::at(&address);
    next.client().put("x", &tensor(2)).unwrap();
    assert_eq!(value(&reader.get("x").unwrap()), 2);
    warm(&reader, "x");
    assert_eq!(value(&reader.get("x").unwrap()), 2);
}
