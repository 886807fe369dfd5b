//! Training from a stream: real producers, a real store, every formation.

mod faults;
mod producers;

use crate::run::Run;
use crate::sandbox;
use phalanx_protocol::mark;
use phalanx_testkit::{Process, Sandbox, eventually, metrics, read_json};
use producers::{PRODUCERS, Produced, Producing, store};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// Samples of a step.
const BATCH: u64 = 32;

/// Writes a run file that learns from the stream.
fn run_file(sandbox: &Sandbox, at: &str, mode: &str, train: &str, rest: &str) {
    let data = format!(
        "train = {{ stream = \"training_data\", store = \"{at}\", x = \"samples\", y = \"targets\", {mode} }}"
    );
    let train = format!(
        "loss = \"mse\"\noptimizer = {{ name = \"sgd\", lr = 0.01 }}\nbatch = {BATCH}\nseed = 7\n{train}"
    );
    sandbox.run_file("toml = \"model.toml\"", &data, &train, rest);
    std::fs::write(sandbox.path().join("model.toml"), MODEL).unwrap();
}

/// Three layers, so that it can be cut into stages.
const MODEL: &str = include_str!("streams/model.toml");

/// Trains to the end in this directory; returns the summary.
fn train(sandbox: &Sandbox, run: &str, args: &[&str]) -> Value {
    sandbox.json(&[&["train", "run.toml", "--run-dir", run, "--output", "json"], args].concat())
}

/// The recorded steps of a run.
fn steps(run: &Path) -> Vec<Value> {
    metrics(run).into_iter().filter(|line| line["val_loss"].is_null()).collect()
}

fn seen(line: &Value) -> u64 {
    u64::from_str_radix(line["seen"].as_str().unwrap(), 16).unwrap()
}

/// Every sample below the horizon of each pass was computed once in it; gives how many samples each pass had.
fn samples_of_passes(run: &Path) -> Vec<u64> {
    let mut passes: Vec<(u64, u64)> = Vec::new();
    for line in steps(run) {
        let pass = line["pass"].as_u64().unwrap() as usize;
        passes.resize(passes.len().max(pass), (0, 0));
        let computed: u64 = line["replicas"]
            .as_array()
            .unwrap()
            .iter()
            .map(|replica| replica["samples"].as_u64().unwrap())
            .sum();
        let (samples, marks) = &mut passes[pass - 1];
        (*samples, *marks) = (*samples + computed, marks.wrapping_add(seen(&line)));
    }
    passes
        .into_iter()
        .enumerate()
        .map(|(pass, (samples, marks))| {
            let all = (0..samples).fold(0_u64, |sum, sample| sum.wrapping_add(mark(sample)));
            assert_eq!(marks, all, "pass {} has every one of {samples} samples once", pass + 1);
            samples
        })
        .collect()
}

#[test]
fn the_same_seed_gives_the_same_global_batches_in_every_formation() {
    let sandbox = sandbox();
    let (_store, at) = store(&sandbox, &[]);
    let produced = Producing::start(&at, Produced::default()).finish();
    let train_keys = "epochs = 3\nschedule = { name = \"table\", steps = [5], rates = [0.005] }";
    run_file(&sandbox, &at, "mode = \"static\"", train_keys, "[formation]\nshares = \"equal\"");
    let alone = train(&sandbox, "alone", &[]);
    train(&sandbox, "two", &["--local", "2"]);
    train(&sandbox, "four", &["--local", "4"]);
    run_file(&sandbox, &at, "mode = \"static\"", train_keys, "[formation]\nstages = 2\nmicro_batches = 2");
    train(&sandbox, "stages", &["--local", "2"]);
    run_file(&sandbox, &at, "mode = \"static\"", train_keys, "[formation]\nstages = 2\nreplicas = 2");
    train(&sandbox, "both", &["--local", "4"]);
    let all: Vec<Vec<Value>> = ["alone", "two", "four", "stages", "both"]
        .iter()
        .map(|run| steps(&sandbox.path().join(run)))
        .collect();
    let per_pass = produced.div_ceil(BATCH);
    assert_eq!(alone["steps"], 3 * per_pass, "{alone}");
    for (at, run) in all.iter().enumerate() {
        assert_eq!(run.len() as u64, 3 * per_pass, "run {at}");
        for (line, first) in run.iter().zip(&all[0]) {
            let (loss, expected) = (line["loss"].as_f64().unwrap(), first["loss"].as_f64().unwrap());
            assert!((loss - expected).abs() <= 1e-4 * expected.abs().max(1e-3), "run {at}: {line} {first}");
            assert_eq!(line["pass"], first["pass"]);
        }
    }
    for run in &all[2..] {
        assert!(run.iter().map(seen).eq(all[1].iter().map(seen)), "the same samples in every step");
    }
    for run in ["two", "four", "stages", "both"] {
        assert_eq!(samples_of_passes(&sandbox.path().join(run)), [produced; 3], "{run}");
    }
}

