//! Run directories as trainings leave them, written without training.

use anyhow::Context;
use phalanx_graph::zoo;
use phalanx_protocol::progress::Plan;
use phalanx_protocol::{Every, Length, PassLengths};
use phalanx_records::About;
use phalanx_wire::train::{RankReport, StepReport};
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;

/// A run file as it is resolved, but shorter.
pub(super) const RUN_TOML: &str = "name = \"bench\"\n[model]\nzoo = \"digits-cnn\"\n[data]\nscale = 0.0625\n\
    [train]\nloss = \"cross_entropy\"\nbatch = 64\nseed = 42\nepochs = 10\nmetrics = [\"accuracy\"]\n\
    [train.optimizer]\nname = \"adam\"\nlr = 0.001\nbeta1 = 0.9\nbeta2 = 0.999\n";

const MODELS: [&str; 3] = ["digits-cnn", "mlp", "cifar-cnn"];
/// Steps of a short run; with a validation it has a hundred metric points.
const STEPS: u64 = 24;

/// What a book knows of the run that is recorded.
pub(super) fn about(steps: u64) -> anyhow::Result<About> {
    let graph = zoo::build("mlp", &zoo::ZooOptions { input: None, classes: None })?;
    let plan = Plan {
        passes: PassLengths::Fixed(steps),
        length: Length::Steps(steps),
        validate: Every::Never,
        checkpoint: Every::Never,
        until: None,
    };
    Ok(About { graph, plan, classes: None, keep: 1 })
}

/// A step of one replica.
pub(super) fn report() -> StepReport {
    let rank = RankReport { samples: 64, compute_us: 900, ..RankReport::default() };
    StepReport {
        pass: 1,
        lr: 0.001,
        grad_norm: 1.5,
        took_us: 1000,
        ranks: vec![rank],
        ..StepReport::default()
    }
}

/// Writes the directories of finished runs, named after their numbers.
pub(super) fn write_short(runs: &Path, count: u64) -> anyhow::Result<()> {
    for number in 0..count {
        let mut metrics = String::new();
        let start = 1_790_000_000_000 + number * 60_000;
        for step in 1..=STEPS {
            let (loss, at) = (2.0 / (step + number % 7) as f64, start + step * 100);
            let _written = writeln!(
                metrics,
                "{{\"step\":{step},\"pass\":1,\"loss\":{loss},\"lr\":0.001,\"grad_norm\":{},\"samples_per_s\":{},\"unix_ms\":{at}}}",
                loss * 3.7,
                61_234.5 + loss
            );
        }
        let (val_loss, val_acc) = (0.1, (number * 37 % 100) as f64 / 100.0 + number as f64 * 1e-7);
        let _written = writeln!(
            metrics,
            "{{\"step\":{STEPS},\"pass\":1,\"val_loss\":{val_loss},\"val_acc\":{val_acc},\"unix_ms\":{}}}",
            start + 2500
        );
        let state = json!({ "state": "finished", "started": stamp(start), "ended": stamp(start + 3000),
            "model": MODELS[(number % 3) as usize], "total_steps": STEPS, "steps": STEPS, "loss": 0.08,
            "val_loss": val_loss, "val_acc": val_acc, "samples_per_s": 61_234.5, "wall_s": 3.0, "params_hash": "0" });
        write_run(&runs.join(format!("run-{number:06}")), number, &metrics, &state.to_string())?;
    }
    Ok(())
}

/// Writes the directory of a finished run with so many points of one metric.
pub(super) fn write_long(run: &Path, points: u64) -> anyhow::Result<()> {
    let mut metrics = String::with_capacity(points as usize * 64);
    for step in 1..=points {
        let loss = 1.0 / step as f64 + (step * 7919 % 1000) as f64 * 1e-6;
        let at = 1_780_000_000_000 + step;
        let _written = writeln!(metrics, "{{\"step\":{step},\"pass\":1,\"loss\":{loss},\"unix_ms\":{at}}}");
    }
    let state = json!({ "state": "finished", "started": stamp(1_780_000_000_000), "model": "mlp", "steps": points,
        "total_steps": points, "loss": 0.1, "wall_s": 1000.0 });
    write_run(run, u64::MAX, &metrics, &state.to_string())
}

fn write_run(run: &Path, number: u64, metrics: &str, state: &str) -> anyhow::Result<()> {
    let event = |seq: u64, event: &str, value: serde_json::Value| {
        format!(
            "{}\n",
            json!({ "seq": seq, "unix_ms": 1_790_000_000_000u64, "event": event, "value": value })
        )
    };
    let opened =
        json!({ "uid": format!("{number:032x}"), "step": 0, "metrics_bytes": 0, "host": "bench", "pid": 1 });
    let events = [
        event(0, "opened", opened),
        event(1, "started", json!({ "model": "digits-cnn", "parameters": 1000, "done": 0 })),
        event(2, "saved", json!({ "step": STEPS, "path": "checkpoints/step-000024" })),
        event(3, "ended", json!({ "state": "finished", "steps": STEPS })),
    ];
    let write = |name: &str, text: &str| {
        let path = run.join(name);
        std::fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))
    };
    std::fs::create_dir_all(run.join("checkpoints"))?;
    write("lock", "1\n")?;
    write("run.toml", RUN_TOML)?;
    write("metrics.jsonl", metrics)?;
    write("events.jsonl", &events.concat())?;
    write("state.json", state)
}

fn stamp(unix_ms: u64) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(unix_ms);
    humantime::format_rfc3339_seconds(time).to_string()
}
