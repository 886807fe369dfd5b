//! A trainer that is fed by a stream, next to one that reads the same samples from a file.

use super::{Numbers, connect};
use crate::commands::store::failure;
use crate::failure::Failure;
use crate::own_program::own_program;
use anyhow::{Context, ensure};
use phalanx_resp::Reply;
use phalanx_store_client::{ProducerOptions, Store};
use phalanx_streams::StreamSettings;
use phalanx_types::{DType, ProducerId, Tensor};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const SAMPLES: usize = 1440;
const VALUES: usize = 64;
const CLASSES: usize = 10;
/// A simulation uploads some samples at a time.
const UPLOAD: usize = 48;
/// Only a trainer that does not start makes this pass.
const PATIENCE: Duration = Duration::from_secs(20);
/// A trainer that has connected waits after this.
const SETTLED: Duration = Duration::from_secs(1);

/// A model, how often it sees all samples in a second or so, and the names of its numbers.
struct Case {
    model: &'static str,
    epochs: u32,
    from_file: &'static str,
    from_stream: &'static str,
}

const CASES: [Case; 2] = [
    Case {
        model: "zoo = \"digits-cnn\"",
        epochs: 40,
        from_file: "trainer_digits_cnn_file_samples_per_s",
        from_stream: "trainer_digits_cnn_stream_samples_per_s",
    },
    Case {
        model: "zoo = \"mlp\"\ninput = [1, 8, 8]",
        epochs: 400,
        from_file: "trainer_mlp_file_samples_per_s",
        from_stream: "trainer_mlp_stream_samples_per_s",
    },
];

/// Run files and their results, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("phalanx-bench-store-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(Failure::infrastructure)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left behind in a temporary directory, at worst.
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

/// A trainer that waits; it ends with this value.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        // Both fail only for a process that has ended, which is what is wanted.
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}

pub(super) fn measure(address: &str, time: Duration) -> Result<Numbers, Failure> {
    let scratch = Scratch::new()?;
    let store = connect(address)?;
    let file = scratch.0.join("samples.npz");
    let all = samples(0, SAMPLES)?;
    let named = ["x", "y"].map(str::to_owned).into_iter().zip(all).collect::<Vec<_>>();
    phalanx_data::write_tensors(&file, &named).map_err(Failure::infrastructure)?;
    upload(&store, "bench:samples")?;
    let from_file = format!("{{ file = \"{}\", x = \"x\", y = \"y\" }}", file.display());
    let from_stream = stream(address, "bench:samples");
    let mut numbers = Numbers::new();
    for (number, case) in CASES.iter().enumerate() {
        for (name, data) in [(case.from_file, &from_file), (case.from_stream, &from_stream)] {
            let run = run_file(&scratch.0, &format!("{number}-{name}"), case, data)?;
            numbers.insert(name, rate(&run)?);
        }
    }
    numbers.insert("trainer_wait_commands", commands_of_a_wait(&scratch.0, &store, address, time)?);
    for stream in ["bench:samples", "bench:empty"] {
        store.delete_stream(stream).map_err(Failure::infrastructure)?;
    }
    Ok(numbers)
}

fn stream(address: &str, name: &str) -> String {
    format!("{{ stream = \"{name}\", store = \"{address}\", x = \"x\", y = \"y\" }}")
}

/// Images of one kind and their classes.
fn samples(first: usize, count: usize) -> Result<[Tensor; 2], Failure> {
    let place = |sample: usize, at: usize| (sample * 31 + at * 17 + sample * at) % 97;
    let x: Vec<f32> = (first..first + count)
        .flat_map(|sample| (0..VALUES).map(move |at| place(sample, at) as f32 / 97.0))
        .collect();
    let y = (first..first + count).flat_map(|sample| ((sample % CLASSES) as i64).to_le_bytes());
    let y: Vec<u8> = y.collect();
    let x = Tensor::from_f32(vec![count as u64, 1, 8, 8], &x).map_err(Failure::infrastructure)?;
    let y = Tensor::new(DType::I64, vec![count as u64], y.into()).map_err(Failure::infrastructure)?;
    Ok([x, y])
}

fn upload(store: &Store, name: &str) -> Result<(), Failure> {
    let settings = StreamSettings { expected_producers: Some(1), ..StreamSettings::default() };
    let id = ProducerId::new("bench").map_err(Failure::infrastructure)?;
    let options = ProducerOptions { settings: Some(settings), ..ProducerOptions::new(id) };
    let mut producer = store.produce(name, options).map_err(Failure::infrastructure)?;
    for first in (0..SAMPLES).step_by(UPLOAD) {
        let [x, y] = samples(first, UPLOAD)?;
        producer.put(&[("x", &x), ("y", &y)]).map_err(Failure::infrastructure)?;
    }
    producer.close().map_err(Failure::infrastructure)
}

fn run_file(directory: &Path, name: &str, case: &Case, data: &str) -> Result<PathBuf, Failure> {
    let Case { model, epochs, .. } = case;
    let text = format!(
        "[model]\n{model}\n[data]\ntrain = {data}\n[train]\nloss = \"cross_entropy\"\noptimizer = \"sgd\"\n\
         batch = 64\nseed = 1\nepochs = {epochs}\ncheckpoint_every = \"never\"\n"
    );
    let path = directory.join(format!("{name}.toml"));
    std::fs::write(&path, text).map_err(Failure::infrastructure)?;
    Ok(path)
}

fn train(run: &Path) -> std::process::Command {
    let mut command = own_program().command();
    command.args(["--output", "json", "train"]).arg(run).arg("--run-dir").arg(run.with_extension("run"));
    command.stdin(Stdio::null());
    command
}

/// The samples per second of a training.
fn rate(run: &Path) -> Result<f64, Failure> {
    let output = train(run).output();
    let rate = || -> anyhow::Result<f64> {
        let output = output.context("could not start a training")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let summary: Value = serde_json::from_slice(&output.stdout)?;
        summary.get("samples_per_s").and_then(Value::as_f64).context("a training without a rate")
    };
    rate().map_err(Failure::infrastructure)
}

/// How many commands a trainer sends while it waits for its first samples.
fn commands_of_a_wait(
    directory: &Path,
    store: &Store,
    address: &str,
    time: Duration,
) -> Result<f64, Failure> {
    let [case, ..] = &CASES;
    let run = run_file(directory, "wait", case, &stream(address, "bench:empty"))?;
    let before = count(store, "connected_clients")?;
    let child = train(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _waiting = Waiting(child.context("could not start a training").map_err(Failure::infrastructure)?);
    let late = Instant::now() + PATIENCE;
    while count(store, "connected_clients")? <= before {
        if Instant::now() > late {
            return Err(Failure::infrastructure(anyhow::anyhow!("the trainer did not come to wait")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // It asks for the stream, and then waits.
    std::thread::sleep(SETTLED);
    let began = count(store, "total_commands_processed")?;
    std::thread::sleep(time);
    // One of them is the second of these two.
    Ok(count(store, "total_commands_processed")? - began - 1.0)
}

/// A number of the server's report.
fn count(store: &Store, name: &str) -> Result<f64, Failure> {
    let reply = store.command(&[b"INFO"]).map_err(failure)?;
    let text = match &reply {
        Reply::Bulk(text) | Reply::Verbatim(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|number| number.trim().parse().ok());
    number.with_context(|| format!("the server does not tell {name}")).map_err(Failure::infrastructure)
}
