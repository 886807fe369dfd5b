//! `cargo xtask bench python`: the Python package against what its users know.
//!
//! ```text
//!   calls        functions on two workers            against Ray
//!   chain        calls that take each other's results, 256 MB   against Ray
//!   collectives  all-reduces of torch tensors        against Gloo through torch.distributed
//!   step         training steps of two ranks         against DDP with Gloo
//!   fit          phalanx.fit                         against a loop of torch, and against `phalanx train`
//!   import       import phalanx                      against a limit
//! ```

mod parts;

use super::{load, rows, say};
use crate::python::Environment;
use crate::tool::{root, tool};
use anyhow::Context;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct PythonArgs {
    /// What to measure; may be given several times, all when not given.
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// How many times each side is measured, in turn; medians are compared.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure the package that the environment has; it is built and installed when not given.
    #[arg(long)]
    no_build: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Calls,
    Chain,
    Collectives,
    Step,
    Fit,
    Import,
}

/// The interpreter that has both sides, and how often each is measured.
struct Bench {
    python: PathBuf,
    rounds: u32,
}

impl Bench {
    /// Runs one of our scripts and gives what it printed.
    fn script(&self, name: &str, args: &[&str]) -> anyhow::Result<String> {
        let script = root().join("xtask/bench").join(name).to_string_lossy().into_owned();
        let words = [&[script.as_str()], args].concat();
        // Ray would print what its workers say.
        tool(&self.python, &words).env("RAY_DEDUP_LOGS", "0").capture()
    }
}

pub(super) fn run(args: &PythonArgs) -> anyhow::Result<()> {
    let python = Environment::python_bench()?.install()?;
    if !args.no_build {
        let environment =
            python.parent().and_then(Path::parent).context("a Python outside of an environment")?;
        tool(&python, &["-m", "maturin", "develop", "--release", "--quiet"])
            .env("VIRTUAL_ENV", environment)
            .run()?;
    }
    let bench = Bench { python, rounds: args.rounds };
    let before = load();
    let mut rows = Vec::new();
    for part in Part::value_variants() {
        if !args.only.is_empty() && !args.only.contains(part) {
            continue;
        }
        let measured = match part {
            Part::Calls => parts::calls(&bench)?,
            Part::Chain => parts::chain(&bench)?,
            Part::Collectives => parts::collectives(&bench)?,
            Part::Step => parts::step(&bench)?,
            Part::Fit => parts::fit(&bench)?,
            Part::Import => parts::import(&bench)?,
        };
        // At once: a later part may fail.
        measured.iter().for_each(|row| say(&row.line().to_string()));
        rows.extend(measured);
    }
    rows::print(&rows);
    say(&format!("load of the machine: {before} before, {} after", load()));
    Ok(())
}
