//! Names of columns, and what trials have of genes and values.

use crate::table::{SearchTable, TrialResult, TrialRow};
use phalanx_search::core::objective::Goal;
use phalanx_search::core::space::Gene;
use serde_json::Value;

/// Makes the names of columns unique: a name that the user gave and that another column has gets its kind before it.
/// Fixed names keep theirs, wherever they stand.
pub(super) fn unique_names(columns: &[(Kind, String)]) -> Vec<String> {
    let mut taken: Vec<&str> =
        columns.iter().filter(|(kind, _)| *kind == Kind::Fixed).map(|(_, name)| name.as_str()).collect();
    let mut names = Vec::new();
    for (kind, name) in columns {
        let is_taken = *kind != Kind::Fixed && taken.contains(&name.as_str());
        names.push(if is_taken { format!("{}.{name}", kind.name()) } else { name.clone() });
        if *kind != Kind::Fixed {
            taken.push(name);
        }
    }
    names
}

/// Where the name of a column comes from. Within a kind names are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Fixed,
    Gene,
    Value,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Fixed => "",
            Kind::Gene => "gene",
            Kind::Value => "value",
        }
    }
}

/// The names of the objectives.
pub(super) fn objectives(table: &SearchTable) -> impl Iterator<Item = &str> {
    table.about().objectives.iter().map(|objective| objective.name.as_str())
}

/// The names of the objectives, then those of all other values.
pub(super) fn all_values(table: &SearchTable) -> Vec<String> {
    let mut names: Vec<String> = objectives(table).map(str::to_owned).collect();
    let others: Vec<String> = table.value_names().into_iter().filter(|name| !names.contains(name)).collect();
    names.extend(others);
    names
}

/// The value that the sample calls `val_acc`: the value of that name, or the first measured objective of which more is
/// better, or the validation accuracy of a run.
pub(super) fn accuracy_name(table: &SearchTable) -> Option<String> {
    let all = all_values(table);
    let is_there = |name: &str| all.iter().find(|there| *there == name).cloned();
    let is_measured = |objective: &&phalanx_search::core::objective::Objective| {
        objective.goal == Goal::Max && !objective.cheap
    };
    let measured = || table.about().objectives.iter().find(is_measured).map(|found| found.name.clone());
    is_there("val_acc")
        .or_else(measured)
        .or_else(|| ["valid.accuracy", "val_accuracy", "accuracy"].into_iter().find_map(is_there))
}

/// What a trial chose, by gene: a number, a text, or nothing if it does not use the gene.
pub(super) fn genes(table: &SearchTable, row: &TrialRow) -> Vec<(String, Value)> {
    let chosen = |(at, gene): (usize, &Gene)| {
        let value = table.choice(row, at).map_or(Value::Null, |choice| match choice.number {
            Some(number) => json_number(number),
            None => Value::from(choice.label.as_str()),
        });
        (gene.name.clone(), value)
    };
    table.about().space.genes.iter().enumerate().map(chosen).collect()
}

/// The objectives of a result, by name.
pub(super) fn objective_values(
    table: &SearchTable,
    row: &TrialRow,
    result: &TrialResult,
) -> Vec<(String, Value)> {
    let value = |name: &str| row.value_at(result, name).map_or(Value::Null, json_number);
    objectives(table).map(|name| (name.to_owned(), value(name))).collect()
}

/// A number without a point if it is whole; nothing if it is not finite.
pub(super) fn json_number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_names_give_way_to_fixed_ones() {
        let columns =
            [(Kind::Gene, "status"), (Kind::Fixed, "status"), (Kind::Gene, "lr"), (Kind::Value, "lr")];
        let columns = columns.map(|(kind, name)| (kind, name.to_owned()));
        assert_eq!(unique_names(&columns), ["gene.status", "status", "lr", "value.lr"]);
    }
}
