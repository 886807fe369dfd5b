//! The client against real Redis servers: one, and a cluster of three masters. `PHALANX_REQUIRE_REDIS` makes a missing
//! `redis-server` a failure; without it these tests say that they were left out.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod servers;

use phalanx_resp::{Reply, slot};
use phalanx_store_client::{Dataset, KeyKind, Keys, MetaValues, Store, StoreError, StoreOptions};
use phalanx_types::{DType, Tensor};
use servers::{Cluster, PATIENCE, Redis, is_installed};
use std::time::{Duration, Instant};

fn connect(address: &str) -> Store {
    Store::connect(address, StoreOptions::default()).unwrap()
}

fn tensor(len: usize, seed: u8) -> Tensor {
    let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
    Tensor::new(DType::U8, vec![len as u64], data.into()).unwrap()
}

/// Every call of the client, with enough names that every node of a cluster has some.
fn converse(store: &Store) {
    for dtype in DType::ALL {
        let small = Tensor::new(dtype, vec![2, 3], vec![1; 6 * dtype.size()].into()).unwrap();
        store.put(&format!("typed {dtype:?}"), &small).unwrap();
        assert_eq!(store.get(&format!("typed {dtype:?}")).unwrap(), small);
    }
    let names: Vec<String> = (0..30).map(|number| format!("t{number}")).collect();
    let tensors: Vec<Tensor> =
        (0..30).map(|number| tensor(10_000 * (1 + number % 12), number as u8)).collect();
    store.put_all(names.iter().map(String::as_str).zip(&tensors)).unwrap();
    let asked: Vec<&str> = names.iter().map(String::as_str).chain(["missing"]).collect();
    let expected: Vec<_> = tensors.iter().cloned().map(Some).chain([None]).collect();
    assert_eq!(store.get_all(&asked).unwrap(), expected);
    let mut memory = vec![0; 10_000];
    store.get_into("t0", &mut memory).unwrap();
    assert_eq!(memory, tensors[0].data()[..]);
    assert_eq!(store.keys_like("t*").unwrap().len(), 30 + DType::ALL.len());
    assert_eq!(store.kind("t3").unwrap(), KeyKind::Tensor);

    for (number, from) in names.iter().take(6).enumerate() {
        let (copied, renamed) = (format!("copy{number}"), format!("renamed{number}"));
        store.copy(from, &copied).unwrap();
        store.rename(from, &renamed).unwrap();
        assert!(!store.exists(from).unwrap() && store.exists(&copied).unwrap());
        assert_eq!(store.get(&renamed).unwrap(), store.get(&copied).unwrap());
        assert!(store.delete(&copied).unwrap() && !store.delete(&copied).unwrap());
        assert!(matches!(store.rename(from, "x"), Err(StoreError::Missing { .. })));
    }

    for number in 0..8 {
        let mut dataset = Dataset::new(format!("d{number}"));
        dataset.add_tensor("z", tensor(200_000, number));
        dataset.add_tensor("a", tensor(10, number));
        dataset.add_metadata("number", MetaValues::I64(vec![number.into()])).unwrap();
        store.put_dataset(&dataset).unwrap();
        assert_eq!(store.get_dataset(dataset.name()).unwrap(), dataset);
        assert_eq!(store.append("steps", dataset.name()).unwrap(), u64::from(number) + 1);
    }
    let numbers: Vec<_> = store
        .list_datasets("steps", 0, -1)
        .unwrap()
        .iter()
        .map(Dataset::metadata)
        .map(|all| all["number"].clone())
        .collect();
    assert_eq!(numbers, (0..8).map(|number| MetaValues::I64(vec![number])).collect::<Vec<_>>());
    store.copy_dataset("d0", "e").unwrap();
    store.rename_dataset("d1", "f").unwrap();
    assert!(store.dataset_exists("e").unwrap() && !store.dataset_exists("d1").unwrap());
    assert!(store.delete_dataset("f").unwrap() && !store.delete_dataset("f").unwrap());
    assert_eq!(store.keys_like("*{f}*").unwrap().len(), 0);
    store.copy_list("steps", "again").unwrap();
    store.rename_list("again", "other").unwrap();
    assert_eq!((store.list_length("other").unwrap(), store.list_length("again").unwrap()), (8, 0));
    assert!(matches!(store.rename_list("again", "x"), Err(StoreError::Missing { .. })));
    assert!(store.delete_list("other").unwrap());

    let prefixed = store.with_keys(Keys {
        writes: Some("sim".into()),
        reads: Some("sim".into()),
        tensors: true,
        ..Keys::default()
    });
    prefixed.put("x", &tensor(3, 1)).unwrap();
    assert!(prefixed.exists("x").unwrap() && store.key_exists("sim.x").unwrap());
}

/// Waits of every kind end when what they wait for is there.
fn wait_for_others(store: &Store) {
    assert!(matches!(store.wait("late", Duration::from_millis(20)), Err(StoreError::TimedOut { .. })));
    type Wait = fn(&Store) -> Result<(), StoreError>;
    let waits: [Wait; 3] = [
        |store| store.wait("late", PATIENCE),
        |store| store.wait_for_dataset("later", PATIENCE),
        |store| store.wait_for_length("latest", 2, PATIENCE),
    ];
    let waiting = waits.map(|wait| {
        let store = store.clone();
        std::thread::spawn(move || wait(&store))
    });
    store.put("late", &tensor(1, 1)).unwrap();
    store.put_dataset(&Dataset::new("later")).unwrap();
    store.append("latest", "later").unwrap();
    store.append("latest", "later").unwrap();
    waiting.into_iter().for_each(|wait| wait.join().unwrap().unwrap());
}

