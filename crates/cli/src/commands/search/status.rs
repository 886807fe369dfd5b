//! `phalanx search status`: the table of trials, also while it changes.

use super::source::Source;
use super::{Which, short};
use crate::failure::Failure;
use crate::output::{Output, Render, listing_of};
use crate::stop::StopSignals;
use clap::Args;
use phalanx_search_results::filter::select;
use phalanx_search_results::{Filter, FilterError, SortKey, TrialRow};
use serde::Serialize;
use std::time::Duration;

/// Between two looks at the records of a search that goes on.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx search status                          all trials of the newest search
  phalanx search status first --watch            until it ends or Ctrl-C
  phalanx search status --where state=running
  phalanx search status --where 'accuracy > 0.9 and params < 100000' --sort -accuracy --limit 10

Names: trial, archid, model, state, node, rung, budget, seconds, error, parents, starts, times (queued, started, ended),
every gene and every value. A search whose directory is not here is looked for in the ledger (PHALANX_LEDGER).")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    which: Which,
    /// Only trials for which this holds: comparisons with = != < <= > >= ~, and between them.
    #[arg(long = "where", value_name = "FILTER", default_value = "", hide_default_value = true)]
    filter: String,
    /// The order: names with commas between, a minus before those with the largest first.
    #[arg(
        long,
        value_name = "NAMES",
        allow_hyphen_values = true,
        default_value = "",
        hide_default_value = true
    )]
    sort: String,
    /// At most this many trials.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Show the table again whenever it changes, until the search ends.
    #[arg(long)]
    watch: bool,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Trials {
    rows: Vec<TrialRow>,
    #[serde(skip)]
    objectives: Vec<String>,
    #[serde(skip)]
    counts: String,
}

impl Render for Trials {
    fn table(&self) -> String {
        let mut header = vec!["trial", "archid", "state", "node", "budget"];
        header.extend(self.objectives.iter().map(String::as_str));
        header.push("error");
        let rows = self.rows.iter().map(|row| {
            let dash = || "-".to_owned();
            let budget = row.latest().map_or_else(dash, |result| short(result.budget));
            let value = |name: &String| match row.latest() {
                Some(result) => row.value_at(result, name),
                None => row.known.get(name).copied(),
            };
            let values = self.objectives.iter().map(|name| value(name).map_or_else(dash, short));
            let head = [
                row.trial.to_string(),
                row.archid.clone(),
                row.status.to_string(),
                row.node.clone().unwrap_or_else(dash),
                budget,
            ];
            head.into_iter().chain(values).chain([row.why.clone().unwrap_or_default()]).collect()
        });
        format!("{}\n\n{}", listing_of(&header, rows), self.counts)
    }

    fn quiet(&self) -> String {
        self.rows.iter().map(|row| row.trial.to_string()).collect::<Vec<_>>().join("\n")
    }
}

impl StatusArgs {
    fn view(&self, source: &Source, filter: &Filter) -> Result<Trials, Failure> {
        let table = source.table();
        let from = source.elsewhere().map(|place| format!("\nfrom the ledger: its files are at {place}"));
        let mut rows = select(table, filter, &SortKey::parse_all(&self.sort)).map_err(filter_failure)?;
        rows.truncate(self.limit.unwrap_or(usize::MAX));
        let counts = table.counts();
        let counts: Vec<String> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
        Ok(Trials {
            rows: rows.into_iter().cloned().collect(),
            objectives: table.about().objectives.iter().map(|objective| objective.name.clone()).collect(),
            counts: format!(
                "{} of {} trials: {}{}",
                table.rows().len(),
                table.about().trials,
                counts.join(", "),
                from.unwrap_or_default()
            ),
        })
    }
}

fn filter_failure(error: FilterError) -> Failure {
    let hint = error.hint();
    Failure::usage(error).hint(hint)
}

pub(crate) async fn run(args: &StatusArgs, output: Output) -> Result<(), Failure> {
    // A filter that cannot be understood is refused before anything is opened.
    let filter = Filter::parse(&args.filter).map_err(filter_failure)?;
    let mut source = Source::open(&args.which)?;
    if !args.watch {
        return output.print(&args.view(&source, &filter)?);
    }
    let mut stops = StopSignals::new()?;
    let mut pace = tokio::time::interval(LOOK);
    let mut changed = true;
    loop {
        if changed && !output.print_while_read(&args.view(&source, &filter)?)? {
            return Ok(());
        }
        if source.table().end().is_some() {
            return Ok(());
        }
        tokio::select! {
            _ = pace.tick() => {}
            () = stops.next() => return Ok(()),
        }
        changed = source.refresh()?;
    }
}
