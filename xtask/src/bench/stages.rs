//! `cargo xtask bench stages`: models cut over nodes.
//!
//! ```text
//!   digits    the walkthrough with three local nodes, 100 epochs: time, accuracy, processor time of nodes that wait
//!   predict   formations of several models: what the planner predicts against what a step then takes
//!   unequal   stages on nodes of 1×, 2× and 4× speed against the best that cuts allow, and an equal-parameters cut
//!   slow      asynchronous against exact stages over links of 10 ms and 100 Mbit/s
//! ```

use super::replicas::nodes::{Allowed, Nodes};
use super::replicas::{Bench, cifar, middle};
use super::{number, release, say};
use crate::tool::{cargo, root, tool};
use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(super) struct StagesArgs {
    /// What to measure; all when not given.
    what: Option<Which>,
    /// How many times each is measured; medians are told.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Digits,
    Predict,
    Unequal,
    Slow,
}

pub(super) fn run(args: &StagesArgs) -> anyhow::Result<()> {
    let wanted = |which| args.what.is_none_or(|what| what == which);
    if [Which::Digits, Which::Predict, Which::Unequal].into_iter().any(wanted) {
        let bench = Bench { phalanx: release()?, work: root().join("target/bench-stages") };
        if wanted(Which::Digits) {
            digits(&bench, args.rounds)?;
        }
        if wanted(Which::Predict) {
            predict(&bench, args.rounds)?;
        }
        if wanted(Which::Unequal) {
            unequal(&bench, args.rounds)?;
        }
    }
    if wanted(Which::Slow) {
        let test = "asynchronous_stages_learn_faster_over_slow_links";
        let args = ["test", "--package", "phalanx-driver", "--lib", test, "--", "--ignored", "--nocapture"];
        cargo(&args).run()?;
    }
    Ok(())
}

fn digits(bench: &Bench, rounds: u32) -> anyhow::Result<()> {
    let file = root().join("examples/decentralized-digits/run.toml");
    let file = file.to_str().context("a path that is no text")?;
    for round in 0..rounds {
        let dir = bench.fresh("digits")?;
        let began = Instant::now();
        let summary = bench.train(&[file, "--local", "3", "--run-dir", &dir.to_string_lossy()])?;
        let accuracy = 100.0 * number(&summary, "val_acc")?;
        say(&format!(
            "round {round}: three local nodes, 100 epochs in {:.1} s, {accuracy:.2} %",
            began.elapsed().as_secs_f64()
        ));
    }
    waiting(bench, file)
}

/// The processor time of nodes whose pipeline stands still, because one of them is frozen.
fn waiting(bench: &Bench, file: &str) -> anyhow::Result<()> {
    let domain = format!("bench-{}", std::process::id());
    let allowed = [Allowed::Core(0), Allowed::Core(1), Allowed::Core(1)];
    let nodes = Nodes::start(bench, &domain, &allowed)?;
    let dir = bench.fresh("waiting")?;
    let path = dir.to_string_lossy().into_owned();
    let heartbeat = ["--heartbeat", "60s"];
    let mut command = std::process::Command::new(&bench.phalanx);
    command
        .args(["train", file, "--run-dir", &path, "--domain", &domain, "--output", "quiet"])
        .args(heartbeat);
    command.env("PHALANX_RUNTIME_DIR", bench.work.join("domains"));
    let mut driver = command.spawn().context("could not start the driver")?;
    let metrics = dir.join("metrics.jsonl");
    let steps = || std::fs::read_to_string(&metrics).unwrap_or_default().lines().count();
    let until = Instant::now() + Duration::from_secs(60);
    while steps() < 50 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pids = nodes.pids();
    tool("kill", &["-STOP", &pids[2].to_string()]).run()?;
    std::thread::sleep(Duration::from_millis(500));
    let before: Vec<f64> = pids.iter().map(|pid| cpu_seconds(*pid)).collect::<anyhow::Result<_>>()?;
    let (began, at) = (Instant::now(), steps());
    std::thread::sleep(Duration::from_secs(5));
    let seconds = began.elapsed().as_secs_f64();
    for (pid, before) in pids.iter().zip(before).take(2) {
        let used = cpu_seconds(*pid)? - before;
        say(&format!("a node whose pipeline waits uses {:.2} % of a core", 100.0 * used / seconds));
    }
    say(&format!("steps meanwhile: {}", steps() - at));
    tool("kill", &["-CONT", &pids[2].to_string()]).run()?;
    driver.kill()?;
    driver.wait()?;
    Ok(())
}

