//! `phalanx search replay`: checks the recorded decisions of a search.

use super::{Which, search_failure};
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use anyhow::anyhow;
use clap::Args;
use phalanx_search::core::control::{Difference, ReplayReport};
use phalanx_search::core::record::SearchRecord;
use phalanx_search_driver::replay;
use serde::Serialize;
use std::path::PathBuf;

/// So many differences are printed in a table; JSON has all.
const PRINTED: usize = 10;

/// Check the records of a search: decided again in the recorded order of results, are its candidates the same?
///
/// Ends with 0 when every recorded decision is the one that follows from the records before it, with 1
/// when any differs, with 2 when there is no search or its records are damaged. Nothing is written or
/// trained; the search may go on meanwhile.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx search replay                          the newest search
  phalanx search replay searches/first --output json    every difference, whole")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    which: Which,
}

/// What a check found.
#[derive(Debug, Serialize)]
struct Replayed {
    search: PathBuf,
    #[serde(flatten)]
    report: ReplayReport,
}

impl Render for Replayed {
    fn table(&self) -> String {
        let report = &self.report;
        let mut text = summary(vec![
            ("search", self.search.display().to_string()),
            ("records", report.records.to_string()),
            ("candidates", report.candidates.to_string()),
            ("decisions", report.decisions.to_string()),
            ("differences", report.differences.len().to_string()),
        ]);
        for Difference { line, recorded, decided } in report.differences.iter().take(PRINTED) {
            let decided = decided.as_ref().map_or_else(|| "nothing".to_owned(), json);
            text.push_str(&format!("\n\nline {line}\n  recorded {}\n  decided  {decided}", json(recorded)));
        }
        let more = report.differences.len().saturating_sub(PRINTED);
        if more > 0 {
            text.push_str(&format!("\n\nand {more} more: --output json has them"));
        }
        text
    }

    fn quiet(&self) -> String {
        self.report.differences.iter().map(|found| found.line.to_string()).collect::<Vec<_>>().join("\n")
    }
}

/// A record as it is in `events.jsonl`.
fn json(record: &SearchRecord) -> String {
    serde_json::to_string(record).unwrap_or_else(|_not_writable| format!("{record:?}"))
}

pub(crate) fn run(args: &ReplayArgs, output: Output) -> Result<(), Failure> {
    let search = args.which.path()?;
    let report = replay(&search).map_err(search_failure)?;
    let differ = report.differences.len();
    let decisions = report.decisions;
    output.print(&Replayed { search, report })?;
    if differ > 0 {
        return Err(Failure::work(anyhow!(
            "{differ} of {decisions} decisions differ from the recorded ones"
        ))
        .hint("records that were changed by hand differ, and records of another version of phalanx may"));
    }
    Ok(())
}
