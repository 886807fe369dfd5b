//! `phalanx model`: what models are made of.

mod inspect;
mod list;

use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct ModelCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show a model's layers, shapes, parameters and what it costs to train.
    Inspect(inspect::InspectArgs),
    /// List the models that need no file.
    List(list::ListArgs),
}

pub(crate) fn run(command: ModelCommand, output: Output) -> Result<(), Failure> {
    match command.verb {
        Verb::Inspect(args) => inspect::run(args, output),
        Verb::List(args) => list::run(args, output),
    }
}
