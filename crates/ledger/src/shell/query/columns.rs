//! Names of columns that a query asks for: a wrong one is refused with the nearest that there is.

use crate::core::filter::{Aggregate, Column, Field, FilterError, FilterProblem, SortKey};
use crate::error::{LedgerError, SqlError, failed};
use crate::rows::RunQuery;
use crate::shell::sql::{Sql, all, first};
use crate::value::Value;
use phalanx_types::nearest;

/// Names that an error considers, at most.
const MOST_NAMES: i64 = 10_000;

pub(super) fn names(sql: &mut dyn Sql, find: &str) -> Result<Vec<String>, SqlError> {
    Ok(all(sql, find, &[Value::Int(MOST_NAMES)])?.iter().map(|row| row.required_text(0)).collect())
}

/// Refuses a query with a column that no run has, if there are runs.
pub(in crate::shell) fn check_columns(sql: &mut dyn Sql, query: &RunQuery) -> Result<(), LedgerError> {
    let filter = query.filter.iter().flat_map(|filter| filter.comparisons());
    let filter =
        filter.map(|comparison| (comparison.column.clone(), comparison.position, query.filter_text.clone()));
    let sort = query
        .sort
        .iter()
        .map(|SortKey { column, position, .. }| (column.clone(), *position, column.to_string()));
    let wanted: Vec<(Column, usize, String)> = filter.chain(sort).collect();
    for (column, position, text) in wanted {
        let (find, name) = match &column {
            Column::Field(_) => continue,
            Column::Metric { name, .. } => ("select 1 from series where name = $1 limit 1", name),
            Column::Param(name) => ("select 1 from param where name = $1 limit 1", name),
            // A tag that no run has yet is not a mistake.
            Column::Tag(_) => continue,
        };
        let read = failed("read");
        let known = first(sql, find, &[name.as_str().into()]).map_err(&read)?.is_some();
        if known || first(sql, "select 1 from run limit 1", &[]).map_err(&read)?.is_none() {
            continue;
        }
        let nearest = nearest_column(sql, &column).map_err(&read)?;
        let position = if text == column.to_string() { 0 } else { position };
        let problem = FilterProblem::UnknownColumn { name: column.to_string(), nearest };
        return Err(FilterError { text, position, problem }.into());
    }
    Ok(())
}

/// The column that may be meant by one that no run has.
fn nearest_column(sql: &mut dyn Sql, column: &Column) -> Result<Option<String>, SqlError> {
    let series = names(sql, "select distinct name from series limit $1")?;
    let params = names(sql, "select distinct name from param limit $1")?;
    let (prefix, name) = match column {
        Column::Metric { name, of: Aggregate::Min } => ("min.", name.clone()),
        Column::Metric { name, of: Aggregate::Max } => ("max.", name.clone()),
        other => ("", other.to_string()),
    };
    let fields = Field::ALL.iter().map(|(name, _)| *name).filter(|_| prefix.is_empty());
    // Parameters are also found by their last word.
    let by_word = params.iter().find(|param| param.rsplit('.').next() == Some(name.as_str()));
    let all = fields.chain(series.iter().map(String::as_str)).chain(params.iter().map(String::as_str));
    Ok(by_word.cloned().or_else(|| nearest(&name, all).map(|found| format!("{prefix}{found}"))))
}
