//! Streams against a real server: producers, runs, groups of trainers, lists of datasets.

use super::running::Running;
use phalanx_store::{Durability, ServerConfig};
use phalanx_store_client::{
    Dataset, PassAnswer, Producer, ProducerOptions, ReadOptions, Store, StreamError, StreamReader,
    TrainerAnswer,
};
use phalanx_streams::{
    Cursor, ReadMode, ReaderEnding, ReaderSettings, Retention, StreamRefusal, StreamSettings, StreamWait,
};
use phalanx_types::{ByteSize, Class, Incarnation, ProducerId, ReaderId, Seed, Tensor, TrainerId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn options(name: &str) -> ProducerOptions {
    ProducerOptions { patience: Some(PATIENCE), ..ProducerOptions::new(ProducerId::new(name).unwrap()) }
}

/// Samples whose values tell which they are: `x` has two numbers of each, `y` one.
pub(crate) fn samples(first: u64, count: u64) -> (Tensor, Tensor) {
    let numbers = first..first + count;
    let x: Vec<f32> = numbers.clone().flat_map(|n| [n as f32, n as f32 + 0.5]).collect();
    let y: Vec<f32> = numbers.map(|n| n as f32 * 10.0).collect();
    (Tensor::from_f32(vec![count, 2], &x).unwrap(), Tensor::from_f32(vec![count], &y).unwrap())
}

pub(crate) fn put(producer: &mut Producer, first: u64, count: u64) -> u64 {
    let (x, y) = samples(first, count);
    producer.put(&[("x", &x), ("y", &y)]).unwrap()
}

pub(crate) fn run(store: &Store, stream: &str, mode: ReadMode, batch: u64) -> StreamReader {
    let settings = ReaderSettings::new(mode, Seed(5), batch);
    store.read_stream(stream, ReadOptions::new(ReaderId::new("run").unwrap(), settings)).unwrap()
}

pub(crate) const GROW: ReadMode = ReadMode::Grow { min_samples: 1, new_samples: 0 };

pub(crate) fn sealed(answer: PassAnswer) -> Cursor {
    match answer {
        PassAnswer::Sealed(cursor) => cursor,
        other => panic!("{other:?}"),
    }
}

/// Waits for a pass over all reasons.
pub(crate) fn pass(reader: &StreamReader, number: u64) -> PassAnswer {
    loop {
        match reader.pass(number, PATIENCE).unwrap() {
            PassAnswer::Waiting(_) => {}
            answer => return answer,
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// The values of `x` and `y` of samples; checks that they belong together.
pub(crate) fn read(reader: &StreamReader, numbers: &[u64]) -> Vec<f32> {
    let (mut x, mut y) = (vec![0; numbers.len() * 8], vec![0; numbers.len() * 4]);
    reader.samples().read("x", numbers, &mut x).unwrap();
    reader.samples().read("y", numbers, &mut y).unwrap();
    let (x, y) = (floats(&x), floats(&y));
    for (x, y) in x.chunks(2).zip(&y) {
        assert_eq!((x[1], *y), (x[0] + 0.5, x[0] * 10.0));
    }
    x.into_iter().step_by(2).collect()
}

/// All samples of a pass, by global batch.
fn batches(reader: &StreamReader, cursor: &Cursor) -> Vec<Vec<f32>> {
    let samples = reader.samples();
    (0..samples.order(cursor).steps())
        .map(|step| read(reader, &samples.batch(cursor, step).unwrap()))
        .collect()
}

fn sorted(batches: &[Vec<f32>]) -> Vec<u64> {
    let mut all: Vec<u64> = batches.iter().flatten().map(|value| *value as u64).collect();
    all.sort_unstable();
    all
}

#[test]
fn every_sample_is_in_every_pass_once_on_this_host_and_elsewhere() {
    let server = Running::start();
    let store = server.client();
    let mut producer = store.produce("s", options("sim")).unwrap();
    // Small uploads, and one that is worth mapping.
    (0..10).for_each(|n| assert_eq!(put(&mut producer, n * 10, 10), n));
    put(&mut producer, 100, 20_000);
    let reader = run(&store, "s", GROW, 64);
    let fields = reader.fields(PATIENCE).unwrap();
    assert_eq!((fields[0].name.as_str(), &fields[0].sample_shape[..], fields.len()), ("x", &[2][..], 2));
    let first = sealed(pass(&reader, 0));
    let local = batches(&reader, &first);
    assert_eq!(sorted(&local), (0..20_100).collect::<Vec<_>>());
    let other = server.remote().attach_stream("s", &ReaderId::new("run").unwrap(), PATIENCE).unwrap();
    assert_eq!(sealed(pass(&other, 0)), first);
    assert_eq!(batches(&other, &first), local);
    assert!(matches!(other.commit(0, 1), Err(StreamError::NotOwner)));
    // New samples are in the next pass, in another order.
    put(&mut producer, 20_100, 5);
    let second = sealed(pass(&other, 1));
    assert_eq!(sealed(pass(&reader, 1)), second);
    let again = batches(&reader, &second);
    assert_eq!(sorted(&again), (0..20_105).collect::<Vec<_>>());
    assert_ne!(again[0], local[0]);
    producer.close().unwrap();
    reader.close().unwrap();
}

#[test]
fn one_two_and_four_trainers_have_the_same_global_batches() {
    let server = Running::start();
    let store = server.client();
    let mut producer = store.produce("s", options("sim")).unwrap();
    (0..7).for_each(|n| assert_eq!(put(&mut producer, n * 11, 11), n));
    let mut all = Vec::new();
    for ranks in [1u32, 2, 4] {
        let settings = ReaderSettings::new(GROW, Seed(9), 16);
        let id = ReaderId::new(format!("run{ranks}")).unwrap();
        let reader = store.read_stream("s", ReadOptions::new(id.clone(), settings)).unwrap();
        let cursor = sealed(pass(&reader, 0));
        let trainers: Vec<_> = (0..ranks).map(|_| store.attach_stream("s", &id, PATIENCE).unwrap()).collect();
        let steps = reader.samples().order(&cursor).steps();
        let global: Vec<Vec<f32>> = (0..steps)
            .map(|step| {
                let share = |(rank, trainer): (u32, &StreamReader)| {
                    let cursor = sealed(pass(trainer, 0));
                    read(trainer, &trainer.samples().share(&cursor, step, rank, ranks).unwrap())
                };
                (0..).zip(&trainers).flat_map(share).collect()
            })
            .collect();
        assert_eq!(sorted(&global), (0..77).collect::<Vec<_>>());
        all.push(global);
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[test]
fn a_run_is_told_why_it_waits_and_is_woken() {
    let server = Running::start();
    let store = server.client();
    let reader = run(&store, "s", ReadMode::Grow { min_samples: 20, new_samples: 0 }, 8);
    let waits = reader.pass(0, PATIENCE).unwrap();
    assert!(
        matches!(waits, PassAnswer::Waiting(StreamWait::Samples { arrived: 0, needed: 20, .. })),
        "{waits:?}"
    );
    let asked = std::thread::spawn(move || (pass(&reader, 0), reader));
    let mut producer = store.produce("s", options("sim")).unwrap();
    put(&mut producer, 0, 15);
    put(&mut producer, 15, 15);
    let (answer, reader) = asked.join().unwrap();
    assert_eq!(sealed(answer).horizon, 30);
    drop(producer);
    // A run that needs the end is told that its last producer is gone.
    let info = || store.stream_info("s").unwrap();
    wait_until(|| info().reports.iter().any(|(_, text)| text.contains("producer sim is lost")));
    let late = run_as(&store, "late", ReadMode::Static);
    let waits = late.pass(0, PATIENCE).unwrap();
    assert!(matches!(waits, PassAnswer::Waiting(StreamWait::ProducerLost { .. })), "{waits:?}");
    store.seal_stream("s").unwrap();
    assert_eq!(sealed(pass(&late, 0)).horizon, 30);
    drop(reader);
}

fn run_as(store: &Store, name: &str, mode: ReadMode) -> StreamReader {
    let settings = ReaderSettings::new(mode, Seed(5), 8);
    store.read_stream("s", ReadOptions::new(ReaderId::new(name).unwrap(), settings)).unwrap()
}

/// Waits for something that is not signalled, under a deadline.
fn wait_until(mut holds: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < until, "it did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn uploads_of_a_restarted_producer_count_once_and_half_written_ones_not() {
    let server = Running::start();
    let store = server.client();
    let mut first = store.produce("s", options("sim")).unwrap();
    put(&mut first, 0, 4);
    // The second upload is begun, and one of its tensors stored, when the producer dies.
    let begin = ["PHALANX.STREAM", "BEGIN", "s", "sim", "1", "1", "4", "48", "-", "0", "x", "y"];
    let plain = server.client();
    let words = |line: &[&str]| line.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let send = |line: &[&str]| {
        let line = words(line);
        plain.command(&line.iter().map(Vec::as_slice).collect::<Vec<_>>())
    };
    send(&begin).unwrap();
    let (x, _) = samples(4, 4);
    plain.put("{s.sim.1.1}.x", &x).unwrap();
    drop((plain, first));
    wait_until(|| !store.key_exists("{s.sim.1.1}.x").unwrap());
    let mut again = store.produce("s", options("sim")).unwrap();
    assert_eq!((again.next(), again.incarnation()), (1, Incarnation(2)));
    put(&mut again, 4, 4);
    let info = store.stream_info("s").unwrap();
    assert_eq!((info.stream.samples, info.stream.uploads), (8, 2));
    assert!(info.reports.iter().any(|(_, text)| text.contains("is lost")));
    // The old life is fenced.
    let old = ProducerOptions { incarnation: Some(Incarnation(1)), ..options("sim") };
    let fenced = store.produce("s", old).unwrap_err();
    assert!(matches!(fenced, StreamError::Refused(StreamRefusal::Fenced { .. })), "{fenced}");
    again.close().unwrap();
    assert!(store.produce("s", options("sim")).unwrap().has_closed());
}

#[test]
fn producers_are_held_back_and_told_why_until_a_run_commits() {
    let server = Running::start();
    let store = server.client();
    let settings = StreamSettings {
        retention: Retention::Free,
        budget: Some(ByteSize(12 * 20)),
        producer_silence: None,
        trainer_silence: None,
        ..StreamSettings::default()
    };
    store.create_stream("s", &settings).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let observer = {
        let told = told.clone();
        Arc::new(move |reason: &StreamWait| told.lock().unwrap().push(reason.kind()))
    };
    let mut producer =
        store.produce("s", ProducerOptions { on_wait: Some(observer), ..options("sim") }).unwrap();
    let produced = std::thread::spawn(move || {
        (0..30).for_each(|n| assert_eq!(put(&mut producer, n * 10, 10), n));
        producer.close().unwrap();
    });
    let reader = run(&store, "s", ReadMode::Once { window: 10 }, 5);
    let mut seen = Vec::new();
    for number in 0..30 {
        let cursor = loop {
            match reader.pass(number, PATIENCE).unwrap() {
                PassAnswer::Sealed(cursor) => break cursor,
                // The samples of earlier passes take the room.
                PassAnswer::Waiting(StreamWait::Uncommitted { .. }) => reader.commit(number - 1, 2).unwrap(),
                PassAnswer::Waiting(_) => {}
                other => panic!("{other:?}"),
            }
        };
        seen.extend(batches(&reader, &cursor));
        assert!(store.stream_info("s").unwrap().stream.stored <= ByteSize(12 * 20));
    }
    produced.join().unwrap();
    assert_eq!(sorted(&seen), (0..300).collect::<Vec<_>>());
    store.seal_stream("s").unwrap();
    assert_eq!(pass(&reader, 30), PassAnswer::Finished(ReaderEnding::StreamUsed));
    reader.commit(29, 2).unwrap();
    let info = store.stream_info("s").unwrap();
    assert_eq!((info.stream.stored, info.stream.kept_uploads), (ByteSize(0), 0));
    assert!(!store.key_exists("{s.sim.1.29}.x").unwrap(), "freed samples are deleted");
    assert!(told.lock().unwrap().contains(&"budget") || told.lock().unwrap().contains(&"no_reader"));
}

#[test]
fn a_reservoir_reads_what_was_kept_of_shrunk_uploads() {
    let server = Running::start();
    let store = server.client();
    let mode = ReadMode::Reservoir { capacity: 32, min_samples: 10, steps: None };
    let reader = run(&store, "s", mode, 8);
    let mut producer = store.produce("s", options("sim")).unwrap();
    let mut last = 0;
    for number in 0..20 {
        put(&mut producer, number * 50, 50);
        let cursor = sealed(pass(&reader, number));
        let values = batches(&reader, &cursor);
        assert_eq!(values.iter().flatten().count() as u64, 32.min(cursor.horizon));
        assert!(sorted(&values).into_iter().all(|value| value < cursor.horizon));
        last = cursor.horizon;
        reader.commit(number, reader.samples().order(&cursor).steps()).unwrap();
    }
    let info = store.stream_info("s").unwrap();
    assert!(info.stream.stored.0 < 12 * 300, "{} are kept of {last} samples", info.stream.stored);
}

#[test]
fn a_list_of_datasets_is_a_stream() {
    let server = Running::start();
    let store = server.client();
    let append = |n: u64| {
        let (x, y) = samples(n * 10, 10);
        let mut dataset = Dataset::new(format!("step{n}"));
        dataset.add_tensor("x", x);
        dataset.add_tensor("y", y);
        store.put_dataset(&dataset).unwrap();
        store.append("training", &format!("step{n}")).unwrap();
    };
    (0..3).for_each(append);
    let settings = ReaderSettings::new(GROW, Seed(1), 8);
    let options = ReadOptions::new(ReaderId::new("run").unwrap(), settings);
    let reader = store.read_stream("training", options).unwrap();
    let first = sealed(pass(&reader, 0));
    assert_eq!(sorted(&batches(&reader, &first)), (0..30).collect::<Vec<_>>());
    append(3);
    // Named before it is whole: it counts when it is.
    store.append("training", "step4").unwrap();
    store.append("training", "step3").unwrap();
    assert_eq!(sealed(pass(&reader, 1)).horizon, 40);
    assert_eq!(store.stream_info("training").unwrap().pending_datasets, 1);
    let (x, y) = samples(40, 10);
    let mut dataset = Dataset::new("step4");
    dataset.add_tensor("x", x);
    dataset.add_tensor("y", y);
    store.put_dataset(&dataset).unwrap();
    let third = sealed(pass(&reader, 2));
    assert_eq!(sorted(&batches(&reader, &third)), (0..50).collect::<Vec<_>>());
    // One that does not fit is left out, with the reason.
    let mut wrong = Dataset::new("wrong");
    wrong.add_tensor("x", samples(0, 3).0);
    store.put_dataset(&wrong).unwrap();
    store.append("training", "wrong").unwrap();
    let reports = store.stream_info("training").unwrap().reports;
    assert!(reports.last().unwrap().1.contains("left out"), "{reports:?}");
    store.seal_stream("training").unwrap();
    assert!(store.stream_info("training").unwrap().stream.ended);
}

/// Values of samples by pass, step and rank.
type Shares = BTreeMap<(u64, u64, u32), Vec<f32>>;

#[test]
fn trainers_that_come_and_go_use_every_sample_once() {
    let server = Running::start();
    let store = server.client();
    let mut producer = store.produce("s", options("sim")).unwrap();
    (0..10).for_each(|n| assert_eq!(put(&mut producer, n * 30, 30), n));
    let settings = ReaderSettings { passes: Some(2), ..ReaderSettings::new(GROW, Seed(2), 20) };
    let reader = store.read_stream("s", ReadOptions::new(ReaderId::new("run").unwrap(), settings)).unwrap();
    // What was committed, by pass and step: a share counts when the step after it is given out.
    let used: Arc<Mutex<Shares>> = Arc::default();
    let train = |name: &'static str, steps: u64| {
        let (mut trainer, used) =
            (reader.trainer(TrainerId::new(name).unwrap(), Incarnation(1)).unwrap(), used.clone());
        let mut done = false;
        let reader = &reader;
        move || {
            let mut count = 0;
            while count < steps {
                match trainer.next(done, PATIENCE).unwrap() {
                    TrainerAnswer::Waiting(_) => continue,
                    TrainerAnswer::Finished(_) => return,
                    TrainerAnswer::Share(share) => {
                        let samples = reader.samples();
                        let mine = samples.share(&share.cursor, share.cursor.step, share.rank, share.ranks);
                        let values = read(reader, &mine.unwrap());
                        let key = (share.cursor.pass, share.cursor.step, share.rank);
                        let mut used = used.lock().unwrap();
                        // A step that is repeated with another group replaces what was done before.
                        let stale: Vec<_> =
                            used.keys().copied().filter(|k| (k.0, k.1) == (key.0, key.1)).collect();
                        let ranks = share.ranks;
                        stale.into_iter().filter(|k| k.2 >= ranks).for_each(|k| drop(used.remove(&k)));
                        used.insert(key, values);
                        done = true;
                        count += 1;
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(train("a", u64::MAX));
        scope.spawn(train("b", 3));
        scope.spawn(train("c", u64::MAX));
    });
    let used = used.lock().unwrap();
    for number in 0..2 {
        let mine: Vec<Vec<f32>> =
            used.iter().filter(|(key, _)| key.0 == number).map(|(_, values)| values.clone()).collect();
        assert_eq!(sorted(&mine), (0..300).collect::<Vec<_>>(), "pass {number}");
    }
}

#[test]
fn a_watcher_is_shown_what_changes() {
    let server = Running::start();
    let store = server.client();
    let mut watch = store.watch_streams(None).unwrap();
    assert_eq!(watch.next(Duration::ZERO).unwrap(), Some(Vec::new()));
    assert_eq!(watch.next(Duration::ZERO).unwrap(), None);
    let shown = std::thread::spawn(move || watch.next(PATIENCE).unwrap().unwrap());
    let mut producer = store.produce("s", options("sim")).unwrap();
    assert_eq!(shown.join().unwrap()[0].name, "s");
    put(&mut producer, 0, 10);
    let mut one = store.watch_streams(Some("s")).unwrap();
    let info = one.next(PATIENCE).unwrap().unwrap().remove(0);
    assert_eq!((info.stream.samples, info.stream.producers.len(), info.fields.len()), (10, 1, 2));
    assert_eq!(store.streams().unwrap(), ["s"]);
    assert!(store.delete_stream("s").unwrap() && !store.delete_stream("s").unwrap());
    assert!(!store.key_exists("{s.sim.1.0}.x").unwrap());
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    let server = Running::start();
    let store = server.client();
    let mut producer = store.produce("s", options("sim")).unwrap();
    put(&mut producer, 0, 4);
    let (x, y) = samples(0, 4);
    let refused = |result: Result<u64, StreamError>| match result {
        Err(StreamError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let lacks = refused(producer.put(&[("x", &x)]));
    assert!(matches!(lacks, StreamRefusal::FieldMissing { .. }), "{lacks}");
    let wide = Tensor::from_f32(vec![4, 3], &[0.0; 12]).unwrap();
    let differs = refused(producer.put(&[("x", &wide), ("y", &y)]));
    assert!(matches!(differs, StreamRefusal::FieldDiffers { .. }), "{differs}");
    assert!(matches!(producer.put(&[("x", &x), ("y", &samples(0, 3).1)]), Err(StreamError::Upload { .. })));
    assert!(matches!(producer.put(&[]), Err(StreamError::Upload { .. })));
    put(&mut producer, 4, 4);
    let list = store.produce("s", options("list")).unwrap_err();
    assert!(matches!(list, StreamError::Refused(StreamRefusal::ReservedName { .. })), "{list}");
    let other = StreamSettings { expected_producers: Some(3), ..StreamSettings::default() };
    let differs = store.create_stream("s", &other).unwrap_err();
    assert!(matches!(differs, StreamError::Refused(StreamRefusal::StreamDiffers)), "{differs}");
    let unknown = store.stream_info("none").unwrap_err();
    assert!(matches!(unknown, StreamError::Refused(StreamRefusal::UnknownStream)), "{unknown}");
    let none = store.attach_stream("s", &ReaderId::new("none").unwrap(), Duration::from_millis(10));
    assert!(matches!(none, Err(StreamError::NotThere { .. })));
    let reader = run(&store, "s", GROW, 2);
    assert!(matches!(
        reader.pass(7, PATIENCE),
        Err(StreamError::Refused(StreamRefusal::UnknownPlace { .. }))
    ));
    let mut short = [0; 3];
    assert!(matches!(reader.samples().read("x", &[0], &mut short), Err(StreamError::Room { .. })));
    let gone = reader.samples().read("x", &[99], &mut [0; 8]).unwrap_err();
    assert!(matches!(gone, StreamError::Refused(StreamRefusal::SampleGone { .. })), "{gone}");
}

/// A file system of a few MiB, unmounted at the end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(mib: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"]).arg(directory.path());
        assert!(mount.status().unwrap().success(), "tests mount file systems and need root");
        Self(directory)
    }

    fn store(&self) -> Running {
        let persist = Some(self.0.path().join("store"));
        Running::with(ServerConfig { persist, durability: Durability::EveryWrite, ..ServerConfig::default() })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut unmount = std::process::Command::new("umount");
        assert!(unmount.arg("--lazy").arg(self.0.path()).status().unwrap().success());
    }
}

#[test]
fn producers_and_runs_wait_while_the_disk_of_the_store_is_full() {
    let disk = SmallDisk::new(6);
    let filler = disk.0.path().join("filler");
    let server = disk.store();
    let (count, uploads) = (100, 30);
    let stream = StreamSettings { expected_producers: Some(1), ..StreamSettings::default() };
    let mut producer = server
        .client()
        .produce("data", ProducerOptions { settings: Some(stream), patience: None, ..options("sim") })
        .unwrap();
    put(&mut producer, 0, count);
    let reader = run(&server.client(), "data", ReadMode::Grow { min_samples: 1, new_samples: 1 }, 10);
    let first = sealed(pass(&reader, 0));
    // All the room that is left; what is on its way to the disk then is a fact of the stream.
    drop(std::fs::write(&filler, vec![1; 8 << 20]));
    let producing = std::thread::spawn(move || {
        for upload in 1..uploads {
            put(&mut producer, upload * count, count);
        }
        producer.close().unwrap();
    });
    let (client, until) = (server.client(), std::time::Instant::now() + PATIENCE);
    loop {
        // It says why nothing is recorded, and it is answered at once.
        let told = format!("{:?}", client.command(&[b"INFO", b"persistence"]).unwrap());
        if told.contains("No space left on device") {
            break;
        }
        assert!(std::time::Instant::now() < until, "{told}");
    }
    let waits = reader.pass(1, Duration::from_millis(300));
    let may_ask_again = matches!(&waits, Err(error) if error.class() == Class::Retry);
    assert!(may_ask_again, "{waits:?}");
    assert!(!producing.is_finished(), "the producer waits");
    std::fs::remove_file(&filler).unwrap();
    producing.join().unwrap();
    let second = sealed(pass(&reader, 1));
    assert!(first.horizon < second.horizon);
    let known = server.client().stream_info("data").unwrap().stream;
    assert_eq!((known.samples, known.ended), (uploads * count, true), "every upload once");
    drop((reader, server));
    let again = disk.store().client().stream_info("data").unwrap().stream;
    assert_eq!((again.samples, again.ended), (uploads * count, true), "the same after a restart");
}
