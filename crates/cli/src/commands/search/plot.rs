//! `phalanx search plot`.

use super::{Which, search_failure};
use crate::commands::run::{plot_size, wants_colour};
use crate::failure::Failure;
use crate::output::{Output, Render};
use clap::Args;
use phalanx_search_driver::RESULTS;
use phalanx_search_results::files::front_plot;
use phalanx_search_results::{ResultsWriter, SearchFollower, SearchTable};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx search plot                            the front of the newest search, in the terminal
  phalanx search plot first --to plots/          tables and plots of every pair of objectives, as SVG and PNG")]
pub(crate) struct PlotArgs {
    #[command(flatten)]
    which: Which,
    /// Write all tables and plots here; results/ of the search has them, too.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Plotted {
    search: PathBuf,
    results: PathBuf,
    #[serde(skip)]
    picture: String,
}

impl Render for Plotted {
    fn table(&self) -> String {
        format!("{}\n\nwrote {}", self.picture, self.results.display())
    }

    fn quiet(&self) -> String {
        self.results.display().to_string()
    }
}

pub(crate) fn run(args: &PlotArgs, output: Output) -> Result<(), Failure> {
    let search = args.which.path()?;
    let follower = SearchFollower::open(&search).map_err(search_failure)?;
    let results = args.to.clone().unwrap_or_else(|| search.join(RESULTS));
    ResultsWriter::new(&results).write(follower.table()).map_err(search_failure)?;
    let picture = pictures(follower.table());
    output.print(&Plotted { search, results, picture })
}

/// The front of every pair of objectives, one under the other.
fn pictures(table: &SearchTable) -> String {
    let objectives = &table.about().objectives;
    let pairs =
        objectives.iter().enumerate().flat_map(|(at, x)| objectives[at + 1..].iter().map(move |y| (x, y)));
    let drawn: Vec<String> =
        pairs.map(|(x, y)| front_plot(table, x, y).terminal(plot_size(), wants_colour())).collect();
    match drawn.is_empty() {
        true => "a front takes two objectives".to_owned(),
        false => drawn.join("\n\n"),
    }
}
