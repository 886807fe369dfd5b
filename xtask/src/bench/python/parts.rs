//! The parts of the benchmark: each takes turns between both sides and gives rows.

use super::super::{json, median, number};
use super::Bench;
use crate::bench::rows::{Bar, Row};
use crate::tool::tool;
use anyhow::Context;
use serde_json::{Value, json};

const RAY: &str = "Ray";
const GLOO: &str = "Gloo";
const TORCH: &str = "torch";
/// Fresh interpreters that import the package.
const IMPORTS: usize = 10;
/// What importing the package may take, in milliseconds.
const MOST_IMPORT_MS: f64 = 50.0;

pub(super) fn calls(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        ours.push(json(&bench.script("python_calls.py", &["phalanx"])?)?);
        theirs.push(json(&bench.script("python_calls.py", &["ray"])?)?);
    }
    let rows = [
        ("no-op calls", "1/s", "calls_per_s", true, Some(10.0)),
        ("round trip p50", "µs", "rtt_p50_us", false, Some(5.0)),
        ("round trip p99", "µs", "rtt_p99_us", false, None),
        ("16 MB there and back p50", "µs", "array_16mb_p50_us", false, Some(3.0)),
        ("16 MB plus one p50", "µs", "array_16mb_plus_one_p50_us", false, Some(3.0)),
    ];
    let row = |(what, unit, key, more_is_better, least): (&str, _, &str, _, _)| {
        let peer = Some((RAY, median(&theirs, key)?));
        let (what, bar) = (what.to_owned(), Bar::TimesBetter(least));
        Ok(Row { part: "calls", what, unit, ours: median(&ours, key)?, peer, more_is_better, bar })
    };
    rows.into_iter().map(row).collect()
}

pub(super) fn chain(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        ours.push(json(&bench.script("python_chain.py", &["phalanx"])?)?);
        theirs.push(json(&bench.script("python_chain.py", &["ray"])?)?);
    }
    let rows = [
        ("10 calls pass 256 MB on", "ms", "same_ms", Some(5.0)),
        ("memory of it, in arrays", "", "same_arrays", None),
        ("10 calls add one to 256 MB", "ms", "add_one_ms", None),
    ];
    let row = |(what, unit, key, least): (&str, _, &str, _)| {
        let peer = Some((RAY, median(&theirs, key)?));
        let (what, bar) = (what.to_owned(), Bar::TimesBetter(least));
        Ok(Row { part: "chain", what, unit, ours: median(&ours, key)?, peer, more_is_better: false, bar })
    };
    rows.into_iter().map(row).collect()
}

/// What ranks told in all rounds, by what was measured.
type Told = Vec<(String, Vec<Value>)>;

/// Has ranks measure once more.
fn ask_ranks(bench: &Bench, args: &[&str], all: &mut Told) -> anyhow::Result<()> {
    let told = json(&bench.script("python_ranks.py", args)?)?;
    for times in told.get("rows").and_then(Value::as_array).context("ranks told no times")? {
        let what =
            times.get("what").and_then(Value::as_str).context("ranks did not say what they measured")?;
        match all.iter_mut().find(|(known, _)| known == what) {
            Some((_, rounds)) => rounds.push(times.clone()),
            None => all.push((what.to_owned(), vec![times.clone()])),
        }
    }
    Ok(())
}

pub(super) fn collectives(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let row = |(what, rounds): (String, Vec<Value>)| {
        let least = match what.as_str() {
            "256 KiB" => Some(3.0),
            "64 MiB" => Some(2.5),
            _ => None,
        };
        Ok(Row {
            part: "collectives",
            what: format!("all-reduce of {what}"),
            unit: "ms",
            ours: median(&rounds, "phalanx")?,
            peer: Some((GLOO, median(&rounds, "peer")?)),
            more_is_better: false,
            bar: Bar::TimesBetter(least),
        })
    };
    let mut told = Told::new();
    for _ in 0..bench.rounds {
        ask_ranks(bench, &["collectives"], &mut told)?;
    }
    told.into_iter().map(row).collect()
}

