//! `status.csv`: a row for each trial, with the columns of the sample's status table and more.

use super::columns::{Kind, accuracy_name, all_values, genes, unique_names};
use super::csv::CsvText;
use super::state::parents;
use crate::table::{SearchTable, TrialRow, TrialStatus};
use phalanx_search::core::record::TrialId;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const FIRST: [&str; 6] = ["PartitionKey", "RowKey", "name", "status", "node", "priority"];
const AFTER_GENES: [&str; 4] = ["experiment", "epochs", "val_acc", "error"];
const LAST: [&str; 18] = [
    "trial",
    "archid",
    "model",
    "state",
    "rung",
    "target",
    "parent",
    "parents",
    "iteration_num",
    "is_pareto",
    "starts",
    "retries",
    "seconds",
    "proposed_unix_ms",
    "queued_unix_ms",
    "started_unix_ms",
    "ended_unix_ms",
    "search",
];

/// The sample's word for a state.
fn sample_word(status: TrialStatus) -> &'static str {
    match status {
        TrialStatus::Proposed => "new",
        TrialStatus::Queued => "preparing",
        TrialStatus::Running => "training",
        TrialStatus::Partial | TrialStatus::Stopped => "trained",
        TrialStatus::Completed => "completed",
        TrialStatus::Infeasible | TrialStatus::Failed => "failed",
    }
}

/// What all rows need.
struct Shown<'a> {
    table: &'a SearchTable,
    values: Vec<String>,
    accuracy: Option<String>,
    front: BTreeSet<TrialId>,
    iterations: BTreeMap<TrialId, usize>,
}

pub(super) fn status(table: &SearchTable) -> String {
    let shown = Shown {
        table,
        // The column `val_acc` has this value already.
        values: all_values(table).into_iter().filter(|name| name != "val_acc").collect(),
        accuracy: accuracy_name(table),
        front: table.front().trials.into_iter().collect(),
        iterations: table
            .rows_with_results()
            .enumerate()
            .map(|(index, row)| (row.trial, table.iteration_of(index)))
            .collect(),
    };
    let fixed = |name: &str| (Kind::Fixed, name.to_owned());
    let mut columns: Vec<(Kind, String)> = FIRST.map(fixed).to_vec();
    columns.extend(table.about().space.genes.iter().map(|gene| (Kind::Gene, gene.name.clone())));
    columns.extend(AFTER_GENES.map(fixed));
    columns.extend(shown.values.iter().map(|name| (Kind::Value, name.clone())));
    columns.extend(LAST.map(fixed));
    let mut csv = CsvText::new(unique_names(&columns).iter().map(String::as_str));
    table.rows().for_each(|row| shown.put(row, &mut csv));
    csv.finish()
}

impl Shown<'_> {
    fn put(&self, row: &TrialRow, csv: &mut CsvText) {
        let about = self.table.about();
        let name = row.unique_name(&about.id);
        csv.text("main");
        csv.text(&name);
        csv.text(&name);
        csv.text(sample_word(row.status));
        csv.text(row.node.as_deref().unwrap_or_default());
        // Deeper rungs are trained first.
        csv.whole(row.rung.map(u64::from));
        for (_, value) in genes(self.table, row) {
            match value {
                Value::Null => csv.text(""),
                Value::String(text) => csv.text(&text),
                number => csv.number(number.as_f64()),
            }
        }
        csv.text(&about.name);
        csv.number(row.latest().map(|result| result.budget));
        csv.number(self.accuracy.as_deref().and_then(|name| row.value(name)));
        csv.text(row.why.as_deref().unwrap_or_default());
        self.values.iter().for_each(|value| csv.number(row.value(value)));
        self.put_last(row, csv);
        csv.end_line();
    }

    fn put_last(&self, row: &TrialRow, csv: &mut CsvText) {
        csv.text(&row.trial.to_string());
        csv.text(&row.archid);
        csv.text(&row.model);
        csv.text(row.status.name());
        csv.whole(row.rung.map(u64::from));
        csv.number(row.target);
        let (parent, parents) = parents(self.table, row);
        csv.text(&parent);
        csv.text(&parents);
        csv.whole(self.iterations.get(&row.trial).map(|iteration| *iteration as u64));
        csv.truth(self.front.contains(&row.trial));
        csv.whole(Some(u64::from(row.starts)));
        csv.whole(Some(u64::from(row.retries)));
        csv.number(Some(row.seconds()));
        [Some(row.proposed), row.queued, row.started, row.ended].into_iter().for_each(|time| csv.whole(time));
        csv.text(&self.table.about().id);
    }
}
