//! Questions about runs.

use super::place::{Place, root_of};
use super::pool::Ledger;
use super::sql::{Sql, all, first};
use crate::core::filter::{Aggregate, Column, Field, FilterError, FilterProblem, SortKey, Statement};
use crate::core::lower_is_better;
use crate::core::reduce::{Axis, Curve, Point, Reducer, Window};
use crate::error::{LedgerError, SqlError, failed};
use crate::rows::{
    ArtifactRow, Detail, EventRow, FormationRow, NodeRow, NoteRow, RunQuery, RunRow, SeriesInfo,
};
use crate::value::{Row, Value};
use phalanx_types::nearest;
use std::collections::BTreeMap;

const RUN: &str = "select uid, name, kind, experiment, state, reason, waiting, model, seed, started_ms, ended_ms, host, \
                   root, dir, steps, total_steps, loss, val_loss, val_acc, samples_per_s, wall_s, params_hash, id \
                   from run";
type Numbers = BTreeMap<String, f64>;

/// Names that an error considers, at most.
const MOST_NAMES: i64 = 10_000;

impl Ledger {
    /// The runs that a query asks for.
    ///
    /// # Errors
    /// The query names a column that no run has, or the ledger cannot be read.
    pub fn runs(&self, query: &RunQuery) -> Result<Vec<RunRow>, LedgerError> {
        self.with(|sql| {
            check_columns(sql, query)?;
            let mut statement = Statement::new(RUN);
            statement.push(" where true");
            if let Some(kind) = &query.kind {
                statement.push(" and run.kind = ").bind(kind.clone());
            }
            if let Some(runs) = &query.runs {
                statement.push(" and run.root = ").bind(root_of(self.url(), runs));
            }
            if let Some(filter) = &query.filter {
                let dialect = sql.dialect();
                statement.push(" and ").filter(filter, dialect);
            }
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

    fn run_row(&self, sql: &mut dyn Sql, row: &Row, with: Detail) -> Result<RunRow, LedgerError> {
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

    /// The series of a run, by name.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn series(&self, uid: &str) -> Result<Vec<SeriesInfo>, LedgerError> {
        let find = "select series.name, points, first_step, last_step, last_ms, last, least, most from series \
                    join run on run.id = series.run where run.uid = $1 order by series.name";
        self.rows(find, uid, |row| SeriesInfo {
            name: row.required_text(0),
            points: row.count(1),
            first_step: row.count(2),
            last_step: row.count(3),
            last_ms: row.maybe_count(4),
            last: row.real(5),
            min: row.real(6),
            max: row.real(7),
        })
    }

    /// A series of a run, reduced to buckets.
    ///
    /// # Errors
    /// The run has no such series, or the ledger cannot be read.
    pub fn curve(&self, uid: &str, name: &str, window: Window) -> Result<Curve, LedgerError> {
        let find = "select series.id, first_step, last_step from series join run on run.id = series.run \
                    where run.uid = $1 and series.name = $2";
        let read = failed("read");
        let series = self.with(|sql| first(sql, find, &[uid.into(), name.into()]).map_err(&read))?;
        let Some(series) = series else {
            let names: Vec<String> = self.series(uid)?.into_iter().map(|series| series.name).collect();
            let nearest = nearest(name, names.iter().map(String::as_str)).map(str::to_owned);
            return Err(LedgerError::NoSeries { run: uid.to_owned(), name: name.to_owned(), nearest });
        };
        let id = Value::Int(series.int(0).unwrap_or(-1));
        self.with(|sql| {
            let (first_at, last_at) = match window.axis {
                Axis::Step => (series.count(1), series.count(2)),
                Axis::Time => {
                    let span = "select min(unix_ms), max(unix_ms) from point where series = $1";
                    let row = first(sql, span, std::slice::from_ref(&id)).map_err(&read)?;
                    row.map_or((0, 0), |row| (row.count(0), row.count(1)))
                }
            };
            let from = window.from.unwrap_or(first_at).max(first_at);
            let to = window.to.unwrap_or(last_at).min(last_at);
            let mut reducer = Reducer::new(window.axis, from, to, window.buckets);
            let points = match window.axis {
                Axis::Step => {
                    "select step, unix_ms, value from point where series = $1 and step >= $2 and step <= $3 \
                     order by step, ord"
                }
                Axis::Time => {
                    "select step, unix_ms, value from point where series = $1 and unix_ms >= $2 and unix_ms <= $3 \
                     order by unix_ms, step, ord"
                }
            };
            let mut push = |row: &Row| {
                let value = row.real(2).unwrap_or(f64::NAN);
                reducer.push(Point { step: row.count(0), unix_ms: row.maybe_count(1), value });
            };
            sql.query(points, &[id, from.into(), to.into()], &mut push).map_err(&read)?;
            Ok(reducer.finish())
        })
    }

    /// Events of a run after one, in their order.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn events(&self, uid: &str, after: Option<u64>, limit: usize) -> Result<Vec<EventRow>, LedgerError> {
        let find = "select seq, event.unix_ms, event.kind, json from event join run on run.id = event.run \
                    where run.uid = $1 and seq > $2 order by seq limit $3";
        let after = after.map_or(-1, |after| i64::try_from(after).unwrap_or(i64::MAX));
        let values = [uid.into(), Value::Int(after), Value::from(limit as u64)];
        let rows = self.with(|sql| all(sql, find, &values).map_err(failed("read")))?;
        Ok(rows.iter().map(event_row).collect())
    }

    /// The newest events of a run, newest first.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn last_events(&self, uid: &str, limit: usize) -> Result<Vec<EventRow>, LedgerError> {
        let find = "select seq, event.unix_ms, event.kind, json from event join run on run.id = event.run \
                    where run.uid = $1 order by seq desc limit $2";
        let values = [uid.into(), Value::from(limit as u64)];
        let rows = self.with(|sql| all(sql, find, &values).map_err(failed("read")))?;
        Ok(rows.iter().map(event_row).collect())
    }

    /// Files of a run, by path.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn artifacts(&self, uid: &str) -> Result<Vec<ArtifactRow>, LedgerError> {
        let find = "select path, url, size, sha256 from artifact join run on run.id = artifact.run \
                    where run.uid = $1 order by path";
        self.rows(find, uid, |row| ArtifactRow {
            path: row.required_text(0),
            url: row.text(1),
            size: row.maybe_count(2),
            sha256: row.text(3),
        })
    }

