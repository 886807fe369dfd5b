//! `phalanx job`: work distribution.

mod ask;
mod background;
mod cancel;
mod list;
mod past;
mod progress;
mod show;
mod spec;
mod submit;
mod summary;

pub(crate) use submit::main_failure;

use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct JobCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Hand out jobs to the computing nodes of a domain.
    Submit(Box<submit::SubmitArgs>),
    /// List the jobs of every main node, with why each waits.
    List(list::ListArgs),
    /// Show one job, with its solution if a main node in the background keeps it.
    ///
    /// That is so for jobs submitted on this machine without --wait, --local and --journal; the
    /// solution of another job is with the command that submitted it, or in its journal.
    Show(show::ShowArgs),
    /// End jobs, also those that run.
    Cancel(cancel::CancelArgs),
    /// Say in one sentence where a job stands and why.
    Explain(show::ExplainArgs),
}

pub(crate) async fn run(command: JobCommand, output: Output) -> Result<(), Failure> {
    match command.verb {
        Verb::Submit(args) => submit::run(*args, output).await,
        Verb::List(args) => list::run(args, output).await,
        Verb::Show(args) => show::run(args, output).await,
        Verb::Cancel(args) => cancel::run(args, output).await,
        Verb::Explain(args) => show::explain(args, output).await,
    }
}
