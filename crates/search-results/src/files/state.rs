//! `search_state_<i>.csv` and `hypervolume.csv`.

use super::columns::{Kind, objectives, unique_names};
use super::csv::CsvText;
use crate::iteration::Iteration;
use crate::table::{SearchTable, TrialRow};
use phalanx_search::core::record::TrialId;
use std::collections::BTreeSet;

/// All trials with results up to the end of an iteration, as they stood then.
pub(super) fn search_state(table: &SearchTable, iteration: &Iteration) -> String {
    let has_rungs = table.about().rungs.len() > 1;
    let fixed = |name: &str| (Kind::Fixed, name.to_owned());
    let mut columns = vec![fixed("archid")];
    columns.extend(objectives(table).map(|name| (Kind::Value, name.to_owned())));
    columns.extend(["parent", "parents"].map(fixed));
    columns.extend(has_rungs.then(|| fixed("budget")));
    columns.extend(["iteration_num", "search_walltime_hours", "is_pareto"].map(fixed));
    let mut csv = CsvText::new(unique_names(&columns).iter().map(String::as_str));
    let front: BTreeSet<TrialId> = table.front_at(iteration.last_event).trials.into_iter().collect();
    for (index, standing) in table.standings(iteration.last_event).iter().enumerate() {
        let (row, result) = (standing.row, standing.result);
        csv.text(&row.archid);
        for name in objectives(table) {
            csv.number(row.value_at(result, name));
        }
        let (parent, parents) = parents(table, row);
        csv.text(&parent);
        csv.text(&parents);
        if has_rungs {
            csv.number(Some(result.budget));
        }
        csv.whole(Some(table.iteration_of(index) as u64));
        csv.number(Some(table.hours_at(result.at)));
        csv.truth(front.contains(&row.trial));
        csv.end_line();
    }
    csv.finish()
}

/// The candidate a trial was made from, or the candidates if there are several.
pub(super) fn parents(table: &SearchTable, row: &TrialRow) -> (String, String) {
    let archid =
        |trial: &TrialId| table.row(*trial).map_or_else(|| trial.to_string(), |row| row.archid.clone());
    match &row.parents[..] {
        [only] => (archid(only), String::new()),
        several => (String::new(), several.iter().map(archid).collect::<Vec<_>>().join(", ")),
    }
}

/// The hypervolume after each result.
pub(super) fn hypervolume(table: &SearchTable) -> String {
    let mut csv =
        CsvText::new(["results", "trial", "budget", "search_walltime_hours", "hypervolume", "full"]);
    for point in table.hypervolume() {
        csv.whole(Some(point.results as u64));
        csv.text(&point.trial.to_string());
        csv.number(Some(point.budget));
        csv.number(Some(point.hours));
        csv.number(Some(point.hypervolume));
        csv.number(Some(point.full));
        csv.end_line();
    }
    csv.finish()
}