#[test]
fn a_killed_driver_goes_on_in_the_middle_of_a_pass_bit_for_bit() {
    let sandbox = sandbox();
    let (_store, at) = store(&sandbox, &[]);
    Producing::start(&at, Produced { uploads: 40, ..Produced::default() }).finish();
    run_file(
        &sandbox,
        &at,
        "mode = \"grow\"",
        "epochs = 12\ncheckpoint_every = 7",
        "[formation]\nshares = \"equal\"",
    );
    for (run, args) in [("one", &[][..]), ("two", &["--local", "2"])] {
        let (whole, killed) = (format!("{run}-whole"), format!("{run}-killed"));
        let undisturbed = train(&sandbox, &whole, args);
        let dir = sandbox.path().join(&killed);
        let start = [&["train", "run.toml", "--run-dir", &killed, "--output", "json"], args].concat();
        let mut process = sandbox.start(&start);
        for kill in 1..4 {
            eventually("it gets there", || {
                let text = std::fs::read_to_string(dir.join("losses.csv")).ok()?;
                (text.lines().count() > kill * 60).then_some(())
            });
            process.signal(Signal::KILL);
            process.finish();
            let saved = std::fs::read_dir(dir.join("checkpoints")).unwrap().flatten();
            // One that was being written has a name that begins with a dot.
            let whole = saved.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
            let manifests =
                whole.map(|entry| entry.path().join("manifest.json")).filter(|path| path.is_file());
            let in_pass = manifests.map(read_json).any(|manifest| {
                manifest["batch"].as_u64() > Some(0) && manifest["stream"]["horizon"].is_u64()
            });
            assert!(in_pass, "a checkpoint in the middle of a pass has its horizon");
            process = sandbox.start(&["run", "resume", &killed, "--output", "json"]);
        }
        let (code, resumed) = process.summary();
        assert_eq!(code, Some(0), "{}", process.stderr());
        assert_eq!(undisturbed["params_hash"], resumed["params_hash"], "{run}");
        let losses = |run: &str| std::fs::read(sandbox.path().join(run).join("losses.csv")).unwrap();
        assert!(losses(&whole) == losses(&killed), "{run}: every step once, with the same loss");
    }
}

#[test]
fn killed_replicas_and_slow_producers_cost_no_sample() {
    let sandbox = sandbox();
    let (_store, at) = store(&sandbox, &[]);
    // Slower than the trainer, which waits for new samples before every pass.
    let slow = Produced { uploads: 24, pause: Duration::from_millis(60), ..Produced::default() };
    let producing = Producing::start(&at, slow);
    let mode = "mode = \"grow\", min_samples = 64, new_samples = 128";
    run_file(
        &sandbox,
        &at,
        mode,
        "steps = 100000\ncheckpoint_every = 50",
        "[formation]\nreplicas = 3\nshares = \"equal\"",
    );
    let mut run = Run::start(&sandbox, &["--local", "3"]);
    for _ in 0..3 {
        run.goes_on(10);
        let nodes = run.until_nodes(3);
        nodes[0].signal(Signal::KILL);
        run.goes_on(5);
    }
    let produced = producing.finish();
    run.until("a pass over all samples", |lines| {
        let passes = lines.iter().filter_map(|line| line["pass"].as_u64());
        let last = passes.max()?;
        let of_last = lines.iter().filter(|line| line["pass"].as_u64() == Some(last - 1));
        let samples = |line: &Value| -> u64 {
            let replicas = line["replicas"].as_array().into_iter().flatten();
            replicas.filter_map(|replica| replica["samples"].as_u64()).sum()
        };
        (of_last.map(samples).sum::<u64>() == produced).then_some(())
    });
    run.process.signal(Signal::INT);
    run.process.finish();
    // The last pass is not over.
    let mut whole = run.dir.clone();
    whole.push("metrics.jsonl");
    let text = std::fs::read_to_string(&whole).unwrap();
    let last = steps(&run.dir).last().unwrap()["pass"].as_u64().unwrap();
    let complete: Vec<&str> =
        text.lines().filter(|line| !line.contains(&format!("\"pass\":{last},"))).collect();
    std::fs::write(&whole, complete.join("\n")).unwrap();
    let samples = samples_of_passes(&run.dir);
    assert!(samples.windows(2).all(|pair| pair[0] <= pair[1]), "passes grow: {samples:?}");
    assert!(samples[0] < produced && samples.last() == Some(&produced), "{samples:?}");
}

