//! The client against a real server: tensors, datasets, lists, waits, shared memory, streams.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod running;
mod shards;
mod streams;
mod views;

use phalanx_store::ServerConfig;
use phalanx_store_client::{Dataset, Interrupt, Keys, MetaValues, Store, StoreError, StoreOptions};
use phalanx_types::{ByteSize, DType, Tensor};
use running::Running;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn tensor(len: usize, seed: u8) -> Tensor {
    let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
    Tensor::new(DType::U8, vec![len as u64], data.into()).unwrap()
}

#[test]
fn tensors_of_every_type_and_size_come_back_as_they_went() {
    let server = Running::start();
    let plain = StoreOptions { no_shared_memory: true, ..StoreOptions::default() };
    let plain = Store::connect(&server.address, plain).unwrap();
    let shared = server.client();
    for (writer, reader) in [(&plain, &shared), (&shared, &plain), (&shared, &shared), (&plain, &plain)] {
        for len in [1, 1000, 40_000, 200_000, 5_000_000] {
            writer.put("x", &tensor(len, 7)).unwrap();
            assert_eq!(reader.get("x").unwrap(), tensor(len, 7), "{len}");
        }
        for dtype in DType::ALL {
            let data = vec![1; 6 * dtype.size()].into();
            let small = Tensor::new(dtype, vec![2, 3], data).unwrap();
            writer.put("typed", &small).unwrap();
            assert_eq!(reader.get("typed").unwrap(), small);
        }
    }
}

#[test]
fn a_view_stays_as_it_is_while_the_store_goes_on() {
    let server = Running::start();
    let store = server.client();
    store.put("x", &tensor(1 << 20, 1)).unwrap();
    let first = store.get("x").unwrap();
    assert!(phalanx_shared::locate(first.data()).is_some(), "it was sent");
    for seed in 2..20 {
        store.put("x", &tensor(1 << 20, seed)).unwrap();
        assert_eq!(store.get("x").unwrap(), tensor(1 << 20, seed));
        assert_eq!(first, tensor(1 << 20, 1));
    }
    store.delete("x").unwrap();
    drop(store);
    drop(server);
    assert_eq!(first, tensor(1 << 20, 1));
}

#[test]
fn memory_of_values_that_were_replaced_is_used_again() {
    let server = Running::start();
    let store = server.client();
    let mut tokens = std::collections::BTreeSet::new();
    // No other test has values of this size: all of them use the free segments of one process.
    let len = 48 << 20;
    for seed in 0..20 {
        store.put("x", &Tensor::new(DType::U8, vec![len], vec![seed; len as usize].into()).unwrap()).unwrap();
        let view = store.get("x").unwrap();
        tokens.insert(format!("{:?}", phalanx_shared::locate(view.data()).unwrap().segment.token()));
    }
    assert!(tokens.len() <= 4, "{} segments for one value", tokens.len());
}

#[test]
fn a_value_that_is_too_long_to_be_shared_goes_over_the_socket() {
    let server = Running::start();
    let store = server.client();
    let reply = store.command(&[b"PHALANX.TAKE", b"999999999999"]);
    assert!(matches!(reply, Err(StoreError::Refused { text }) if text.starts_with("TOOLONG")));
    store.put("x", &tensor(1 << 20, 1)).unwrap();
    assert!(phalanx_shared::locate(store.get("x").unwrap().data()).is_some());
    // Memory that is taken and not filled is given back.
    for _ in 0..100 {
        let Ok(phalanx_resp::Reply::Array(taken)) = store.command(&[b"PHALANX.TAKE", b"100000"]) else {
            panic!("nothing was taken");
        };
        let phalanx_resp::Reply::Integer(ticket) = taken[0] else { panic!("{taken:?}") };
        let back = store.command(&[b"PHALANX.RETURN", ticket.to_string().as_bytes()]).unwrap();
        assert_eq!(back, phalanx_resp::Reply::Integer(1));
    }
}

#[test]
fn tensors_are_deleted_copied_renamed_and_missed() {
    let server = Running::start();
    let store = server.client();
    let missing = |result: Result<(), StoreError>| matches!(result, Err(StoreError::Missing { .. }));
    assert!(missing(store.get("a").map(drop)));
    assert!(missing(store.rename("a", "b")));
    assert!(missing(store.copy("a", "b")));
    store.put("a", &tensor(10, 1)).unwrap();
    store.copy("a", "b").unwrap();
    store.rename("a", "c").unwrap();
    assert_eq!(store.get_all(&["a", "b", "c"]).unwrap(), [None, Some(tensor(10, 1)), Some(tensor(10, 1))]);
    assert!(store.delete("b").unwrap() && !store.delete("b").unwrap());
    assert!(store.exists("c").unwrap() && !store.exists("b").unwrap());
    let (small, large) = (tensor(5, 2), tensor(1 << 20, 3));
    store.put_all([("s", &small), ("l", &large), ("t", &small)]).unwrap();
    assert_eq!(
        store.get_all(&["l", "s", "t"]).unwrap(),
        [Some(large.clone()), Some(small.clone()), Some(small)]
    );
    let mut memory = vec![0; 1 << 20];
    store.get_into("l", &mut memory).unwrap();
    assert_eq!(memory, large.data()[..]);
    assert!(matches!(store.get_into("l", &mut memory[1..]), Err(StoreError::Room { .. })));
}

