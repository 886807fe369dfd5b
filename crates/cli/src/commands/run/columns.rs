//! Columns of a listing that the user chose.

use crate::failure::Failure;
use crate::output::{Render, listing_of};
use crate::times::rfc3339;
use anyhow::anyhow;
use phalanx_ledger::core::filter::{Aggregate, Field};
use phalanx_ledger::{Column, RunRow};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

/// Reads names with commas between.
pub(super) fn parse_columns(text: &str) -> Result<Vec<(String, Column)>, Failure> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let columns: Vec<(String, Column)> = names
        .map(|name| {
            let bare = name.trim_matches(|c| c == '"' || c == '\'');
            (bare.to_owned(), Column::named(bare))
        })
        .collect();
    if columns.is_empty() {
        return Err(Failure::usage(anyhow!("--columns names no column"))
            .hint("give names like run,state,val_acc,train.batch,tag.owner"));
    }
    Ok(columns)
}

/// Runs with chosen columns.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) columns: Vec<(String, Column)>,
    pub(super) rows: Vec<RunRow>,
}

impl Serialize for Chosen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = |row: &RunRow| -> Map<String, Value> {
            self.columns.iter().map(|(name, column)| (name.clone(), value(row, column))).collect()
        };
        serializer.collect_seq(self.rows.iter().map(object))
    }
}

impl Render for Chosen {
    fn table(&self) -> String {
        if self.rows.is_empty() {
            return "no runs".to_owned();
        }
        let header: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        let cells =
            |row: &RunRow| self.columns.iter().map(|(_, column)| shown(&value(row, column))).collect();
        listing_of(&header, self.rows.iter().map(cells))
    }

    /// The first column.
    fn quiet(&self) -> String {
        let first = |row: &RunRow| self.columns.first().map(|(_, column)| shown(&value(row, column)));
        self.rows.iter().filter_map(first).collect::<Vec<_>>().join("\n")
    }
}

fn value(row: &RunRow, column: &Column) -> Value {
    match column {
        Column::Field(field) => field_value(row, *field),
        Column::Metric { name, of } => {
            let held = match of {
                Aggregate::Last => &row.last,
                Aggregate::Min => &row.min,
                Aggregate::Max => &row.max,
            };
            json!(held.get(name))
        }
        Column::Param(name) => json!(row.params.get(name)),
        Column::Tag(name) => json!(row.tags.get(name)),
    }
}

fn field_value(row: &RunRow, field: Field) -> Value {
    let time = |ms: Option<u64>| json!(ms.map(rfc3339));
    match field {
        Field::Uid => json!(row.uid),
        Field::Name => json!(row.name),
        Field::Kind => json!(row.kind),
        Field::Experiment => json!(row.experiment),
        Field::State => json!(row.state),
        Field::Reason => json!(row.reason),
        Field::Waiting => json!(row.waiting),
        Field::Model => json!(row.model),
        Field::Host => json!(row.host),
        Field::Seed => json!(row.seed),
        Field::Steps => json!(row.steps),
        Field::TotalSteps => json!(row.total_steps),
        Field::Started => time(row.started_ms),
        Field::Ended => time(row.ended_ms),
        Field::Wall => json!(row.wall_s),
    }
}

/// A value for people; text of users cannot move the cursor.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            let plain = number == 0.0 || (1e-4..1e6).contains(&number.abs());
            if plain { format!("{number:.4}") } else { format!("{number:.3e}") }
        }
        other => other.to_string(),
    }
}
