//! What recording costs a training: the same one in memory, where nothing is recorded, with the files of a run alone, and
//! with ledger and event files, in turn.

use crate::commands::bench::numbers::Numbers;
use crate::commands::bench::stats::median;
use crate::own_program::own_program;
use anyhow::{Context, ensure};
use phalanx_ledger::LEDGER_VARIABLE;
use phalanx_rank::Trainer;
use phalanx_records::run_dir::METRICS;
use phalanx_records::{Event, RunEvent};
use phalanx_train::config::RunFile;
use phalanx_train::{Compute, Task};
use phalanx_types::{DType, Tensor};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const SAMPLES: u64 = 1280;
const CLASSES: u64 = 10;
/// Steps of the training that says how long a step takes.
const TRIAL: u64 = 200;

/// A model with the shape of its samples.
struct Case {
    model: &'static str,
    sample: &'static [u64],
    batch: u64,
    /// The microseconds of a step, by what is recorded: files only, also event files, also the ledger, both; nothing.
    names: [&'static str; 5],
}

const CASES: [Case; 2] = [
    Case {
        model: "digits-cnn",
        sample: &[1, 8, 8],
        batch: 64,
        names: [
            "training_digits_cnn_files_step_us",
            "training_digits_cnn_event_files_step_us",
            "training_digits_cnn_ledger_step_us",
            "training_digits_cnn_both_step_us",
            "training_digits_cnn_unrecorded_step_us",
        ],
    },
    Case {
        model: "mlp",
        sample: &[784],
        batch: 128,
        names: [
            "training_mlp_files_step_us",
            "training_mlp_event_files_step_us",
            "training_mlp_ledger_step_us",
            "training_mlp_both_step_us",
            "training_mlp_unrecorded_step_us",
        ],
    },
];

pub(super) fn measure(rounds: u32, time: Duration) -> anyhow::Result<Numbers> {
    let scratch = tempfile::tempdir()?;
    let mut numbers = Numbers::new();
    for case in &CASES {
        let data = scratch.path().join(format!("{}.npz", case.model));
        phalanx_data::write_tensors(&data, &samples(case.sample)?)?;
        let trial = train(scratch.path(), case, &data, TRIAL, 0)?;
        let steps = (time.as_secs_f64() * 1e6 / trial) as u64 + TRIAL;
        let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for round in 0..rounds as usize {
            // Each has every place in the order.
            for turn in 0..case.names.len() {
                let at = (round + turn) % case.names.len();
                let took = train(scratch.path(), case, &data, steps, at)?;
                times.entry(case.names[at]).or_default().push(took);
            }
        }
        let medians = case.names.iter().map(|name| (*name, median(times.entry(name).or_default())));
        numbers.extend(medians.collect::<Vec<_>>());
    }
    Ok(numbers)
}

/// Numbers of one kind and classes.
fn samples(shape: &[u64]) -> anyhow::Result<Vec<(String, Tensor)>> {
    let values = shape.iter().product::<u64>();
    let place = |at: u64| (at * 31 + at / values * 17) % 97;
    let x: Vec<f32> = (0..SAMPLES * values).map(|at| place(at) as f32 / 97.0).collect();
    let y: Vec<u8> = (0..SAMPLES).flat_map(|sample| ((sample % CLASSES) as i64).to_le_bytes()).collect();
    let whole: Vec<u64> = std::iter::once(SAMPLES).chain(shape.iter().copied()).collect();
    let x = Tensor::from_f32(whole, &x)?;
    Ok(vec![("x".to_owned(), x), ("y".to_owned(), Tensor::new(DType::I64, vec![SAMPLES], y.into())?)])
}

/// Of [`Case::names`]: a training of which nothing is recorded.
const UNRECORDED: usize = 4;

/// Trains a new run and gives the microseconds of a step, from the times that it recorded. `recorded` counts in binary:
/// 1 for event files, 2 for the ledger; [`UNRECORDED`] stands for itself.
fn train(scratch: &Path, case: &Case, data: &Path, steps: u64, recorded: usize) -> anyhow::Result<f64> {
    let Case { model, batch, .. } = case;
    let text = format!(
        "[model]\nzoo = \"{model}\"\n[data]\ntrain = {{ file = \"{}\", x = \"x\", y = \"y\" }}\n[train]\n\
         loss = \"cross_entropy\"\noptimizer = \"sgd\"\nbatch = {batch}\nseed = 1\nsteps = {steps}\n\
         checkpoint_every = \"never\"\n",
        data.display()
    );
    let file = scratch.join("run.toml");
    std::fs::write(&file, text)?;
    if recorded == UNRECORDED {
        return in_own_process(&file);
    }
    let run = scratch.join("runs/run");
    let mut command = own_program().command();
    command.args(["--output", "quiet", "train"]).arg(&file).arg("--run-dir").arg(&run);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.env("PHALANX_TENSORBOARD", if recorded & 1 == 0 { "off" } else { "on" });
    match recorded & 2 {
        0 => command.env(LEDGER_VARIABLE, "none"),
        _ => command.env_remove(LEDGER_VARIABLE),
    };
    let ended = command.status().context("could not start a training")?;
    ensure!(ended.success(), "a training failed ({ended})");
    let took = step_us(&run.join(METRICS));
    // The next one begins with nothing, too.
    std::fs::remove_dir_all(scratch.join("runs"))?;
    took
}

/// Trains a run file in a process of its own, as the others are; gives the microseconds of a step.
fn in_own_process(file: &Path) -> anyhow::Result<f64> {
    let mut command = own_program().command();
    command.args(["--output", "quiet", "bench", "ledger", "--unrecorded"]).arg(file);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let ended = command.output().context("could not start a training")?;
    ensure!(ended.status.success(), "a training failed ({})", ended.status);
    Ok(std::str::from_utf8(&ended.stdout)?.trim().parse()?)
}

/// Trains a run file in this process and records nothing; gives the microseconds of a step, without the first tenth.
pub(super) fn unrecorded(file: &Path) -> anyhow::Result<f64> {
    let file = RunFile::load(file, &[])?;
    let compute = Compute::cpu(file.config.threads());
    let task = Task::new(file.config, &compute.threads)?;
    let steps = task.total_steps().context("a run file without a number of steps")?;
    let (mut from, mut to) = (None, None);
    let mut observer = |event: RunEvent| {
        if let Event::Step(record) = event.event {
            let now = Some((record.step, Instant::now()));
            if record.step <= (steps / 10).max(1) {
                from = now;
            }
            to = now;
        }
    };
    Trainer::in_memory(task, compute)?.run(&AtomicBool::new(false), &mut observer)?;
    let ((first, begin), (last, end)) = from.zip(to).context("no step was done")?;
    ensure!(last > first, "too few steps to measure");
    Ok((end - begin).as_secs_f64() * 1e6 / (last - first) as f64)
}

/// Between the end of the first tenth and the end of a run, from one record to the next.
fn step_us(metrics: &PathBuf) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(metrics)?;
    let lines: Vec<&str> = text.lines().collect();
    let place = |line: Option<&&str>| -> anyhow::Result<(f64, f64)> {
        let line: Value = serde_json::from_str(line.context("nothing was recorded")?)?;
        let number = |name: &str| line.get(name).and_then(Value::as_f64);
        number("step").zip(number("unix_ms")).context("a record without its time")
    };
    let (from, to) = (place(lines.get(lines.len() / 10))?, place(lines.last())?);
    Ok((to.1 - from.1) * 1e3 / (to.0 - from.0))
}