#[test]
fn one_redis_server_carries_every_call_and_comes_back() {
    if !is_installed() {
        return;
    }
    let mut redis = Redis::start(&[]);
    let store = connect(&format!("redis://{}", redis.address()));
    converse(&store);
    wait_for_others(&store);
    redis.kill();
    assert!(matches!(store.get("t20"), Err(StoreError::Lost { .. } | StoreError::Connect { .. })));
    redis.restart();
    // Nothing was saved, and the client is connected again without being told.
    assert!(matches!(store.get("t20"), Err(StoreError::Missing { .. })));
    assert_eq!(store.append("steps", "d").unwrap(), 1);
}

#[test]
fn a_cluster_of_three_masters_carries_every_call_by_its_address_alone() {
    if !is_installed() {
        return;
    }
    let cluster = Cluster::start(0);
    let store = connect(&format!("redis+cluster://{}", cluster.addresses().join(",")));
    converse(&store);
    wait_for_others(&store);
    let sizes: Vec<i64> = store
        .command_everywhere(&[b"DBSIZE"])
        .unwrap()
        .into_iter()
        .map(|(_, reply)| if let Reply::Integer(n) = reply { n } else { panic!("{reply:?}") })
        .collect();
    assert!(sizes.len() == 3 && sizes.iter().all(|n| *n > 5), "{sizes:?}");
    // One address of a node is enough, as launchers give it.
    let other = connect(&cluster.addresses()[1]);
    assert_eq!(other.get("t20").unwrap(), store.get("t20").unwrap());
    other.put_all([("a", &tensor(5, 1)), ("b", &tensor(5, 2)), ("c", &tensor(5, 3))]).unwrap();
    assert_eq!(store.get_all(&["c", "a"]).unwrap(), [Some(tensor(5, 3)), Some(tensor(5, 1))]);
}

#[test]
fn keys_are_found_while_and_after_their_slot_moves() {
    if !is_installed() {
        return;
    }
    let cluster = Cluster::start(0);
    let store = connect(&cluster.addresses().join(","));
    // Two keys of one slot; only one of them moves at first.
    let (key, other) = ("{tag}one", "{tag}two");
    store.put(key, &tensor(100, 1)).unwrap();
    store.put(other, &tensor(100, 2)).unwrap();
    let slot = slot(key.as_bytes());
    let from = cluster.owner_of(slot);
    let to = (from + 1) % 3;
    cluster.begin_to_move(slot, from, to);
    cluster.migrate(key, from, to);
    // The old owner says ASK for what has moved, and still has the rest.
    assert_eq!(store.get_all(&[key, other]).unwrap(), [Some(tensor(100, 1)), Some(tensor(100, 2))]);
    store.put(key, &tensor(100, 3)).unwrap();
    store.put("{tag}new", &tensor(100, 4)).unwrap();
    cluster.migrate(other, from, to);
    cluster.end_to_move(slot, to);
    // Now it says MOVED.
    let keys = [key, other, "{tag}new"];
    assert_eq!(store.get_all(&keys).unwrap(), [3, 2, 4].map(|seed| Some(tensor(100, seed))));
    assert_eq!(connect(&cluster.addresses()[from]).get(key).unwrap(), tensor(100, 3));
}

#[test]
fn a_killed_master_without_a_replica_is_told_at_once() {
    if !is_installed() {
        return;
    }
    let mut cluster = Cluster::start(0);
    let store = connect(&cluster.addresses().join(","));
    let names: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    names.iter().for_each(|name| store.put(name, &tensor(10, 1)).unwrap());
    let victim = cluster.owner_of(slot(b"k0"));
    cluster.kill(victim);
    let began = Instant::now();
    let lost = |error: &StoreError| {
        matches!(error, StoreError::Lost { .. } | StoreError::Connect { .. } | StoreError::Down { .. })
    };
    for name in names.iter().filter(|name| cluster.owner_of(slot(name.as_bytes())) == victim) {
        let error = store.get(name).unwrap_err();
        assert!(lost(&error), "{error:?}");
        let error = store.put(name, &tensor(10, 2)).unwrap_err();
        assert!(lost(&error) && error.class() == phalanx_types::Class::Retry, "{error:?}");
    }
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
    cluster.restart(victim);
    // The cluster is whole again, but for what that node held in memory.
    store.put("k0", &tensor(10, 3)).unwrap();
    assert_eq!(store.get("k0").unwrap(), tensor(10, 3));
}

#[test]
fn a_replica_takes_over_from_a_killed_master_and_the_client_goes_on() {
    if !is_installed() {
        return;
    }
    let mut cluster = Cluster::start(1);
    let store = connect(&cluster.addresses()[1]);
    let names: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    names.iter().for_each(|name| store.put(name, &tensor(1000, 1)).unwrap());
    cluster.wait_for_replica(0);
    cluster.kill(0);
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = store.get_all(&asked).unwrap();
    assert!(found.iter().all(|found| found.as_ref() == Some(&tensor(1000, 1))));
    let small = tensor(5, 2);
    store.put_all(asked.iter().map(|name| (*name, &small))).unwrap();
    assert_eq!(store.get("k7").unwrap(), small);
    assert_eq!(store.append("list", "d").unwrap(), 1);
}
