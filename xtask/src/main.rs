//! The project's own chores: `cargo xtask test` checks everything, `cargo xtask bench` compares
//! with other systems.

mod background;
mod bench;
mod browser;
mod data;
mod links;
mod purity;
mod python;
mod replay_builds;
mod test;
mod tool;
mod watch;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "xtask", about = "Chores of the Phalanx project")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Install what tests need, then check format, links, lints, docs, units, simulation, black box.
    Test(test::TestArgs),
    /// Rewrite the golden bytes of the wire format after a wanted change.
    Golden,
    /// Measure against other systems, side by side.
    Bench(bench::BenchArgs),
    /// Record runs under faults and replay them with another build: all decisions must be the same.
    ReplayBuilds(replay_builds::ReplayBuildsArgs),
    /// Fetch data sets for examples and benchmarks into `datasets/`.
    Data(data::DataArgs),
    /// Run a test binary, and kill it when a test takes too long.
    #[command(hide = true)]
    Watch(watch::WatchArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    let done = match Cli::parse().chore {
        Chore::Test(args) => test::run(&args),
        Chore::Golden => tool::cargo(&["test", "--package", "phalanx-wire", "--test", "golden"])
            .env("UPDATE_GOLDEN", "1")
            .run(),
        Chore::Bench(args) => bench::run(&args),
        Chore::ReplayBuilds(args) => replay_builds::run(&args),
        Chore::Data(args) => data::run(&args),
        Chore::Watch(args) => return watch::run(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
