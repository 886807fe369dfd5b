//! `cargo xtask bench python`: calls of Python functions.

use super::{json, median, say};
use crate::python::Environment;
use crate::tool::{root, tool};
use anyhow::Context;
use std::path::Path;

/// What is compared with, and what the package is built with.
const PACKAGES: [&str; 4] = ["ray==2.60.0", "numpy", "cloudpickle", "maturin==1.16.0"];

pub(super) fn run(rounds: usize) -> anyhow::Result<()> {
    let python = Environment::of("ray-python", &PACKAGES).install()?;
    let environment = python.parent().and_then(Path::parent).context("a Python outside of an environment")?;
    tool(&python, &["-m", "maturin", "develop", "--release", "--quiet"])
        .env("VIRTUAL_ENV", environment)
        .run()?;
    let script = root().join("xtask/bench/python_calls.py").to_string_lossy().into_owned();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(json(&tool(&python, &[script.as_str(), "phalanx"]).capture()?)?);
        theirs.push(json(&tool(&python, &[script.as_str(), "ray"]).env("RAY_DEDUP_LOGS", "0").capture()?)?);
    }
    let rows = [
        ("no-op calls/s", "calls_per_s", true),
        ("round trip p50, µs", "rtt_p50_us", false),
        ("round trip p99, µs", "rtt_p99_us", false),
        ("16 MB there and back p50, µs", "array_16mb_p50_us", false),
        ("16 MB plus one p50, µs", "array_16mb_plus_one_p50_us", false),
    ];
    say(&format!("{:<32}{:>12}{:>12}{:>10}", "", "phalanx", PACKAGES[0], "ratio"));
    for (name, key, higher_is_better) in rows {
        let (a, b) = (median(&ours, key)?, median(&theirs, key)?);
        let ratio = if higher_is_better { a / b } else { b / a };
        say(&format!("{name:<32}{a:>12.0}{b:>12.0}{ratio:>9.1}x"));
    }
    Ok(())
}