#[test]
fn a_run_that_waits_says_why_and_stops_at_once() {
    let sandbox = sandbox();
    let (_store, at) = store(&sandbox, &[]);
    Producing::start(&at, Produced { uploads: 3, expected: 9, ..Produced::default() }).finish();
    for (run, args) in [("one", &[][..]), ("two", &["--local", "2"])] {
        run_file(&sandbox, &at, "mode = \"grow\", min_samples = 1024", "epochs = 2", "");
        let start = [&["train", "run.toml", "--run-dir", run, "--output", "json"], args].concat();
        let mut process = sandbox.start(&start);
        let arrived = 3 * PRODUCERS as u64 * Produced::default().rows;
        process.says(&format!("waiting: {arrived} of 1,024 samples have arrived"));
        let shown = sandbox.json(&["run", "show", run, "--output", "json"]);
        assert_eq!(shown["state"], "running", "{shown}");
        assert!(shown["waiting"].as_str().unwrap().contains("of 1,024 samples"), "{shown}");
        let asked = Instant::now();
        process.signal(Signal::INT);
        let (code, _) = process.summary();
        assert_eq!(code, Some(1), "{}", process.stderr());
        assert!(asked.elapsed() < Duration::from_secs(3), "{run}: it stopped after {:?}", asked.elapsed());
    }
}

#[test]
fn in_mode_once_a_stream_of_any_length_takes_bounded_memory() {
    for args in [&[][..], &["--local", "2"]] {
        let sandbox = sandbox();
        let (_store, at) = store(&sandbox, &[]);
        // Far more than the budget, made faster than it is learned from. Only checkpoints let the store free samples,
        // and there would be none.
        let produced = Produced { uploads: 60, budget: Some(64 << 10), ..Produced::default() };
        let producing = Producing::start(&at, produced);
        let mode = "mode = \"once\", window = 128";
        run_file(&sandbox, &at, mode, "epochs = 1\ncheckpoint_every = \"never\"", "");
        let start = [&["train", "run.toml", "--run-dir", "once", "--output", "json"], args].concat();
        let mut process: Process = sandbox.start(&start);
        let (code, summary) = process.summary();
        assert_eq!(code, Some(0), "{}", process.stderr());
        let produced = producing.finish();
        let steps = summary["steps"].as_u64().unwrap();
        // Windows that were cut short, since the budget was full, may end with smaller batches.
        assert!(steps >= produced.div_ceil(BATCH), "{summary}");
        let info = producers::info(&at);
        assert_eq!(info.0, produced, "all samples have arrived");
        assert!(info.1 <= 64 << 10, "{} bytes are held", info.1);
        assert!(sandbox.path().join("once/model.safetensors").is_file());
    }
}

#[test]
fn a_reservoir_is_the_same_for_any_number_of_replicas() {
    let sandbox = sandbox();
    let (_store, at) = store(&sandbox, &[]);
    let produced = Producing::start(&at, Produced::default()).finish();
    let mode = "mode = \"reservoir\", capacity = 200, steps = 5";
    run_file(&sandbox, &at, mode, "epochs = 6", "[formation]\nshares = \"equal\"");
    for (run, args) in [("one", &[][..]), ("two", &["--local", "2"])] {
        let summary = train(&sandbox, run, args);
        assert_eq!(summary["steps"], 30, "{summary}");
    }
    let [one, two] = ["one", "two"].map(|run| steps(&sandbox.path().join(run)));
    for (line, first) in two.iter().zip(&one) {
        let [loss, expected] = [line, first].map(|line| line["loss"].as_f64().unwrap());
        assert!((loss - expected).abs() <= 1e-4 * expected.abs().max(1e-3), "{line} {first}");
    }
    assert!(produced > 200, "not all samples fit");
}