    /// The run file of a run, flattened.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn params(&self, uid: &str) -> Result<BTreeMap<String, String>, LedgerError> {
        let find = "select param.name, value from param join run on run.id = param.run where run.uid = $1";
        let rows = self.rows(find, uid, |row| (row.required_text(0), row.required_text(1)))?;
        Ok(rows.into_iter().collect())
    }

    /// The tags of a run.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn tags(&self, uid: &str) -> Result<BTreeMap<String, String>, LedgerError> {
        let find = "select tag.name, value from tag join run on run.id = tag.run where run.uid = $1";
        let rows = self.rows(find, uid, |row| (row.required_text(0), row.required_text(1)))?;
        Ok(rows.into_iter().collect())
    }

    /// The notes of a run, oldest first.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn notes(&self, uid: &str) -> Result<Vec<NoteRow>, LedgerError> {
        let find =
            "select unix_ms, text from note join run on run.id = note.run where run.uid = $1 order by n";
        self.rows(find, uid, |row| NoteRow { unix_ms: row.count(0), text: row.required_text(1) })
    }

    /// The nodes that took part in a run, by name.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn nodes(&self, uid: &str) -> Result<Vec<NodeRow>, LedgerError> {
        let find = "select node.name, joined_ms, lost_ms, node.reason from node join run on run.id = node.run \
                    where run.uid = $1 order by node.name";
        self.rows(find, uid, |row| NodeRow {
            name: row.required_text(0),
            joined_ms: row.count(1),
            lost_ms: row.maybe_count(2),
            reason: row.text(3),
        })
    }

    /// The formations of a run, oldest first.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn formations(&self, uid: &str) -> Result<Vec<FormationRow>, LedgerError> {
        let find = "select epoch, unix_ms, formation.step, json from formation join run on run.id = formation.run \
                    where run.uid = $1 order by unix_ms, epoch";
        self.rows(find, uid, |row| FormationRow {
            epoch: row.count(0),
            unix_ms: row.count(1),
            step: row.count(2),
            value: json(row, 3),
        })
    }

    fn rows<T>(&self, find: &str, uid: &str, of: impl Fn(&Row) -> T) -> Result<Vec<T>, LedgerError> {
        let rows = self.with(|sql| all(sql, find, &[uid.into()]).map_err(failed("read")))?;
        Ok(rows.iter().map(of).collect())
    }
}

fn event_row(row: &Row) -> EventRow {
    EventRow { seq: row.count(0), unix_ms: row.count(1), event: row.required_text(2), value: json(row, 3) }
}

fn json(row: &Row, at: usize) -> serde_json::Value {
    serde_json::from_str(&row.required_text(at)).unwrap_or_default()
}

fn ambiguous(id: &str, rows: &[Row]) -> LedgerError {
    let examples =
        rows.iter().take(3).map(|row| format!("{} ({})", row.required_text(1), row.required_text(0)));
    LedgerError::Ambiguous { id: id.to_owned(), count: rows.len(), examples: examples.collect() }
}

fn names(sql: &mut dyn Sql, find: &str) -> Result<Vec<String>, SqlError> {
    Ok(all(sql, find, &[Value::Int(MOST_NAMES)])?.iter().map(|row| row.required_text(0)).collect())
}

/// Refuses a query with a column that no run has, if there are runs.
fn check_columns(sql: &mut dyn Sql, query: &RunQuery) -> Result<(), LedgerError> {
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