/// Processor time of a process so far.
fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit_once(')').context("no stat")?.1;
    let field = |at: usize| rest.split_whitespace().nth(at).and_then(|n| n.parse::<f64>().ok());
    Ok((field(11).context("no user time")? + field(12).context("no system time")?) / 100.0)
}

/// A formation as a run recorded it last.
fn formation(dir: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(dir.join("formation.json"))?;
    let mut all: Value = serde_json::from_str(&text)?;
    let epochs = all["epochs"].as_array_mut().context("no epochs")?;
    epochs.pop().context("no epoch")
}

/// Stages, and replicas of them.
const SHAPES: [(usize, usize); 4] = [(2, 1), (3, 1), (4, 1), (2, 2)];

fn predict(bench: &Bench, rounds: u32) -> anyhow::Result<()> {
    let cifar = cifar(&bench.work)?.to_string_lossy().into_owned();
    let digits = root().join("examples/digits/run.toml").to_string_lossy().into_owned();
    let mobilenet = mobilenet(bench)?;
    let models: [(&str, &str, &[&str]); 3] = [
        ("digits-cnn", &digits, &["--epochs", "20"]),
        ("cifar-cnn", &cifar, &[]),
        ("mobilenet-v2", &mobilenet, &[]),
    ];
    let mut all = Vec::new();
    for (model, file, more) in models {
        for (stages, replicas) in SHAPES {
            let [local, cut, times] = [
                (stages * replicas).to_string(),
                format!("formation.stages={stages}"),
                format!("formation.replicas={replicas}"),
            ];
            let shape = ["--local", &local, "--set", &cut, "--set", &times];
            let (mut predicted, mut measured) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let dir = bench.fresh("predict")?;
                let path = dir.to_string_lossy().into_owned();
                bench.train(&[&[file, "--run-dir", &path][..], &shape, more].concat())?;
                let epoch = formation(&dir)?;
                predicted.push(number(&epoch, "predicted_step_ms")?);
                measured.push(number(&epoch, "measured_step_ms")?);
            }
            let (predicted, measured) = (middle(predicted), middle(measured));
            let ratio = predicted / measured;
            say(&format!(
                "{model}, {replicas} × {stages} stages: predicted {predicted:.2} ms, measured {measured:.2} ms, {ratio:.2}"
            ));
            all.push(ratio);
        }
    }
    let near = all.iter().filter(|ratio| (0.75..=1.25).contains(*ratio)).count();
    say(&format!("{near} of {} within 25 %", all.len()));
    Ok(())
}

/// Hundredths of a core of nodes of 1×, 2× and 4× speed.
const PERCENTS: [u32; 3] = [10, 20, 40];

/// A model of many operators on real images.
fn mobilenet(bench: &Bench) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(cifar(&bench.work)?)?;
    let text =
        text.replace("zoo = \"cifar-cnn\"", "zoo = \"mobilenet-v2\"\ninput = [3, 32, 32]\nclasses = 10");
    let file = bench.work.join("mobilenet.toml");
    std::fs::write(&file, text)?;
    Ok(file.to_string_lossy().into_owned())
}

fn unequal(bench: &Bench, rounds: u32) -> anyhow::Result<()> {
    let file = mobilenet(bench)?;
    let (mut of_best, mut of_equal) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let alone = ["--batch", "16", "--set", "train.accumulate=64", "--set", "formation.stages=1"];
        let whole = throughput(bench, &file, &PERCENTS[2..], &[&alone[..], &["--replicas", "1"]].concat())?.0;
        let more = ["--batch", "1024", "--set", "formation.stages=3", "--set", "formation.micro_batches=64"];
        let (planned, epoch) = throughput(bench, &file, &PERCENTS, &more)?;
        let limit = whole * f64::from(PERCENTS.iter().sum::<u32>()) / f64::from(PERCENTS[2]);
        let best = limit * balance(&epoch)?;
        let cuts = equal_parameters(bench)?;
        let cuts = format!("formation.cuts=[{cuts}]");
        // As tools that know no speeds do it: in the order of the pool.
        let unknown = ["--set", &cuts, "--set", "formation.measure=false"];
        let (equal, _) = throughput(bench, &file, &PERCENTS, &[&more[..], &unknown].concat())?;
        say(&format!(
            "round {round}: one node of 4× speed {whole:.1}, three of 1×, 2×, 4× could do {limit:.1}, cuts allow \
             {best:.1}; planned {planned:.1} ({:.3} of that); equal parameters {equal:.1} ({:.2}×) samples/s",
            planned / best,
            planned / equal
        ));
        of_best.push(planned / best);
        of_equal.push(planned / equal);
    }
    say(&format!("unequal: {:.3} of the best that cuts allow (bar: 0.85)", middle(of_best)));
    say(&format!("unequal: {:.2}× an equal-parameters cut (bar: 1.5)", middle(of_equal)));
    Ok(())
}