#[test]
fn datasets_and_lists_keep_their_order_and_metadata() {
    let server = Running::start();
    let store = server.client();
    let mut dataset = Dataset::new("d");
    dataset.add_tensor("z", tensor(1 << 20, 1));
    dataset.add_tensor("a", tensor(10, 2));
    dataset.add_metadata("names", MetaValues::Text(vec!["one".into()])).unwrap();
    dataset.add_metadata("names", MetaValues::Text(vec!["two".into()])).unwrap();
    assert!(dataset.add_metadata("names", MetaValues::I64(vec![1])).is_err());
    assert!(!store.dataset_exists("d").unwrap());
    store.put_dataset(&dataset).unwrap();
    assert!(store.dataset_exists("d").unwrap());
    assert_eq!(store.get_dataset("d").unwrap(), dataset);
    store.copy_dataset("d", "e").unwrap();
    store.rename_dataset("d", "f").unwrap();
    assert!(matches!(store.get_dataset("d"), Err(StoreError::Missing { .. })));
    assert_eq!(store.append("list", "e").unwrap(), 1);
    assert_eq!(store.append("list", "f").unwrap(), 2);
    let names = |list: &str| -> Vec<String> {
        store.list_datasets(list, 0, -1).unwrap().iter().map(|d| d.name().to_owned()).collect()
    };
    assert_eq!(names("list"), ["e", "f"]);
    store.rename_list("list", "list").unwrap();
    store.rename_list("list", "other").unwrap();
    assert!(matches!(store.rename_list("list", "x"), Err(StoreError::Missing { .. })));
    assert_eq!((names("other").len(), store.list_length("list").unwrap()), (2, 0));
    assert!(store.delete_list("other").unwrap());
}

#[test]
fn one_who_waits_is_woken_when_it_is_there() {
    let server = Running::start();
    let store = server.client();
    let began = Instant::now();
    assert!(matches!(store.wait("x", Duration::from_millis(30)), Err(StoreError::TimedOut { .. })));
    assert!(began.elapsed() >= Duration::from_millis(30));
    type Wait = fn(&Store) -> Result<(), StoreError>;
    let waits: [Wait; 3] = [
        |store| store.wait("x", PATIENCE),
        |store| store.wait_for_dataset("d", PATIENCE),
        |store| store.wait_for_length("list", 2, PATIENCE),
    ];
    let waiting = waits.map(|wait| {
        let store = store.clone();
        std::thread::spawn(move || wait(&store))
    });
    // A client that waits does not keep others of the same program from working.
    let blocked = || String::from_utf8_lossy(&info(&store)).contains("blocked_clients:3");
    while !blocked() {
        assert!(began.elapsed() < PATIENCE);
    }
    store.put("x", &tensor(1, 1)).unwrap();
    let mut dataset = Dataset::new("d");
    dataset.add_tensor("t", tensor(1, 1));
    store.put_dataset(&dataset).unwrap();
    store.append("list", "d").unwrap();
    store.append("list", "d").unwrap();
    for wait in waiting {
        wait.join().unwrap().unwrap();
    }
    assert!(began.elapsed() < PATIENCE / 2, "woken, not timed out");
}

