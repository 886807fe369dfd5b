//! `cargo xtask bench allreduce`: sums over processes of one machine, ours, OpenMPI's and Gloo's in turn.
//!
//! Every turn starts its processes anew: ranks of OpenMPI that wait for their turn would take a core each.

mod peers;
mod table;

use super::{json, number, say};
use anyhow::Context;
use clap::{Args, ValueEnum};
use peers::{Sides, Transport};
use serde_json::Value;
use std::collections::BTreeMap;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SHARED_SIZES: [u64; 5] = [4 * KIB, 256 * KIB, 4 * MIB, 64 * MIB, 256 * MIB];
const TCP_SIZES: [u64; 3] = [256 * KIB, 4 * MIB, 64 * MIB];
const RANKS: [u32; 2] = [2, 4];

#[derive(Debug, Args)]
pub(super) struct AllreduceArgs {
    /// How many times each side is measured, in turn; medians are compared.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// One round only.
    #[arg(long)]
    quick: bool,
    /// Processes that take part; 2 and then 4 when not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: Option<u32>,
    /// How ranks reach each other; both ways, one after the other, when not given.
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// Who sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    /// Ours, with tensors in shared memory; over TCP in ordinary memory.
    Ours,
    /// Ours, with tensors in ordinary memory.
    OursPrivate,
    OpenMpi,
    Gloo,
}

/// What is compared: one line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    transport: Transport,
    ranks: u32,
    bytes: u64,
}

/// What all sides answered, round by round.
type Runs = BTreeMap<Case, BTreeMap<Side, Vec<Value>>>;

pub(super) fn run(args: &AllreduceArgs) -> anyhow::Result<()> {
    let sides = Sides::install()?;
    let rounds = if args.quick { 1 } else { args.rounds };
    let load_before = load();
    let mut runs = Runs::new();
    for round in 1..=rounds {
        for transport in args.transport.map_or(vec![Transport::Shared, Transport::Tcp], |one| vec![one]) {
            for ranks in args.ranks.map_or(RANKS.to_vec(), |one| vec![one]) {
                measure(&sides, transport, ranks, &mut runs)
                    .with_context(|| format!("round {round}, {} with {ranks} ranks", transport.word()))?;
            }
        }
    }
    let circumstances = table::Circumstances {
        rounds,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        versions: sides.versions()?,
        load: [load_before, load()],
    };
    let rows = table::rows(&runs, &circumstances)?;
    match args.output {
        Output::Table => table::print(&rows, &circumstances),
        Output::Json => say(&table::json(&rows, &circumstances).to_string()),
    }
    Ok(())
}

/// One turn of every side.
fn measure(sides: &Sides, transport: Transport, ranks: u32, runs: &mut Runs) -> anyhow::Result<()> {
    let sizes: &[u64] = match transport {
        Transport::Shared => &SHARED_SIZES,
        Transport::Tcp => &TCP_SIZES,
    };
    for side in [Side::Ours, Side::OursPrivate, Side::OpenMpi, Side::Gloo] {
        if side == Side::OursPrivate && transport == Transport::Tcp {
            continue;
        }
        let printed = sides.command(side, transport, ranks, sizes).capture()?;
        for run in list(&printed)? {
            let bytes = number(&run, "bytes")? as u64;
            let of_case = runs.entry(Case { transport, ranks, bytes }).or_default();
            of_case.entry(side).or_default().push(run);
        }
    }
    Ok(())
}

/// The results in what a side printed: a list on one line, or a single one.
fn list(output: &str) -> anyhow::Result<Vec<Value>> {
    match output.lines().rev().find(|line| line.starts_with('[')) {
        Some(line) => serde_json::from_str(line).context("could not read the results"),
        None => Ok(vec![json(output)?]),
    }
}

/// How many processes ran or wanted to, on average over the last minute.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}
