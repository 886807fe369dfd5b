//! `phalanx simulate`: the real cores on simulated nodes.

mod jobs;
mod local;
mod stages;
mod train;
mod units;

use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct SimulateCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Work distribution under crashes, freezes, partitions and restarts.
    ///
    /// Each seed makes a small cluster and its misfortunes; invariants are checked after every
    /// event. The same seed gives the same trace, byte for byte.
    ///
    /// Examples:
    ///   phalanx simulate jobs --seeds 1000
    ///   phalanx simulate jobs --seed 17 --trace
    #[command(verbatim_doc_comment)]
    Jobs(jobs::JobsArgs),
    /// Elastic data-parallel training: how fast it would be, and what faults would cost.
    ///
    /// Nodes, links and time are simulated; who is in the group, how samples are shared, what is voted and who sends
    /// what to whom is decided by the real cores. Invariants are checked after every event, and the same seed gives
    /// the same run.
    ///
    /// Examples:
    ///   phalanx simulate train --replicas 64 --model resnet-18 --batch 4096 --link 10Gbps/100us --speed 500gflops
    ///   phalanx simulate train --replicas 4096 --host-ranks 8 --model resnet-18 --batch 65536 --link 1Gbps/20ms
    ///   phalanx simulate train --replicas 32 --batch 2048 --step-time 120ms --slow 0.1x4 --mtbf 10h --mttr 10m
    ///   phalanx simulate train --replicas 16 --exchange outer --every 20 --link 100Mbps/50ms --output json
    ///   phalanx simulate train --local --replicas 2 --model digits-cnn --batch 64
    #[command(verbatim_doc_comment)]
    Train(Box<train::TrainArgs>),
}

pub(crate) fn run(command: SimulateCommand, output: Output) -> Result<(), Failure> {
    match command.what {
        What::Jobs(args) => jobs::run(&args, output),
        What::Train(args) => train::run(&args, output),
    }
}