fn info(store: &Store) -> bytes::Bytes {
    match store.command(&[b"INFO", b"clients"]).unwrap() {
        phalanx_resp::Reply::Bulk(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn prefixes_keep_programs_apart_and_let_one_read_from_another() {
    let server = Running::start();
    let all = Keys { tensors: true, datasets: true, lists: true, ..Keys::default() };
    let writer = server.client().with_keys(Keys { writes: Some("sim".into()), ..all.clone() });
    let reader = server.client().with_keys(Keys { reads: Some("sim".into()), ..all });
    writer.put("x", &tensor(3, 1)).unwrap();
    assert_eq!(reader.get("x").unwrap(), tensor(3, 1));
    assert!(server.client().key_exists("sim.x").unwrap());
    writer.put_dataset(&Dataset::new("d")).unwrap();
    writer.append("l", "d").unwrap();
    assert_eq!(reader.list_elements("l", 0, -1).unwrap(), ["sim.{d}"]);
    assert_eq!(reader.list_datasets("l", 0, -1).unwrap()[0].name(), "d");
}

#[test]
fn a_full_store_says_so_and_keeps_what_it_has() {
    let server = Running::with(ServerConfig { memory: ByteSize::mib(8), ..ServerConfig::default() });
    for no_shared_memory in [false, true] {
        let patience = Duration::from_secs(1);
        let options = StoreOptions { no_shared_memory, patience, ..StoreOptions::default() };
        let store = Store::connect(&server.address, options).unwrap();
        store.put("a", &tensor(5 << 20, 1)).unwrap();
        for len in [5 << 20, 20 << 20] {
            let value = tensor(len, 1);
            let began = Instant::now();
            let Err(StoreError::Full { text }) = store.put("b", &value) else { panic!("it is full") };
            let told = text.contains("there is no room for") && text.contains("of 8388608 bytes in memory");
            assert!(told, "{text}");
            // What can never fit is not waited for.
            let waited = began.elapsed() >= patience;
            assert_eq!(waited, len == 5 << 20, "{:?}", began.elapsed());
        }
        assert_eq!(store.get("a").unwrap(), tensor(5 << 20, 1));
        store.delete("a").unwrap();
    }
}

#[test]
fn a_client_of_a_full_store_is_woken_when_there_is_room() {
    let server = Running::with(ServerConfig { memory: ByteSize::mib(8), ..ServerConfig::default() });
    for no_shared_memory in [false, true] {
        let options = StoreOptions { no_shared_memory, ..StoreOptions::default() };
        let store = Store::connect(&server.address, options).unwrap();
        store.put("a", &tensor(5 << 20, 1)).unwrap();
        let other = server.client();
        std::thread::scope(|scope| {
            let put = scope.spawn(|| store.put("b", &tensor(5 << 20, 2)));
            // The put waits: one client is blocked.
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            loop {
                let info = format!("{:?}", other.command(&[b"INFO", b"clients"]).unwrap());
                if info.contains("blocked_clients:1") {
                    break;
                }
                assert!(std::time::Instant::now() < until && !put.is_finished(), "{info}");
            }
            other.delete("a").unwrap();
            put.join().unwrap().unwrap();
        });
        assert_eq!(store.get("b").unwrap(), tensor(5 << 20, 2));
        store.delete("b").unwrap();
    }
}

#[test]
fn a_program_ends_a_wait_for_room_and_each_handle_has_its_own_patience() {
    let server = Running::with(ServerConfig { memory: ByteSize::mib(8), ..ServerConfig::default() });
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let interrupt = Interrupt::new(move || match counted.fetch_add(1, Ordering::Relaxed) {
        3 => Err("enough".into()),
        _ => Ok(()),
    });
    let patience = Duration::from_secs(10_000);
    let options = StoreOptions { interrupt: Some(interrupt), patience, ..StoreOptions::default() };
    let store = Store::connect(&server.address, options).unwrap();
    store.put("a", &tensor(5 << 20, 1)).unwrap();
    match store.put("b", &tensor(5 << 20, 2)) {
        Err(StoreError::Interrupted { source }) => assert_eq!(source.to_string(), "enough"),
        other => panic!("{other:?}"),
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    let hasty = store.with_patience(Duration::ZERO);
    assert!(matches!(hasty.put("b", &tensor(5 << 20, 2)), Err(StoreError::Full { .. })));
    assert_eq!((hasty.patience(), store.patience()), (Duration::ZERO, patience));
    store.delete("a").unwrap();
    store.put("b", &tensor(5 << 20, 2)).unwrap();
    assert_eq!(store.get("b").unwrap(), tensor(5 << 20, 2));
}

#[test]
fn passwords_and_wrong_addresses_are_told() {
    let server = Running::with(ServerConfig { password: Some("open".into()), ..ServerConfig::default() });
    let with = |password: &str| StoreOptions { password: Some(password.into()), ..StoreOptions::default() };
    assert!(matches!(
        Store::connect(&server.address, StoreOptions::default()),
        Err(StoreError::Refused { .. })
    ));
    assert!(matches!(Store::connect(&server.address, with("shut")), Err(StoreError::Refused { .. })));
    let store = Store::connect(&server.address, with("open")).unwrap();
    store.put("x", &tensor(1 << 20, 1)).unwrap();
    assert!(matches!(Store::connect("nowhere", with("")), Err(StoreError::Address(_))));
    assert!(matches!(Store::connect("127.0.0.1:1", with("")), Err(StoreError::Connect { .. })));
}

#[test]
fn a_client_goes_on_when_the_server_is_back() {
    let first = Running::start();
    let store = first.client();
    store.put("x", &tensor(1 << 20, 1)).unwrap();
    let view = store.get("x").unwrap();
    let address = first.address.clone();
    drop(first);
    assert!(store.get("x").is_err());
    let _again = Running::at(&address);
    assert!(matches!(store.get("x"), Err(StoreError::Missing { .. })));
    store.put("x", &tensor(1 << 20, 2)).unwrap();
    assert_eq!(store.get("x").unwrap(), tensor(1 << 20, 2));
    assert_eq!(view, tensor(1 << 20, 1));
}