/// Each side as its users start it; then both in the same processes, with what computing takes without any exchange.
pub(super) fn step(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let [mut ours, mut theirs, mut both] = [const { Told::new() }; 3];
    for _ in 0..bench.rounds {
        ask_ranks(bench, &["step", "--side", "phalanx"], &mut ours)?;
        ask_ranks(bench, &["step", "--side", "peer"], &mut theirs)?;
        ask_ranks(bench, &["step", "--side", "both"], &mut both)?;
    }
    let mut rows = Vec::new();
    let row = |what: String, ours, theirs, bar| Row {
        part: "step",
        what,
        unit: "ms",
        ours,
        peer: Some(("torch DDP", theirs)),
        more_is_better: false,
        bar: Bar::ShareOfTime(bar),
    };
    for ((what, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        let (ours, theirs) = (median(ours, "phalanx")?, median(theirs, "peer")?);
        rows.push(row(format!("{what}, as users start them"), ours, theirs, Some(0.9)));
    }
    for (what, rounds) in &both {
        let theirs = median(rounds, "peer")?;
        rows.push(row(format!("{what}, same processes"), median(rounds, "phalanx")?, theirs, None));
        rows.push(row(format!("{what}, no exchange"), median(rounds, "alone")?, theirs, None));
        let theirs = median(rounds, "peer_cpu")?;
        rows.push(row(format!("{what}, processor"), median(rounds, "phalanx_cpu")?, theirs, None));
    }
    Ok(rows)
}

pub(super) fn fit(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    // Random images take as long as real ones.
    let cifar = crate::data::cifar_10().map(|dir| dir.join("cifar-10.safetensors")).ok();
    let cifar = cifar.map(|file| file.to_string_lossy().into_owned());
    let mut rows = Vec::new();
    for case in ["digits", "cifar"] {
        let more: Vec<&str> = match &cifar {
            Some(file) if case == "cifar" => vec!["--cifar", file],
            _ => Vec::new(),
        };
        let side = |name: &str| json(&bench.script("python_fit.py", &[&[name, case], &more[..]].concat())?);
        let (mut ours, mut theirs, mut command) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..bench.rounds {
            ours.push(side("phalanx")?);
            theirs.push(side("torch")?);
            command.push(side("command")?);
        }
        let key = "pass_ms";
        let theirs = median(&theirs, key)?;
        let command = median(&command, key)?;
        let row = |what: &str, ours, bar| Row {
            part: "fit",
            what: format!("{case}: {what}"),
            unit: "ms a pass",
            ours,
            peer: Some((TORCH, theirs)),
            more_is_better: false,
            bar: Bar::TimesBetter(bar),
        };
        rows.push(row("phalanx train", command, None));
        rows.push(row("phalanx.fit", median(&ours, key)?, Some(theirs / command)));
    }
    Ok(rows)
}

pub(super) fn import(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let program = "import time; began = time.perf_counter(); import phalanx; \
                   print(1e3 * (time.perf_counter() - began))";
    let mut times = Vec::new();
    // Once more than is counted: the first writes compiled files and fills the cache of the system.
    for _ in 0..=IMPORTS {
        let printed = tool(&bench.python, &["-c", program]).capture()?;
        times.push(json!({ "ms": printed.trim().parse::<f64>().context("no time was printed")? }));
    }
    times.remove(0);
    let ours = median(&times, "ms")?;
    let slowest = times.iter().map(|time| number(time, "ms")).collect::<anyhow::Result<Vec<f64>>>()?;
    let slowest = slowest.into_iter().fold(0.0, f64::max);
    let row = |what: &str, ours, bar| Row {
        part: "import",
        what: what.to_owned(),
        unit: "ms",
        ours,
        peer: None,
        more_is_better: false,
        bar,
    };
    Ok(vec![
        row("import phalanx, median", ours, Bar::AtMost(MOST_IMPORT_MS)),
        row("import phalanx, slowest of 10", slowest, Bar::TimesBetter(None)),
    ])
}
