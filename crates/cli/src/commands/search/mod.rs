//! `phalanx search`: architecture search.

mod export;
mod list;
mod plot;
mod progress;
mod replay;
mod run;
mod show;
mod source;
mod space;
mod status;

use crate::failure::Failure;
use crate::output::Output;
use anyhow::anyhow;
use clap::{Args, Subcommand};
use phalanx_records::Blame;
use phalanx_search_driver::{SearchError, is_search, list_searches};
use std::path::{Path, PathBuf};

/// Where searches are kept, from where the user stands.
pub(crate) const SEARCHES: &str = "searches";

#[derive(Debug, Args)]
pub(crate) struct SearchCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Search as a search file says: candidates are trained on nodes, partially at first, the best in full.
    Run(Box<run::RunArgs>),
    /// Go on with a search that was stopped or killed, as if nothing had happened.
    Resume(Box<run::ResumeArgs>),
    /// Say what a search file comes to, without training anything: how many candidates, what they cost.
    Space(space::SpaceArgs),
    /// List the searches there are.
    List(list::ListArgs),
    /// Show the trials of a search, also while it goes on.
    Status(status::StatusArgs),
    /// Show the front of a search, or one trial.
    Show(show::ShowArgs),
    /// Draw the front in the terminal, or write all plots again.
    Plot(plot::PlotArgs),
    /// Write models of a search as ONNX and safetensors, and check what the ONNX files are worth.
    Export(export::ExportArgs),
    /// Check the records of a search: decided again in the recorded order of results, are its candidates the same?
    Replay(replay::ReplayArgs),
}

pub(crate) async fn run(command: SearchCommand, output: Output) -> Result<(), Failure> {
    match command.verb {
        Verb::Run(args) => run::run(*args, output).await,
        Verb::Resume(args) => run::resume(*args, output).await,
        Verb::Space(args) => space::run(&args, output),
        Verb::List(args) => list::run(&args, output),
        Verb::Status(args) => status::run(&args, output).await,
        Verb::Show(args) => show::run(&args, output),
        Verb::Plot(args) => plot::run(&args, output),
        Verb::Export(args) => export::run(&args, output),
        Verb::Replay(args) => replay::run(&args, output),
    }
}

/// An error of a search with its exit code and what to do about it.
fn search_failure(error: impl Into<SearchError>) -> Failure {
    let error = error.into();
    let hint = error.hint();
    let failure = match error.blame() {
        Blame::Input => Failure::usage(error),
        Blame::Work => Failure::work(error),
        Blame::Machine => Failure::infrastructure(error),
    };
    failure.hint_if(hint)
}

/// Which search.
#[derive(Debug, Args)]
struct Which {
    /// The directory of the search, or its name in searches/; the newest when not given.
    #[arg(value_name = "SEARCH")]
    search: Option<PathBuf>,
}

impl Which {
    fn path(&self) -> Result<PathBuf, Failure> {
        match &self.search {
            Some(said) => Ok(search_path(said)),
            None => list_searches(Path::new(SEARCHES)).pop().ok_or_else(|| {
                Failure::usage(anyhow!("there is no search in {SEARCHES}/"))
                    .hint("searches are in the directory in which `phalanx search run` was started")
            }),
        }
    }
}

/// The directory of a search, which may be named as in listings.
fn search_path(said: &Path) -> PathBuf {
    let named = Path::new(SEARCHES).join(said);
    if !said.exists() && is_search(&named) { named } else { said.to_owned() }
}

/// A number as tables show it: as many digits as matter.
fn short(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        value.to_string()
    } else if value.fract() == 0.0 && size < 1e15 {
        format!("{value}")
    } else if (1e-3..1e6).contains(&size) {
        let text = format!("{value:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.3e}")
    }
}
