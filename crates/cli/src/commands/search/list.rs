//! `phalanx search list`.

use super::{SEARCHES, search_failure};
use crate::failure::Failure;
use crate::output::{Output, Render, listing};
use clap::Args;
use phalanx_search::core::record::SearchEnd;
use phalanx_search_driver::list_searches;
use phalanx_search_results::SearchFollower;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx search list
  phalanx search list --output json")]
pub(crate) struct ListArgs {
    /// The directory with the searches; searches/ when not given.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Row {
    search: String,
    path: PathBuf,
    state: String,
    algorithm: String,
    trials: usize,
    of: u64,
    front: usize,
    hypervolume: Option<f64>,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Searches(Vec<Row>);

impl Render for Searches {
    fn table(&self) -> String {
        if self.0.is_empty() {
            return "no searches".to_owned();
        }
        let rows = self.0.iter().map(|row| {
            [
                row.search.clone(),
                row.state.clone(),
                row.algorithm.clone(),
                format!("{}/{}", row.trials, row.of),
                row.front.to_string(),
                row.hypervolume.map_or("-".to_owned(), |volume| format!("{volume:.4}")),
            ]
        });
        listing(["search", "state", "algorithm", "trials", "front", "hypervolume"], rows)
    }

    fn quiet(&self) -> String {
        self.0.iter().map(|row| row.search.as_str()).collect::<Vec<_>>().join("\n")
    }
}

/// How a search stands, in words.
pub(super) fn state(end: Option<&SearchEnd>) -> String {
    match end {
        None => "not ended".to_owned(),
        Some(SearchEnd::Finished) => "finished".to_owned(),
        Some(SearchEnd::Stopped) => "stopped".to_owned(),
        Some(SearchEnd::Failed { why }) => format!("failed: {why}"),
    }
}

pub(crate) fn run(args: &ListArgs, output: Output) -> Result<(), Failure> {
    let root = args.dir.as_deref().unwrap_or(Path::new(SEARCHES));
    let rows = list_searches(root).into_iter().map(|path| {
        let follower = SearchFollower::open(&path).map_err(search_failure)?;
        let table = follower.table();
        Ok(Row {
            search: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            state: state(table.end()),
            algorithm: table.about().algorithm.clone(),
            trials: table.rows().len(),
            of: table.about().trials,
            front: table.front().trials.len(),
            hypervolume: table.hypervolume().last().map(|point| point.hypervolume),
            path,
        })
    });
    output.print(&Searches(rows.collect::<Result<_, Failure>>()?))
}
