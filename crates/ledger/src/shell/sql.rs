//! What the ledger needs of a database. All SQL text is the same for both, with `$1`, `$2` … in the order of the values.

use crate::core::filter::Dialect;
use crate::error::SqlError;
use crate::value::{Row, Value};

/// One connection.
pub(crate) trait Sql: Send {
    fn dialect(&self) -> Dialect;

    /// Begins a transaction that writes. Transactions with the same key wait for each other.
    fn begin(&mut self, key: &str) -> Result<(), SqlError>;

    fn commit(&mut self) -> Result<(), SqlError>;

    /// Ends a transaction without its changes. Fails only together with the connection.
    fn rollback(&mut self) -> Result<(), SqlError>;

    /// Changes rows and says how many.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, SqlError>;

    /// Gives the rows of a result, one after the other.
    fn query(&mut self, sql: &str, values: &[Value], each: &mut dyn FnMut(&Row)) -> Result<(), SqlError>;

    /// Runs statements without values.
    fn script(&mut self, sql: &str) -> Result<(), SqlError>;

    fn insert_points(&mut self, points: &[PointRow]) -> Result<(), SqlError>;
}

/// A point as it is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PointRow {
    pub(crate) series: i64,
    pub(crate) step: i64,
    /// Where its line begins in the file: tells points of one step apart, and which of them a cut removes.
    pub(crate) ord: i64,
    pub(crate) unix_ms: Option<i64>,
    pub(crate) value: f64,
}

/// All rows of a result.
pub(crate) fn all(sql: &mut dyn Sql, text: &str, values: &[Value]) -> Result<Vec<Row>, SqlError> {
    let mut rows = Vec::new();
    sql.query(text, values, &mut |row| rows.push(row.clone()))?;
    Ok(rows)
}

/// The first row of a result.
pub(crate) fn first(sql: &mut dyn Sql, text: &str, values: &[Value]) -> Result<Option<Row>, SqlError> {
    let mut found = None;
    sql.query(text, values, &mut |row| {
        if found.is_none() {
            found = Some(row.clone());
        }
    })?;
    Ok(found)
}
