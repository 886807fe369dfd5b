//! What Python is told of a search on nodes: what is new, and its trials.

use phalanx::search::{SearchEnd, SearchTable, TrialId, TrialRow};
use phalanx_search_results::TrialStatus;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// How far a search is.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct SearchNews {
    /// Candidates that were proposed, of so many.
    pub(super) trials: usize,
    pub(super) of: u64,
    pub(super) running: usize,
    pub(super) failed: usize,
    pub(super) front: usize,
    /// Why fewer trials are trained than could be.
    pub(super) waiting: Option<String>,
    /// The newest result.
    pub(super) last: Option<TrialNews>,
}

/// A result of a trial.
#[derive(Debug, Clone, Serialize)]
pub(super) struct TrialNews {
    trial: u64,
    archid: String,
    budget: f64,
    values: BTreeMap<String, f64>,
}

impl SearchNews {
    pub(super) fn of(table: &SearchTable, waiting: Option<String>) -> Self {
        let counts = table.counts();
        let count = |status| counts.get(&status).copied().unwrap_or(0);
        Self {
            trials: table.rows().len(),
            of: table.about().trials,
            running: count(TrialStatus::Running),
            failed: count(TrialStatus::Failed),
            front: table.front().trials.len(),
            waiting,
            last: None,
        }
    }
}

impl TrialNews {
    pub(super) fn of(table: &SearchTable, trial: TrialId) -> Option<Self> {
        let row = table.row(trial)?;
        let budget = row.results.last()?.budget;
        Some(Self { trial: trial.0, archid: row.archid.clone(), budget, values: values(row) })
    }
}

/// The values of a trial: of its largest budget, and those that were known beforehand.
fn values(row: &TrialRow) -> BTreeMap<String, f64> {
    let mut values = row.results.last().map(|result| result.values.clone()).unwrap_or_default();
    values.extend(row.known.clone());
    values
}

/// The trials as Python has them.
pub(super) fn trial_views(table: &SearchTable) -> Value {
    let front: BTreeSet<TrialId> = table.front().trials.into_iter().collect();
    let view = |row: &TrialRow| {
        let genes = table.about().space.genes.iter().enumerate();
        let chosen = genes.filter_map(|(at, gene)| {
            let choice = table.choice(row, at)?;
            let value = choice.number.map_or_else(|| json!(choice.label), number);
            Some((gene.name.clone(), value))
        });
        json!({
            "number": row.trial.0,
            "candidate": chosen.collect::<Map<String, Value>>(),
            "values": values(row),
            "status": row.status.name(),
            "why": row.why,
            "archid": row.archid,
            "budget": row.results.last().map_or(0.0, |result| result.budget),
            "seconds": row.results.iter().map(|result| result.seconds).sum::<f64>(),
            "parents": row.parents.iter().map(|parent| parent.0).collect::<Vec<_>>(),
            "is_on_front": front.contains(&row.trial),
        })
    };
    table.rows().map(view).collect()
}

/// A whole number without a point, as a search file has it.
fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT { json!(value as i64) } else { json!(value) }
}

/// How a search has ended, in the words of `phalanx.search`, and why if it has failed.
pub(super) fn end_words(end: SearchEnd) -> (&'static str, Option<String>) {
    match end {
        SearchEnd::Finished => ("finished", None),
        SearchEnd::Stopped => ("stopped", None),
        SearchEnd::Failed { why } => ("failed", Some(why)),
    }
}
