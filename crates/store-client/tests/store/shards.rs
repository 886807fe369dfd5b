//! Streams of a store that two servers share.

use super::streams::{GROW, PATIENCE, options, pass, put, read, run, samples, sealed};
use phalanx_store::{PeerAccess, Server, ServerConfig, ShardConfig, ShardMember, ShardPlace};
use phalanx_store_client::{
    Dataset, PassAnswer, ReadOptions, Store, StoreError, StoreOptions, StreamError, StreamReader,
    TrainerAnswer,
};
use phalanx_streams::{Assignment, Cursor, ReadMode, ReaderSettings, StreamWait};
use phalanx_types::{ByteSize, DType, Incarnation, ReaderId, Seed, Tensor, TrainerId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;
use tempfile::TempDir;

const SHARDS: u16 = 2;

/// Servers that are one store.
struct SharedStore {
    runtime: tokio::runtime::Runtime,
    servers: Vec<Option<Server>>,
    ports: Vec<u16>,
    directory: TempDir,
}

fn place(index: u16) -> ShardPlace {
    ShardPlace::new(index, SHARDS).unwrap()
}

fn config(index: u16, port: u16, directory: &Path) -> ServerConfig {
    let access = PeerAccess::default();
    ServerConfig {
        bind: Some(format!("127.0.0.1:{port}").parse().unwrap()),
        persist: Some(directory.join(index.to_string())),
        shard: Some(ShardConfig { place: place(index), node: format!("n{index}"), access }),
        ..ServerConfig::default()
    }
}

impl SharedStore {
    fn start() -> Self {
        Self::start_as(|_index, config| config)
    }

    fn start_as(changed: impl Fn(u16, ServerConfig) -> ServerConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let start = |index| {
            let config = changed(index, config(index, 0, directory.path()));
            runtime.block_on(Server::start(config)).unwrap()
        };
        let servers: Vec<_> = (1..=SHARDS).map(|index| Some(start(index))).collect();
        let port = |server: &Option<Server>| server.as_ref().unwrap().address().unwrap().port();
        let ports = servers.iter().map(port).collect();
        let shared = Self { runtime, servers, ports, directory };
        shared.introduce();
        shared
    }

    /// Tells every server of those that run.
    fn introduce(&self) {
        let running = || self.servers.iter().zip(&self.ports).zip(1u16..);
        let members: Vec<ShardMember> = running()
            .filter(|((server, _), _)| server.is_some())
            .map(|((_, port), index)| ShardMember {
                since: 0,
                node: format!("n{index}"),
                host: "127.0.0.1".to_owned(),
                port: *port,
                is_same_host: true,
                place: place(index),
            })
            .collect();
        self.servers.iter().flatten().for_each(|server| server.shard_members().set(members.clone()));
    }

    fn end(&mut self, index: u16) {
        let server = self.servers[usize::from(index) - 1].take().unwrap();
        self.runtime.block_on(server.shutdown());
        self.introduce();
    }

    fn start_again(&mut self, index: u16) {
        let at = usize::from(index) - 1;
        let config = config(index, self.ports[at], self.directory.path());
        self.servers[at] = Some(self.runtime.block_on(Server::start(config)).unwrap());
        self.introduce();
    }

    /// A client that was given the address of one of the servers.
    fn client(&self, index: u16) -> Store {
        self.connect(index, StoreOptions::default())
    }

    fn connect(&self, index: u16, options: StoreOptions) -> Store {
        let port = self.ports[usize::from(index) - 1];
        Store::connect(&format!("127.0.0.1:{port}"), options).unwrap()
    }
}

/// A name of a stream that a server has.
fn stream_of(index: u16) -> String {
    let is_there = |name: &String| place(index).slots().contains(&phalanx_resp::slot(name.as_bytes()));
    (0..).map(|number| format!("stream{number}")).find(is_there).unwrap()
}

#[test]
fn a_stream_lives_at_the_server_of_its_name_and_clients_of_every_server_use_it() {
    let shared = SharedStore::start();
    let mut watch = shared.client(1).watch_streams(None).unwrap();
    assert_eq!(watch.next(PATIENCE).unwrap(), Some(Vec::new()));
    for index in 1..=SHARDS {
        let stream = stream_of(index);
        for (from, name) in [(1, "sim-1"), (2, "sim-2")] {
            let mut producer = shared.client(from).produce(&stream, options(name)).unwrap();
            for upload in 0..20 {
                put(&mut producer, u64::from(from) * 1000 + upload * 5, 5);
            }
            producer.close().unwrap();
        }
        let remote = StoreOptions { no_shared_memory: true, ..StoreOptions::default() };
        for store in [shared.client(1), shared.client(2), shared.connect(3 - index, remote)] {
            let reader = run(&store, &stream, GROW, 10);
            let cursor = sealed(pass(&reader, 0));
            let samples = reader.samples();
            let mut seen: Vec<f32> = Vec::new();
            for step in 0..samples.order(&cursor).steps() {
                seen.extend(read(&reader, &samples.batch(&cursor, step).unwrap()));
            }
            seen.sort_by(f32::total_cmp);
            let expected: Vec<f32> = (1000u16..1100).chain(2000..2100).map(f32::from).collect();
            assert_eq!(seen, expected, "{stream}");
        }
        let info = shared.client(3 - index).stream_info(&stream).unwrap();
        assert_eq!((info.stream.samples, info.stream.producers.len()), (200, 2));
    }
    let mut names = vec![stream_of(1), stream_of(2)];
    names.sort();
    assert_eq!(shared.client(2).streams().unwrap(), names);
    let shown = loop {
        let shown = watch.next(PATIENCE).unwrap().unwrap();
        if shown.iter().filter(|info| info.stream.samples == 200).count() == 2 {
            break shown;
        }
    };
    assert_eq!(shown.iter().map(|info| info.name.clone()).collect::<Vec<_>>(), names);
    assert!(shared.client(1).delete_stream(&names[1]).unwrap());
    while watch.next(PATIENCE).unwrap().is_none_or(|shown| shown.len() != 1) {}
}

#[test]
fn trainers_at_different_servers_share_the_steps_of_a_pass() {
    let shared = SharedStore::start();
    let stream = stream_of(2);
    let mut producer = shared.client(1).produce(&stream, options("sim")).unwrap();
    put(&mut producer, 0, 100);
    producer.close().unwrap();
    let settings = ReaderSettings { passes: Some(1), ..ReaderSettings::new(GROW, Seed(2), 10) };
    let options = ReadOptions::new(ReaderId::new("run").unwrap(), settings);
    let reader = shared.client(1).read_stream(&stream, options).unwrap();
    let used: Mutex<BTreeMap<(u64, u32), Vec<f32>>> = Mutex::default();
    let train = |index: u16| {
        let id = ReaderId::new("run").unwrap();
        let attached = shared.client(index).attach_stream(&stream, &id, PATIENCE).unwrap();
        let id = TrainerId::new(format!("t{index}")).unwrap();
        let mut trainer = attached.trainer(id, Incarnation(1)).unwrap();
        let mut done = false;
        loop {
            match trainer.next(done, PATIENCE).unwrap() {
                TrainerAnswer::Waiting(_) => {}
                TrainerAnswer::Finished(_) => return,
                TrainerAnswer::Share(share) => {
                    let Assignment { cursor, rank, ranks, .. } = share;
                    let mine = attached.samples().share(&cursor, cursor.step, rank, ranks).unwrap();
                    let values = read(&attached, &mine);
                    let mut used = used.lock().unwrap();
                    // A step that is repeated with another group replaces what was done before.
                    used.retain(|(step, other), _| *step != cursor.step || *other < ranks);
                    used.insert((cursor.step, rank), values);
                    done = true;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| train(1));
        scope.spawn(|| train(2));
    });
    let mut values: Vec<f32> = used.into_inner().unwrap().into_values().flatten().collect();
    values.sort_by(f32::total_cmp);
    assert_eq!(values, (0u16..100).map(f32::from).collect::<Vec<_>>());
    reader.close().unwrap();
}

#[test]
fn producers_and_runs_wait_for_the_server_of_their_stream_and_go_on() {
    let mut shared = SharedStore::start();
    let stream = stream_of(2);
    let store = shared.client(1);
    let mut producer = store.produce(&stream, options("sim")).unwrap();
    put(&mut producer, 0, 10);
    let reader = run(&store, &stream, GROW, 5);
    let before = sealed(pass(&reader, 0));
    shared.end(2);
    let down = store.stream_info(&stream).unwrap_err();
    assert!(
        matches!(&down, StreamError::Store(StoreError::Down { text }) if text.contains("part 2/2")),
        "{down}"
    );
    let upload = std::thread::spawn(move || {
        put(&mut producer, 10, 10);
        producer.close().unwrap();
    });
    shared.start_again(2);
    upload.join().unwrap();
    let next = sealed(pass(&reader, 1));
    assert_eq!((before.horizon, next.horizon), (10, 20));
    let samples = reader.samples();
    let mut seen = read(&reader, &samples.at_positions(&next, &samples.order(&next), 0..20).unwrap());
    seen.sort_by(f32::total_cmp);
    assert_eq!(seen, (0u16..20).map(f32::from).collect::<Vec<_>>());
    assert_eq!(store.stream_info(&stream).unwrap().stream.producers[0].next_upload, 2);
}

/// A dataset with five samples, which begin with this number.
fn dataset(first: u64) -> Dataset {
    let mut dataset = Dataset::new(format!("d{first}"));
    let (x, y) = samples(first, 5);
    dataset.add_tensor("x", x);
    dataset.add_tensor("y", y);
    dataset
}

fn has(index: u16, dataset: u64) -> bool {
    place(index).slots().contains(&phalanx_resp::slot(format!("d{dataset}").as_bytes()))
}

/// Reads all samples of a pass, in order of their values.
fn all_of(reader: &StreamReader, cursor: &Cursor) -> Vec<f32> {
    let samples = reader.samples();
    let order = samples.order(cursor);
    let mut seen: Vec<f32> =
        (0..order.steps()).flat_map(|step| read(reader, &samples.batch(cursor, step).unwrap())).collect();
    seen.sort_by(f32::total_cmp);
    seen
}

#[test]
fn datasets_of_a_list_count_at_whichever_server_they_are() {
    let shared = SharedStore::start();
    let (store, stream) = (shared.client(1), stream_of(1));
    let firsts = || (0..20u64).map(|number| number * 5);
    for first in firsts() {
        store.put_dataset(&dataset(first)).unwrap();
        store.append(&stream, &format!("d{first}")).unwrap();
    }
    assert!((1..20).contains(&firsts().filter(|first| has(2, *first)).count()));
    let remote = StoreOptions { no_shared_memory: true, ..StoreOptions::default() };
    for store in [shared.client(1), shared.client(2), shared.connect(2, remote)] {
        let mode = ReadMode::Grow { min_samples: 100, new_samples: 0 };
        let reader = run(&store, &stream, mode, 7);
        let cursor = sealed(pass(&reader, 0));
        assert_eq!(all_of(&reader, &cursor), (0u16..100).map(f32::from).collect::<Vec<_>>());
        // Samples are numbered in the order of the list.
        assert_eq!(read(&reader, &[3, 47, 99]), [3.0, 47.0, 99.0]);
    }
    let info = store.stream_info(&stream).unwrap();
    assert_eq!((info.stream.uploads, info.pending_datasets, info.list_wait), (20, 0, None));
    assert!(!info.reports.iter().any(|(_, text)| text.contains("left out")), "{:?}", info.reports);
    // One that does not fit is left out, wherever it is.
    for index in 1..=SHARDS {
        let wrong = (1000..).find(|number| has(index, *number)).unwrap();
        let mut other = Dataset::new(format!("d{wrong}"));
        other.add_tensor("x", Tensor::from_f32(vec![2], &[0.0, 1.0]).unwrap());
        store.put_dataset(&other).unwrap();
        store.append(&stream, &format!("d{wrong}")).unwrap();
    }
    let reports = loop {
        let info = store.stream_info(&stream).unwrap();
        if info.pending_datasets == 0 {
            assert_eq!(info.stream.uploads, 20);
            break info.reports;
        }
    };
    assert_eq!(reports.iter().filter(|(_, text)| text.contains("is left out")).count(), 2, "{reports:?}");
    let braces = store.stream_info("a{b}").unwrap_err();
    assert!(
        matches!(&braces, StreamError::Store(StoreError::Refused { text }) if text.contains("braces")),
        "{braces}"
    );
}

#[test]
fn a_list_waits_for_the_server_of_its_next_dataset_and_goes_on() {
    let mut shared = SharedStore::start();
    let (store, stream) = (shared.client(1), stream_of(1));
    let first = (0..).map(|number| number * 5).find(|first| has(2, *first)).unwrap();
    let second = (first + 5..).step_by(5).find(|first| has(1, *first)).unwrap();
    let reader = run(&store, &stream, ReadMode::Grow { min_samples: 10, new_samples: 0 }, 5);
    for first in [first, second] {
        store.put_dataset(&dataset(first)).unwrap();
    }
    shared.end(2);
    for first in [first, second] {
        store.append(&stream, &format!("d{first}")).unwrap();
    }
    let until = Instant::now() + PATIENCE;
    let waits = loop {
        match reader.pass(0, PATIENCE).unwrap() {
            PassAnswer::Waiting(waits @ StreamWait::DatasetNode { .. }) => break waits,
            other => assert!(Instant::now() < until, "{other:?}"),
        }
    };
    let StreamWait::DatasetNode { dataset, part, .. } = &waits else { panic!("{waits:?}") };
    assert_eq!((dataset.as_str(), part.as_str()), (format!("{{d{first}}}").as_str(), "2/2"));
    let info = store.stream_info(&stream).unwrap();
    assert_eq!((info.pending_datasets, info.stream.samples), (2, 0), "they count in order");
    assert_eq!(info.list_wait, Some(waits));
    shared.start_again(2);
    let cursor = sealed(pass(&reader, 0));
    let expected = (first..first + 5).chain(second..second + 5).map(|value| value as f32);
    assert_eq!(all_of(&reader, &cursor), expected.collect::<Vec<_>>());
    // A sample is waited for as long as its server is away.
    let id = ReaderId::new("run").unwrap();
    let other = shared.client(1).attach_stream(&stream, &id, PATIENCE).unwrap();
    shared.end(2);
    let late = std::thread::spawn(move || read(&other, &[0, 9]));
    shared.start_again(2);
    assert_eq!(late.join().unwrap(), [first as f32, (second + 4) as f32]);
    // The server of the stream forgets nothing, either.
    shared.end(1);
    shared.start_again(1);
    assert_eq!(read(&reader, &[0, 9]), [first as f32, (second + 4) as f32]);
    let info = shared.client(2).stream_info(&stream).unwrap();
    assert_eq!((info.pending_datasets, info.stream.samples), (0, 10));
}

#[test]
fn used_datasets_are_freed_at_whichever_server_they_are() {
    let shared = SharedStore::start();
    let (store, stream) = (shared.client(2), stream_of(1));
    let reader = run(&store, &stream, ReadMode::Once { window: 20 }, 5);
    let firsts: Vec<u64> = (0..4).map(|number| number * 5).collect();
    for first in &firsts {
        store.put_dataset(&dataset(*first)).unwrap();
        store.append(&stream, &format!("d{first}")).unwrap();
    }
    assert!(firsts.iter().any(|first| has(1, *first)) && firsts.iter().any(|first| has(2, *first)));
    let cursor = sealed(pass(&reader, 0));
    assert_eq!(all_of(&reader, &cursor), (0u16..20).map(f32::from).collect::<Vec<_>>());
    reader.commit(0, 4).unwrap();
    let until = Instant::now() + PATIENCE;
    while store.keys_like("{d*}*").unwrap() != Vec::<bytes::Bytes>::new() {
        assert!(Instant::now() < until, "{:?}", store.keys_like("{d*}*"));
    }
}

#[test]
fn a_client_waits_for_room_at_the_server_that_has_the_key() {
    let shared = SharedStore::start_as(|index, config| {
        let memory = ByteSize::mib(if index == 2 { 8 } else { 64 });
        ServerConfig { memory, persist: None, ..config }
    });
    let (first, second) = (format!("{{{}}}a", stream_of(2)), format!("{{{}}}b", stream_of(2)));
    let tensor = |seed: u8| Tensor::new(DType::U8, vec![5 << 20], vec![seed; 5 << 20].into()).unwrap();
    let (store, other) = (shared.client(1), shared.client(1));
    store.put(&first, &tensor(1)).unwrap();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| store.put(&second, &tensor(2)));
        let until = Instant::now() + PATIENCE;
        loop {
            let waits: Vec<bool> = other
                .command_everywhere(&[b"INFO", b"clients"])
                .unwrap()
                .iter()
                .map(|(_, info)| format!("{info:?}").contains("blocked_clients:1"))
                .collect();
            // One server has a client that waits, and it is the one that is full.
            if waits.contains(&true) {
                break;
            }
            assert!(Instant::now() < until && !put.is_finished(), "no client waits");
        }
        other.delete(&first).unwrap();
        put.join().unwrap().unwrap();
    });
    assert_eq!(store.get(&second).unwrap(), tensor(2));
}
