//! `phalanx run`: the runs there are.

mod claim;
mod columns;
mod compare;
mod curves;
mod export;
mod list;
mod plot;
mod pull;
mod push;
mod resume;
mod rm;
mod settings;
mod show;
mod tag;

pub(crate) use curves::{plot_size, wants_colour};

use crate::commands::train::RUNS;
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};
use phalanx_records::run_dir::is_run;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct RunCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List and find runs, with how each stands and why it failed.
    List(list::ListArgs),
    /// Show one run: what it was told, how far it got, what it came to.
    Show(show::ShowArgs),
    /// Go on with a run that was stopped or killed; it ends as if nothing had happened.
    Resume(Box<resume::ResumeArgs>),
    /// Set and remove tags of a run, to find it by.
    Tag(tag::TagArgs),
    /// Write a note about a run into its directory.
    Note(tag::NoteArgs),
    /// Delete runs with everything in their directories.
    Rm(rm::RemoveArgs),
    /// Draw metrics of runs in the terminal, or as SVG or PNG.
    Plot(plot::PlotArgs),
    /// Show how runs differ in their settings, and what they came to.
    Compare(compare::CompareArgs),
    /// Write the metrics of runs as CSV or Parquet.
    Export(export::ExportArgs),
    /// Send the files of a run to a directory, S3, Azure or Google Cloud.
    Push(push::PushArgs),
    /// Fetch a run that was pushed.
    Pull(pull::PullArgs),
    /// Claim a name for a time, so that one of several processes does something.
    Claim(claim::ClaimArgs),
    /// Give a claimed name back.
    Release(claim::ReleaseArgs),
}

pub(crate) async fn run(command: RunCommand, output: Output) -> Result<(), Failure> {
    match command.verb {
        Verb::List(args) => list::run(&args, output),
        Verb::Show(args) => show::run(args, output),
        Verb::Resume(args) => resume::run(*args, output).await,
        Verb::Tag(args) => tag::tag(&args, output),
        Verb::Note(args) => tag::note(&args, output),
        Verb::Rm(args) => rm::run(&args, output),
        Verb::Plot(args) => plot::run(&args, output),
        Verb::Compare(args) => compare::run(&args, output),
        Verb::Export(args) => export::run(&args, output),
        Verb::Push(args) => push::run(args, output).await,
        Verb::Pull(args) => pull::run(args, output).await,
        Verb::Claim(args) => claim::claim(args, output).await,
        Verb::Release(args) => claim::release(args).await,
    }
}

/// The directory of a run: itself, or the name of one in runs/.
fn run_path(given: &Path) -> PathBuf {
    let named = Path::new(RUNS).join(given);
    if !is_run(given) && is_run(&named) { named } else { given.to_owned() }
}
