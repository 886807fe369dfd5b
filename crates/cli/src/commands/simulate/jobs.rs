//! `phalanx simulate jobs`: the real cores of work distribution on simulated nodes.

use crate::failure::Failure;
use crate::output::{Output, Render, print_line, summary};
use anyhow::anyhow;
use clap::Args;
use phalanx_sim::jobs::{Options, run as run_seed};
use serde::Serialize;

#[derive(Debug, Args)]
pub(super) struct JobsArgs {
    /// Run this seed only.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run this many seeds, from 0 on.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Deliver half of all messages twice.
    #[arg(long)]
    doubled: bool,
    /// Print everything that happens, in simulated time.
    #[arg(long, requires = "seed")]
    trace: bool,
}

#[derive(Debug, Default, Serialize)]
struct Simulated {
    seeds: u64,
    events: u64,
    violations: Vec<Violated>,
}

#[derive(Debug, Serialize)]
struct Violated {
    seed: u64,
    what: String,
    replay: String,
}

impl Render for Simulated {
    fn table(&self) -> String {
        let mut rows = vec![
            ("seeds", self.seeds.to_string()),
            ("events", self.events.to_string()),
            ("violations", self.violations.len().to_string()),
        ];
        for v in &self.violations {
            rows.push(("violated", format!("seed {}: {}", v.seed, v.what)));
            rows.push(("replay", v.replay.clone()));
        }
        summary(rows)
    }

    fn quiet(&self) -> String {
        self.violations.iter().map(|v| v.seed.to_string()).collect::<Vec<_>>().join("\n")
    }
}

pub(super) fn run(args: &JobsArgs, output: Output) -> Result<(), Failure> {
    let (first, count) = args.seed.map_or((0, args.seeds), |seed| (seed, 1));
    let mut simulated = Simulated::default();
    for past_first in 0..count {
        let seed = first + past_first;
        let report =
            run_seed(seed, &Options { trace: args.trace, doubled: args.doubled, ..Options::default() });
        simulated.seeds += 1;
        simulated.events += report.events;
        if let Some(trace) = &report.trace {
            print_line(trace)?;
        }
        if let Some(violation) = report.violation {
            let doubled = if args.doubled { " --doubled" } else { "" };
            let replay = format!("phalanx simulate jobs --seed {seed}{doubled} --trace");
            simulated.violations.push(Violated {
                seed,
                what: format!("at {}: {}", violation.at, violation.what),
                replay,
            });
        }
    }
    output.print(&simulated)?;
    match simulated.violations.len() {
        0 => Ok(()),
        n => Err(Failure::work(anyhow!("{n} seeds violate an invariant"))),
    }
}
