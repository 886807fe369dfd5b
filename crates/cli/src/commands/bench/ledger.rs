//! `phalanx bench ledger`: recording, questions and viewers, with runs in a temporary directory.

mod questions;
mod record;
mod runs;
mod training;
mod viewers;

use super::numbers::{Measured, Numbers};
use crate::failure::Failure;
use crate::output::{Output, print_line};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Runs are written to the temporary directory (TMPDIR), and removed in the end.

Example: phalanx bench ledger --only questions --runs 1000 --output json")]
pub(crate) struct LedgerArgs {
    /// What to measure; may be given several times, all when not given.
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// Steps that are recorded, each with four metrics.
    #[arg(long, value_name = "N", default_value_t = 250_000, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Runs that are searched, each with a hundred metric points.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..))]
    runs: u64,
    /// Points of the curve that is read.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    points: u64,
    /// How often trainings and questions are measured, in turn; medians count.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Train this run file, record nothing, and print the microseconds of a step.
    #[arg(long, value_name = "FILE", hide = true)]
    unrecorded: Option<PathBuf>,
    /// How long each training and the viewers take, about.
    #[arg(long, value_name = "DURATION", default_value = "4s", value_parser = crate::args::duration)]
    time: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Metric points per second: recorded as in a training, brought into a ledger, written for TensorBoard.
    Record,
    /// `run list --where`, `run show` and a long curve, with many runs.
    Questions,
    /// Steps of the same training without any record, with files, with event files, with the ledger, with both.
    Training,
    /// What a hundred viewers of a live run cost.
    Viewers,
}

pub(crate) fn run(args: &LedgerArgs, output: Output) -> Result<(), Failure> {
    if let Some(file) = &args.unrecorded {
        let step_us = training::unrecorded(file).map_err(Failure::infrastructure)?;
        return print_line(&step_us.to_string());
    }
    let mut numbers = Numbers::new();
    for part in Part::value_variants() {
        if !args.only.is_empty() && !args.only.contains(part) {
            continue;
        }
        let measured = match part {
            Part::Record => record::measure(args.steps),
            Part::Questions => questions::measure(args.runs, args.points, args.rounds),
            Part::Training => training::measure(args.rounds, args.time),
            Part::Viewers => viewers::measure(args.time),
        };
        numbers.extend(measured.map_err(Failure::infrastructure)?);
    }
    output.print(&Measured { numbers })
}
