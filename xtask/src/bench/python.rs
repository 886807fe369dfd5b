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

use super::parts::PartsArgs;
use crate::python::Environment;
use crate::tool::{root, tool};
use anyhow::Context;
use clap::ValueEnum;
use std::path::{Path, PathBuf};

pub(super) type PythonArgs = PartsArgs<Part>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
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
    args.measure(|part| match part {
        Part::Calls => parts::calls(&bench),
        Part::Chain => parts::chain(&bench),
        Part::Collectives => parts::collectives(&bench),
        Part::Step => parts::step(&bench),
        Part::Fit => parts::fit(&bench),
        Part::Import => parts::import(&bench),
    })
}
