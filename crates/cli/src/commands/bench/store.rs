//! `phalanx bench store`: a store in a process of its own, and clients in this one.

mod inference;
mod served;
mod socket;
mod tail;
mod trainer;
mod values;

use super::numbers::{Measured, Numbers};
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, ValueEnum};
use phalanx_store_client::{Store, StoreOptions};
use served::Served;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx bench store --only tail --output json")]
pub(crate) struct StoreArgs {
    /// What to measure; may be given several times, all when not given.
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// A store or a Redis to measure, whose keys that begin with `bench:` are written; one is started when not given.
    #[arg(long, value_name = "ADDRESS")]
    at: Option<String>,
    /// How long each measurement takes.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = crate::args::duration)]
    time: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// 1 KB tensors, there and back.
    Small,
    /// Tensors of 16 and 193 MB, against a copy in memory.
    Large,
    /// How long 1 KB GETs take beside ten GETs of 10 MB a second.
    Tail,
    /// 1 MB values over plain sockets.
    Socket,
    /// Requests per second to a model, alone and joined.
    Inference,
    /// Trainers fed by a stream and by a file, and the commands that a waiting one sends.
    Trainer,
}

pub(crate) fn run(args: &StoreArgs, output: Output) -> Result<(), Failure> {
    let served = match &args.at {
        Some(address) => Served::elsewhere(address),
        None => Served::start()?,
    };
    let mut numbers = Numbers::new();
    for part in Part::value_variants() {
        if !args.only.is_empty() && !args.only.contains(part) {
            continue;
        }
        let measured = match part {
            Part::Small => values::small(served.address(), args.time)?,
            Part::Large => values::large(served.address(), args.time)?,
            Part::Tail => tail::measure(served.address(), args.time)?,
            Part::Socket => socket::measure(served.address(), args.time)?,
            Part::Inference => inference::measure(served.address(), args.time)?,
            Part::Trainer => trainer::measure(served.address(), args.time)?,
        };
        numbers.extend(measured);
    }
    output.print(&Measured { numbers })
}

fn connect(address: &str) -> Result<Store, Failure> {
    Store::connect(address, StoreOptions::default()).map_err(crate::commands::store::failure)
}
