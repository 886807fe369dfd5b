//! `pareto.json` and `models.json` in the form of the sample, and `front.json` with all that is known of the front.

use super::columns::{accuracy_name, genes, json_number, objective_values};
use crate::front::Front;
use crate::iteration::Iteration;
use crate::table::{SearchTable, TrialRow};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

/// An object whose keys keep their order.
struct Ordered(Vec<(String, Value)>);

impl Serialize for Ordered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Plain data always has a text.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn on_front<'a>(table: &'a SearchTable, front: &Front) -> Vec<&'a TrialRow> {
    front.trials.iter().filter_map(|trial| table.row(*trial)).collect()
}

/// A list of the front's candidates: their genes and `archid`.
pub(super) fn pareto(table: &SearchTable) -> String {
    let candidate = |row: &TrialRow| {
        let mut fields = genes(table, row);
        fields.push(("archid".to_owned(), Value::from(row.archid.as_str())));
        Ordered(fields)
    };
    text(&on_front(table, &table.front()).into_iter().map(candidate).collect::<Vec<_>>())
}

/// The models that were trained in full, the best first; those on the front while there are none.
pub(super) fn models(table: &SearchTable) -> String {
    let (about, accuracy) = (table.about(), accuracy_name(table));
    let is_full = |row: &&TrialRow| row.latest().is_some_and(|result| about.is_full(result.budget));
    let mut rows: Vec<&TrialRow> = table.rows().filter(|row| row.status.counts()).filter(is_full).collect();
    if rows.is_empty() {
        rows = on_front(table, &table.front());
    }
    let accuracy = |row: &TrialRow| accuracy.as_deref().and_then(|name| row.value(name));
    let key = |row: &TrialRow| accuracy(row).unwrap_or(f64::NEG_INFINITY);
    rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
    let epochs = |budget: Option<&f64>| budget.map_or(Value::Null, |budget| json_number(*budget));
    let mut fields = vec![
        ("init_num_models".to_owned(), Value::from(about.init)),
        ("partial_training_epochs".to_owned(), epochs(about.rungs.first())),
        ("full_training_epochs".to_owned(), epochs(about.rungs.last())),
    ];
    fields.extend(rows.into_iter().map(|row| {
        let mut model = json!({ "archid": row.archid });
        if let Some(accuracy) = accuracy(row) {
            model["val_acc"] = Value::from(accuracy);
        }
        (row.unique_name(&about.id), model)
    }));
    text(&Ordered(fields))
}

/// The front with objectives, budgets and where the runs of its trials lie.
pub(super) fn front(table: &SearchTable) -> String {
    front_until(table, u64::MAX, None)
}

/// The same as it was at the end of an iteration.
pub(super) fn front_of_iteration(table: &SearchTable, iteration: &Iteration) -> String {
    front_until(table, iteration.last_event, Some(iteration.number + 1))
}

fn front_until(table: &SearchTable, event: u64, iteration: Option<usize>) -> String {
    let front = table.front_at(event);
    let trial = |row: &TrialRow| {
        let result = row.latest_until(event);
        let objectives = result.map(|result| objective_values(table, row, result)).unwrap_or_default();
        json!({
            "trial": row.trial.to_string(),
            "name": row.unique_name(&table.about().id),
            "archid": row.archid,
            "model": row.model,
            "run": format!("trials/{}", row.trial),
            "budget": result.map(|result| result.budget),
            "genes": serde_json::Map::from_iter(genes(table, row)),
            "objectives": serde_json::Map::from_iter(objectives),
            "values": result.map(|result| &result.values),
        })
    };
    let trials: Vec<Value> = on_front(table, &front).into_iter().map(trial).collect();
    let mut all = json!({
        "search": table.about().id,
        "compared": front.basis,
        "objectives": table.about().objectives,
        "trials": trials,
    });
    if let Some(iteration) = iteration {
        all["iteration"] = Value::from(iteration);
    }
    text(&all)
}