/// How evenly a formation keeps its nodes busy: 1 when all are as busy as the busiest.
fn balance(epoch: &Value) -> anyhow::Result<f64> {
    let stages = epoch["replicas"][0]["stages"].as_array().context("no stages")?;
    let mut work = 0.0;
    let mut busiest = 0.0f64;
    for stage in stages {
        let busy = number(stage, "predicted_busy_ms")?;
        let node = stage["node"].as_str().unwrap_or_default();
        let place = node.strip_prefix('r').and_then(|rest| rest.split('-').next()?.parse::<usize>().ok());
        let speed = f64::from(PERCENTS[place.context("no such node")?]);
        work += busy * speed;
        busiest = busiest.max(busy);
    }
    Ok(work / (busiest * f64::from(PERCENTS.iter().sum::<u32>())))
}

/// The operators before which the model is cut into three parts with about as many parameters each.
fn equal_parameters(bench: &Bench) -> anyhow::Result<String> {
    let output = tool(
        &bench.phalanx,
        &[
            "model",
            "inspect",
            "zoo:mobilenet-v2",
            "--input",
            "3,32,32",
            "--classes",
            "10",
            "--output",
            "json",
        ],
    )
    .capture()?;
    let model: Value = serde_json::from_str(&output)?;
    let ops = model["layers"].as_array().context("no operators of the model")?;
    let sizes: Vec<(String, f64)> = (ops.iter())
        .map(|op| Ok((op["name"].as_str().context("no name")?.to_owned(), number(op, "parameters")?)))
        .collect::<anyhow::Result<_>>()?;
    let all: f64 = sizes.iter().map(|(_, size)| size).sum();
    let (mut before, mut cuts) = (0.0, Vec::new());
    for (name, size) in &sizes {
        if before >= all * (cuts.len() + 1) as f64 / 3.0 && cuts.len() < 2 && before > 0.0 {
            cuts.push(format!("\"{name}\""));
        }
        before += size;
    }
    // One operator may hold nearly everything: then the last cut is behind it, or before the last operator.
    if cuts.len() < 2 {
        let last =
            sizes.iter().rev().map(|(name, _)| format!("\"{name}\"")).find(|name| !cuts.contains(name));
        cuts.extend(last);
    }
    Ok(cuts.join(", "))
}

/// Samples per second of the second half of a run on nodes with parts of cores, and its formation.
fn throughput(bench: &Bench, file: &str, percents: &[u32], more: &[&str]) -> anyhow::Result<(f64, Value)> {
    let domain = format!("bench-{}", std::process::id());
    let allowed: Vec<Allowed> = percents.iter().map(|percent| Allowed::Percent(*percent)).collect();
    let _nodes = Nodes::start(bench, &domain, &allowed)?;
    let dir = bench.fresh("unequal")?;
    let path = dir.to_string_lossy().into_owned();
    let args = [file, "--domain", &domain, "--steps", "6", "--heartbeat", "10s", "--run-dir", &path];
    bench.train(&[&args[..], more].concat())?;
    let text = std::fs::read_to_string(dir.join("metrics.jsonl"))?;
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let half = lines.get(lines.len() / 2..).unwrap_or_default();
    let seconds: Vec<f64> =
        half.iter().map(|line| Ok(1.0 / number(line, "samples_per_s")?)).collect::<anyhow::Result<_>>()?;
    Ok((seconds.len() as f64 / seconds.iter().sum::<f64>(), formation(&dir)?))
}
