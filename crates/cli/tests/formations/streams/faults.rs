//! Processes of a stream that are killed or fall silent: trainers, the store, producers.

use super::producers::{Produced, Producing, store, store_at};
use super::{run_file, seen, steps, train};
use crate::sandbox;
use phalanx_protocol::mark;
use phalanx_store_client::{ReadOptions, Store, StoreOptions};
use phalanx_streams::{PassAnswer, ReadMode, ReaderSettings, StreamWait};
use phalanx_testkit::{Sandbox, eventually};
use phalanx_types::{ReaderId, Seed};
use rustix::process::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Longer than any of these events should take.
const DEADLINE: Duration = Duration::from_secs(60);

/// One producer, so that samples arrive in one order, and room for many windows, so that none is cut short.
fn bounded() -> Produced {
    let budget = Some(64 << 10);
    Produced { uploads: 200, producers: 1, expected: 1, budget, ..Produced::default() }
}

/// Writes a run file that uses each sample once. Checkpoints are in the middle of passes, which have four steps.
fn once_file(sandbox: &Sandbox, at: &str) {
    let train = "epochs = 1\ncheckpoint_every = 7";
    run_file(sandbox, at, "mode = \"once\", window = 128", train, "[formation]\nshares = \"equal\"");
}

/// The summary of a run that nothing disturbs, and its losses.
fn undisturbed(args: &[&str]) -> (Value, Vec<u8>) {
    let sandbox = sandbox();
    let (_store, at) = store(&sandbox, &[]);
    let producing = Producing::start(&at, bounded());
    once_file(&sandbox, &at);
    let summary = train(&sandbox, "whole", args);
    producing.finish();
    (summary, std::fs::read(sandbox.path().join("whole/losses.csv")).unwrap())
}

/// Waits until a run has recorded more steps than this.
fn until_steps(sandbox: &Sandbox, run: &str, count: usize) {
    eventually("the run gets there", || {
        let text = std::fs::read_to_string(sandbox.path().join(run).join("losses.csv")).ok()?;
        (text.lines().count() > count).then_some(())
    });
}

#[test]
fn in_mode_once_a_killed_trainer_uses_every_sample_once() {
    for args in [&[][..], &["--local", "2"]] {
        let (whole, losses) = undisturbed(args);
        let sandbox = sandbox();
        let (_store, at) = store(&sandbox, &[]);
        let producing = Producing::start(&at, bounded());
        once_file(&sandbox, &at);
        let start = [&["train", "run.toml", "--run-dir", "killed", "--output", "json"], args].concat();
        let mut process = sandbox.start(&start);
        for kill in 1..4 {
            until_steps(&sandbox, "killed", kill * 40);
            process.signal(Signal::KILL);
            process.finish();
            process = sandbox.start(&["run", "resume", "killed", "--output", "json"]);
        }
        let (code, resumed) = process.summary();
        assert_eq!(code, Some(0), "{}", process.stderr());
        let produced = producing.finish();
        assert_eq!(whole["params_hash"], resumed["params_hash"], "{args:?}");
        let dir = sandbox.path().join("killed");
        assert!(losses == std::fs::read(dir.join("losses.csv")).unwrap(), "{args:?}: every step once");
        if !args.is_empty() {
            let used = steps(&dir).iter().fold(0_u64, |sum, line| sum.wrapping_add(seen(line)));
            let all = (0..produced).fold(0_u64, |sum, sample| sum.wrapping_add(mark(sample)));
            assert_eq!(used, all, "every sample once");
        }
    }
}

/// Kills the store under a trainer and a producer, and starts it again when the trainer has said that it waits for it.
fn survives_the_store(args: &[&str]) {
    let (whole, losses) = undisturbed(args);
    let sandbox = sandbox();
    let kept = ["--persist", "kept", "--durability", "every-write"];
    let (mut killed, at) = store(&sandbox, &kept);
    let producing = Producing::start(&at, Produced { pause: Duration::from_millis(10), ..bounded() });
    once_file(&sandbox, &at);
    let start = [&["train", "run.toml", "--run-dir", "run", "--output", "json"], args].concat();
    let mut process = sandbox.start(&start);
    until_steps(&sandbox, "run", 30);
    killed.signal(Signal::KILL);
    killed.finish();
    process.says("waiting: the store does not answer");
    let (_store, again) = store_at(&sandbox, &at, &kept);
    assert_eq!(again, at);
    let (code, summary) = process.summary();
    assert_eq!(code, Some(0), "{}", process.stderr());
    producing.finish();
    assert_eq!(whole["params_hash"], summary["params_hash"]);
    assert!(losses == std::fs::read(sandbox.path().join("run/losses.csv")).unwrap(), "every step once");
}

#[test]
fn training_goes_on_when_a_killed_store_is_back() {
    survives_the_store(&[]);
}

#[test]
fn replicas_go_on_when_a_killed_store_is_back() {
    survives_the_store(&["--local", "2"]);
}

#[test]
fn a_producer_that_falls_silent_is_lost_though_its_connection_stands() {
    let sandbox = sandbox();
    let (_store, at) = store(&sandbox, &[]);
    let silence = Duration::from_secs(1);
    let pause = Duration::from_millis(50);
    let produced = Produced { uploads: 6, producers: 1, expected: 1, pause, silence, ..Produced::default() };
    let producing = Producing::start(&at, produced);
    let store = Store::connect(&at, StoreOptions::default()).unwrap();
    let mut watch = store.watch_streams(Some("training_data")).unwrap();
    let mut until = |what: &str, wanted: &dyn Fn(&phalanx_streams::StreamInfo) -> bool| {
        let late = Instant::now() + DEADLINE;
        loop {
            let infos = watch.next(Duration::from_secs(1)).unwrap();
            if let Some(info) = infos.into_iter().flatten().find(|info| wanted(info)) {
                return info;
            }
            assert!(Instant::now() < late, "{what}");
        }
    };
    until("an upload arrives", &|info| info.stream.uploads > 0);
    producing.processes[0].signal(Signal::STOP);
    let says = |info: &phalanx_streams::StreamInfo, words: &str| {
        info.reports.iter().any(|(_, report)| report.contains(words))
    };
    until("its loss is reported", &|info| says(info, "producer sim-0 is lost"));
    let settings = ReaderSettings::new(ReadMode::Static, Seed(7), 32);
    let reader = ReadOptions::new(ReaderId::new("reads").unwrap(), settings);
    let reader = store.read_stream("training_data", reader).unwrap();
    let answer = reader.pass(0, Duration::from_secs(5)).unwrap();
    assert!(matches!(&answer, PassAnswer::Waiting(StreamWait::ProducerLost { .. })), "{answer:?}");
    producing.processes[0].signal(Signal::CONT);
    until("it is back", &|info| says(info, "producer sim-0 is back"));
    let samples = producing.finish();
    let info = until("the stream ends", &|info| info.stream.ended);
    assert_eq!(info.stream.samples, samples);
}

#[test]
fn a_producer_that_computes_for_long_is_not_lost() {
    let sandbox = sandbox();
    let (_store, at) = store(&sandbox, &[]);
    let (pause, silence) = (Duration::from_millis(1500), Duration::from_millis(600));
    let produced = Produced { uploads: 2, producers: 1, expected: 1, pause, silence, ..Produced::default() };
    Producing::start(&at, produced).finish();
    let info = Store::connect(&at, StoreOptions::default()).unwrap().stream_info("training_data").unwrap();
    let lost = |(_, report): &(_, String)| report.contains("lost");
    assert!(info.stream.ended && !info.reports.iter().any(lost), "{:?}", info.reports);
}
