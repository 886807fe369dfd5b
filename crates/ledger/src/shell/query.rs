//! Questions about runs: which there are. The modules below have those about one run.

mod columns;
mod curve;
mod details;

use super::place::{Place, host, root_of};
use super::pool::Ledger;
use super::sql::{Sql, all};
use crate::core::filter::{Dialect, Statement};
use crate::core::lower_is_better;
use crate::error::{LedgerError, failed};
use crate::rows::{Detail, RunQuery, RunRow};
use crate::url::LedgerUrl;
use crate::value::{Row, Value};
pub(super) use columns::check_columns;
use columns::names;
use phalanx_types::nearest;
use std::collections::BTreeMap;

pub(super) const RUN: &str = "select uid, name, kind, experiment, state, reason, waiting, model, seed, started_ms, ended_ms, host, \
                   root, dir, steps, total_steps, loss, val_loss, val_acc, samples_per_s, wall_s, params_hash, id \
                   from run";
type Numbers = BTreeMap<String, f64>;

impl Ledger {
    /// The runs that a query asks for.
    ///
    /// # Errors
    /// The query names a column that no run has, or the ledger cannot be read.
    pub fn runs(&self, query: &RunQuery) -> Result<Vec<RunRow>, LedgerError> {
        self.with(|sql| {
            check_columns(sql, query)?;
            let mut statement = Statement::new(RUN);
            condition(&mut statement, query, self.url(), sql.dialect());
            statement.order(&query.sort);
            if query.limit.is_some() || query.offset > 0 {
                statement.push(" limit ").bind(query.limit.map_or(i64::MAX as u64, |limit| limit as u64));
                statement.push(" offset ").bind(query.offset as u64);
            }
            let rows = all(sql, &statement.sql, &statement.values).map_err(failed("read"))?;
            rows.iter().map(|row| self.run_row(sql, row, query.with)).collect()
        })
    }

    /// A run by its uid, its name, or the beginning of one that no other has.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn run(&self, id: &str) -> Result<RunRow, LedgerError> {
        self.with(|sql| {
            let read = failed("read");
            for exact in [" where uid = ", " where name = "] {
                let mut statement = Statement::new(RUN);
                statement.push(exact).bind(id).push(" order by id limit 3");
                let rows = all(sql, &statement.sql, &statement.values).map_err(&read)?;
                match rows.as_slice() {
                    [] => {}
                    [row] => return self.run_row(sql, row, Detail::FULL),
                    several => return Err(ambiguous(id, several)),
                }
            }
            let mut statement = Statement::new(RUN);
            let length = id.chars().count() as u64;
            statement.push(" where substr(uid, 1, cast(").bind(length).push(" as integer)) = ").bind(id);
            statement.push(" or substr(name, 1, cast(").bind(length).push(" as integer)) = ").bind(id);
            statement.push(" order by id limit 100");
            let rows = all(sql, &statement.sql, &statement.values).map_err(&read)?;
            match rows.as_slice() {
                [row] if !id.is_empty() => self.run_row(sql, row, Detail::FULL),
                [_, _, ..] if !id.is_empty() => Err(ambiguous(id, &rows)),
                _ => {
                    let names =
                        names(sql, "select name from run order by id desc limit $1").map_err(&read)?;
                    let nearest = nearest(id, names.iter().map(String::as_str)).map(str::to_owned);
                    Err(LedgerError::NoRun { id: id.to_owned(), nearest })
                }
            }
        })
    }

    pub(super) fn run_row(&self, sql: &mut dyn Sql, row: &Row, with: Detail) -> Result<RunRow, LedgerError> {
        let id = [Value::Int(row.int(22).unwrap_or(-1))];
        let read = failed("read");
        let pairs = |sql: &mut dyn Sql, text: &str| -> Result<BTreeMap<String, String>, LedgerError> {
            let rows = all(sql, text, &id).map_err(&read)?;
            Ok(rows.iter().map(|row| (row.required_text(0), row.required_text(1))).collect())
        };
        let params = match with.params {
            true => pairs(sql, "select name, value from param where run = $1")?,
            false => BTreeMap::new(),
        };
        let tags = match with.tags {
            true => pairs(sql, "select name, value from tag where run = $1")?,
            false => BTreeMap::new(),
        };
        let (mut last, mut best, mut min, mut max): (Numbers, Numbers, Numbers, Numbers) = Default::default();
        if with.metrics {
            for row in
                all(sql, "select name, last, least, most from series where run = $1", &id).map_err(&read)?
            {
                let name = row.required_text(0);
                let top = if lower_is_better(&name) { row.real(2) } else { row.real(3) };
                best.extend(top.map(|value| (name.clone(), value)));
                min.extend(row.real(2).map(|value| (name.clone(), value)));
                max.extend(row.real(3).map(|value| (name.clone(), value)));
                last.insert(name, row.real(1).unwrap_or(f64::NAN));
            }
        }
        Ok(RunRow {
            uid: row.required_text(0),
            name: row.required_text(1),
            kind: row.required_text(2),
            experiment: row.text(3),
            state: row.required_text(4),
            reason: row.text(5),
            waiting: row.text(6),
            model: row.required_text(7),
            seed: row.int(8),
            started_ms: row.maybe_count(9),
            ended_ms: row.maybe_count(10),
            host: row.required_text(11),
            here: row.required_text(12).is_empty() || row.required_text(11) == host(),
            dir: Place::path_of(self.url(), &row.required_text(12), &row.required_text(13)),
            steps: row.count(14),
            total_steps: row.maybe_count(15),
            loss: row.real(16),
            val_loss: row.real(17),
            val_acc: row.real(18),
            samples_per_s: row.real(19),
            wall_s: row.real(20).unwrap_or(0.0),
            params_hash: row.text(21),
            params,
            last,
            best,
            min,
            max,
            tags,
        })
    }
}

/// Adds which runs a query asks for.
pub(super) fn condition(statement: &mut Statement, query: &RunQuery, url: &LedgerUrl, dialect: Dialect) {
    statement.push(" where true");
    if let Some(kind) = &query.kind {
        statement.push(" and run.kind = ").bind(kind.clone());
    }
    if let Some(runs) = &query.runs {
        statement.push(" and run.root = ").bind(root_of(url, runs));
    }
    for word in &query.words {
        statement.push(" and ").has_word(word, dialect);
    }
    if let Some(filter) = &query.filter {
        statement.push(" and ").filter(filter, dialect);
    }
}

fn ambiguous(id: &str, rows: &[Row]) -> LedgerError {
    let examples =
        rows.iter().take(3).map(|row| format!("{} ({})", row.required_text(1), row.required_text(0)));
    LedgerError::Ambiguous { id: id.to_owned(), count: rows.len(), examples: examples.collect() }
}
