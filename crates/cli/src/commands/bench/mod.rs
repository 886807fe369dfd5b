//! `phalanx bench`: measures this machine.

mod allreduce;
mod infer;
mod jobs;
mod ledger;
mod numbers;
mod python;
mod stats;
mod store;
pub(crate) mod train;

use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct BenchCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Sums of tensors over processes of this machine.
    Allreduce(allreduce::AllreduceArgs),
    /// Jobs per second, round trips and memory of work distribution.
    Jobs(jobs::JobsArgs),
    /// Requests per second to a served model, and how long each takes.
    Infer(infer::InferArgs),
    /// Recorded points a second, questions about many runs, the cost of recording.
    Ledger(ledger::LedgerArgs),
    /// Calls of Python functions per second, round trips, and large arrays.
    Python(python::PythonArgs),
    /// Tensors, tail latencies and models of a store, from clients of this machine.
    Store(store::StoreArgs),
    /// Training steps of known models, and products of matrices.
    Train(train::TrainArgs),
}

pub(crate) async fn run(command: BenchCommand, output: Output) -> Result<(), Failure> {
    match command.what {
        What::Allreduce(args) => allreduce::run(&args, output),
        What::Jobs(args) => jobs::run(args, output).await,
        What::Infer(args) => infer::run(args, output).await,
        What::Ledger(args) => ledger::run(&args, output),
        What::Python(args) => python::run(args, output).await,
        What::Store(args) => store::run(&args, output),
        What::Train(args) => train::run(args, output),
    }
}
