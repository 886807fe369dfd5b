//! `phalanx bench allreduce`: sums of tensors over ranks, each of which is a process of its own.
//!
//! ```text
//!   this process  (start)                   a rank: this binary again  (rank)
//!     starts the ranks            ------>
//!                                 <------   where it can be reached, one line
//!     tells everybody everything  ------>   connects, warms up, measures size after size
//!                                 <------   how long every call took, one line
//! ```

mod copy;
mod meet;
mod rank;
mod start;

use super::stats::median;
use crate::args::duration;
use crate::failure::Failure;
use crate::output::{Output, Render, listing};
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use phalanx_types::ByteSize;
use rank::Times;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx bench allreduce --ranks 4
  phalanx bench allreduce --ranks 2 --size 4KiB --size 64MiB --limit --output json")]
pub(crate) struct AllreduceArgs {
    /// Processes that take part.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    ranks: u32,
    /// The size of a tensor of f32; may be given several times.
    #[arg(long = "size", value_name = "SIZE", default_values = ["4KiB", "256KiB", "4MiB", "64MiB"], value_parser = size)]
    sizes: Vec<ByteSize>,
    /// How ranks reach each other.
    #[arg(long, value_enum, default_value_t = Transport::Shared)]
    transport: Transport,
    /// Keep tensors in ordinary memory, not in memory that ranks share.
    #[arg(long)]
    private: bool,
    /// Also measure how fast all cores copy memory, and which share of that limit is reached.
    #[arg(long)]
    limit: bool,
    /// How long a size is measured.
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration)]
    time: Duration,
    /// Be this rank, for the process that measures.
    #[arg(long, hide = true, requires = "die_with")]
    rank: Option<u32>,
    /// End with this process.
    #[arg(long, hide = true)]
    die_with: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Transport {
    /// Memory of one host.
    Shared,
    /// TCP over loopback.
    Tcp,
}

/// Where a tensor stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Buffers {
    Shared,
    Private,
}

/// Reads the size of a tensor of f32.
fn size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error: phalanx_types::ParseSizeError| error.to_string())?;
    let fits = size.0 > 0 && size.0.is_multiple_of(4) && usize::try_from(size.0).is_ok();
    if fits { Ok(size) } else { Err("expected a multiple of 4 bytes, the size of f32".to_owned()) }
}

impl AllreduceArgs {
    fn buffers(&self) -> Buffers {
        if self.private || self.transport == Transport::Tcp { Buffers::Private } else { Buffers::Shared }
    }
}

/// How one size was summed.
#[derive(Debug, Serialize)]
struct Measured {
    ranks: u32,
    bytes: u64,
    /// The bytes of the tensor, not those that travel, in the median time.
    algbw_gb_s: f64,
    /// The median over calls of the time of the slowest rank.
    latency_us: f64,
    /// CPU time of all ranks together for one call.
    cpu_us: f64,
    algorithm: String,
    transport: Transport,
    buffers: Buffers,
    calls: usize,
    #[serde(flatten)]
    limit: Option<Limit>,
}

/// What this machine's memory lets one hope for.
#[derive(Debug, Serialize)]
struct Limit {
    /// What all cores together read and write when they copy.
    copy_gb_s: f64,
    /// The rate at which every rank's tensor would be read once and written once, and nothing else.
    limit_gb_s: f64,
    /// What was reached of it.
    limit_share: f64,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Table(Vec<Measured>);

const HEADER: [&str; 9] =
    ["size", "ranks", "GB/s", "latency us", "cpu us", "algorithm", "transport", "buffers", "limit"];

impl Measured {
    /// Puts together what the ranks say of one size.
    fn new(args: &AllreduceArgs, ranks: &[&Times]) -> Result<Self, Failure> {
        let first = ranks.first().filter(|first| !first.nanos.is_empty());
        let first = first.ok_or_else(|| Failure::infrastructure(anyhow!("nothing was measured")))?;
        if ranks.iter().any(|rank| (rank.bytes, rank.nanos.len()) != (first.bytes, first.nanos.len())) {
            return Err(Failure::infrastructure(anyhow!("the ranks measured different things")));
        }
        let calls = first.nanos.len();
        let slowest = |call: usize| ranks.iter().map(|rank| rank.nanos[call]).max().unwrap_or_default();
        let mut micros: Vec<f64> = (0..calls).map(|call| slowest(call) as f64 / 1e3).collect();
        let latency_us = median(&mut micros);
        let cpu_nanos: u64 = ranks.iter().map(|rank| rank.cpu_nanos).sum();
        Ok(Self {
            ranks: args.ranks,
            bytes: first.bytes,
            algbw_gb_s: first.bytes as f64 / latency_us / 1e3,
            latency_us,
            cpu_us: cpu_nanos as f64 / 1e3 / calls as f64,
            algorithm: first.algorithm.clone(),
            transport: args.transport,
            buffers: args.buffers(),
            calls,
            limit: None,
        })
    }

    fn with_limit(mut self) -> Result<Self, Failure> {
        let memory = self.bytes.saturating_mul(u64::from(self.ranks));
        let copy_gb_s = copy::rate(memory)? / 1e9;
        let limit_gb_s = copy_gb_s / (2.0 * f64::from(self.ranks));
        self.limit = Some(Limit { copy_gb_s, limit_gb_s, limit_share: self.algbw_gb_s / limit_gb_s });
        Ok(self)
    }

    fn row(&self) -> [String; 9] {
        let word = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let limit = self.limit.as_ref();
        [
            ByteSize(self.bytes).to_string(),
            self.ranks.to_string(),
            format!("{:.2}", self.algbw_gb_s),
            format!("{:.1}", self.latency_us),
            format!("{:.1}", self.cpu_us),
            self.algorithm.clone(),
            word(&self.transport),
            word(&self.buffers),
            limit.map_or(String::new(), |limit| format!("{:.0}%", limit.limit_share * 100.0)),
        ]
    }
}

impl Render for Measured {
    fn table(&self) -> String {
        listing(HEADER, [self.row()])
    }

    fn quiet(&self) -> String {
        format!("{:.3}", self.algbw_gb_s)
    }
}

impl Render for Table {
    fn table(&self) -> String {
        listing(HEADER, self.0.iter().map(Measured::row))
    }

    fn quiet(&self) -> String {
        self.0.iter().map(Measured::quiet).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: &AllreduceArgs, output: Output) -> Result<(), Failure> {
    if let (Some(rank), Some(parent)) = (args.rank, args.die_with) {
        return rank::run(args, rank as usize, parent);
    }
    let ranks = start::measure(args)?;
    let mut rows = Vec::new();
    for size in 0..args.sizes.len() {
        let of_size: Vec<&Times> = ranks.iter().filter_map(|rank| rank.get(size)).collect();
        let measured = Measured::new(args, &of_size)?;
        rows.push(if args.limit { measured.with_limit()? } else { measured });
    }
    // One size is one object, as one model is in the benchmark of training.
    match <[Measured; 1]>::try_from(rows) {
        Ok([one]) => output.print(&one),
        Err(rows) => output.print(&Table(rows)),
    }
}
