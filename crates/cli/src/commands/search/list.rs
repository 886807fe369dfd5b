//! `phalanx search list`.

use super::source::elsewhere;
use super::{SEARCHES, search_failure};
use crate::commands::ledger::{ledger_failure, ledger_of_searches};
use crate::failure::Failure;
use crate::output::{Output, Render, listing};
use clap::Args;
use phalanx_search::core::record::SearchEnd;
use phalanx_search_driver::list_searches;
use phalanx_search_results::{SearchFollower, SearchTable};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx search list
  phalanx search list --output json")]
pub(crate) struct ListArgs {
    /// The directory with the searches; searches/, and the searches of the ledger, when not given.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Row {
    search: String,
    path: PathBuf,
    /// The host and place of its files, if the ledger alone tells of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    elsewhere: Option<String>,
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
                row.elsewhere.clone().unwrap_or_default(),
            ]
        });
        listing(["search", "state", "algorithm", "trials", "front", "hypervolume", "elsewhere"], rows)
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

impl Row {
    fn new(search: String, path: PathBuf, table: &SearchTable) -> Self {
        Self {
            search,
            path,
            elsewhere: None,
            state: state(table.end()),
            algorithm: table.about().algorithm.clone(),
            trials: table.rows().len(),
            of: table.about().trials,
            front: table.front().trials.len(),
            hypervolume: table.hypervolume().last().map(|point| point.hypervolume),
        }
    }
}

/// Searches of the ledger whose files are not among these.
fn elsewhere_than(here: &[PathBuf]) -> Result<Vec<Row>, Failure> {
    let Some(ledger) = ledger_of_searches(Path::new(SEARCHES)) else { return Ok(Vec::new()) };
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_missing| path.to_owned());
    let here: Vec<PathBuf> = here.iter().map(|path| whole(path)).collect();
    let mut rows = Vec::new();
    for found in ledger.searches().map_err(ledger_failure)? {
        if found.here && here.contains(&whole(&found.path)) {
            continue;
        }
        if let Some(table) = ledger.search_table(&found).map_err(ledger_failure)? {
            let place = elsewhere(&found);
            rows.push(Row { elsewhere: Some(place), ..Row::new(found.search, found.path, &table) });
        }
    }
    Ok(rows)
}

pub(crate) fn run(args: &ListArgs, output: Output) -> Result<(), Failure> {
    let here = list_searches(args.dir.as_deref().unwrap_or(Path::new(SEARCHES)));
    let mut rows = match args.dir {
        Some(_) => Vec::new(),
        None => elsewhere_than(&here)?,
    };
    for path in here {
        let follower = SearchFollower::open(&path).map_err(search_failure)?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        rows.push(Row::new(name, path, follower.table()));
    }
    output.print(&Searches(rows))
}
