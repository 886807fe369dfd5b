//! Carries changes of one run into its rows, inside a transaction.

use super::schema::OF_RUN;
use super::sql::{PointRow, Sql, all, first};
use crate::core::fold::Change;
use crate::error::SqlError;
use crate::value::{Row, Value};
use std::collections::BTreeMap;

/// A row of `series`.
#[derive(Debug, Clone, PartialEq)]
struct Series {
    id: i64,
    points: u64,
    next_ord: i64,
    first_step: i64,
    last_step: i64,
    last_ms: Option<i64>,
    last: Value,
    least: Option<f64>,
    most: Option<f64>,
    changed: bool,
}

/// The series of a run while changes are made.
pub(super) struct Applier<'a> {
    sql: &'a mut dyn Sql,
    run: i64,
    series: BTreeMap<String, Series>,
    points: Vec<PointRow>,
}

const COLUMNS: &str =
    "select id, points, next_ord, first_step, last_step, last_ms, last, least, most, name from series";

impl<'a> Applier<'a> {
    pub(super) fn new(sql: &'a mut dyn Sql, run: i64) -> Result<Self, SqlError> {
        let text = format!("{COLUMNS} where run = $1");
        let rows = all(sql, &text, &[Value::Int(run)])?;
        let series = rows.into_iter().map(|row| (row.required_text(9), Series::of(&row))).collect();
        Ok(Self { sql, run, series, points: Vec::new() })
    }

    pub(super) fn apply(&mut self, change: Change) -> Result<(), SqlError> {
        let run = Value::Int(self.run);
        match change {
            Change::Cut { metrics_bytes } => return self.cut(metrics_bytes),
            Change::Point { series, step, at, unix_ms, value } => {
                let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
                let unix_ms = unix_ms.map(number);
                let point = PointRow { series: 0, step: number(step), ord: number(at), unix_ms, value };
                return self.point(series, point);
            }
            Change::Event { seq, unix_ms, kind, json } => {
                let insert = "insert into event (run, seq, unix_ms, kind, json) values ($1, $2, $3, $4, $5) \
                              on conflict (run, seq) do nothing";
                self.sql.execute(insert, &[run, seq.into(), unix_ms.into(), kind.into(), json.into()])?;
            }
            Change::Formation { epoch, unix_ms, step, json } => {
                let insert = "insert into formation (run, epoch, unix_ms, step, json) values ($1, $2, $3, $4, $5) \
                              on conflict (run, epoch, unix_ms) do nothing";
                self.sql.execute(insert, &[run, epoch.into(), unix_ms.into(), step.into(), json.into()])?;
            }
            Change::NodeJoined { node, unix_ms } => {
                let insert = "insert into node (run, name, joined_ms) values ($1, $2, $3) \
                              on conflict (run, name) do update set lost_ms = null, reason = null";
                self.sql.execute(insert, &[run, node.into(), unix_ms.into()])?;
            }
            Change::NodeLost { node, unix_ms, reason } => {
                let insert = "insert into node (run, name, joined_ms, lost_ms, reason) values ($1, $2, $3, $4, $5) \
                              on conflict (run, name) do update set lost_ms = excluded.lost_ms, reason = excluded.reason";
                let at = Value::from(unix_ms);
                self.sql.execute(insert, &[run, node.into(), at.clone(), at, reason.into()])?;
            }
            Change::Artifact { path, url, size, sha256 } => {
                let insert = "insert into artifact (run, path, url, size, sha256) values ($1, $2, $3, $4, $5) \
                              on conflict (run, path) do update set url = excluded.url, size = excluded.size, \
                              sha256 = excluded.sha256";
                self.sql.execute(insert, &[run, path.into(), url.into(), size.into(), sha256.into()])?;
            }
            Change::Tag { name, value } => {
                let num = value.trim().parse::<f64>().ok();
                let insert = "insert into tag (run, name, value, num) values ($1, $2, $3, $4) \
                              on conflict (run, name) do update set value = excluded.value, num = excluded.num";
                self.sql.execute(insert, &[run, name.into(), value.into(), num.into()])?;
            }
            Change::Untag { name } => {
                self.sql.execute("delete from tag where run = $1 and name = $2", &[run, name.into()])?;
            }
            Change::Note { unix_ms, text } => {
                let count = first(
                    self.sql,
                    "select coalesce(max(n) + 1, 0) from note where run = $1",
                    std::slice::from_ref(&run),
                )?;
                let n = count.map_or(0, |row| row.count(0));
                let insert = "insert into note (run, n, unix_ms, text) values ($1, $2, $3, $4)";
                self.sql.execute(insert, &[run, n.into(), unix_ms.into(), text.into()])?;
            }
        }
        Ok(())
    }

    fn point(&mut self, name: String, mut point: PointRow) -> Result<(), SqlError> {
        if !self.series.contains_key(&name) {
            let series = self.new_series(&name, point.step)?;
            self.series.insert(name.clone(), series);
        }
        let Some(series) = self.series.get_mut(&name) else { return Ok(()) };
        point.series = series.id;
        series.push(&point);
        self.points.push(point);
        Ok(())
    }

    fn new_series(&mut self, name: &str, step: i64) -> Result<Series, SqlError> {
        let insert = "insert into series (run, name, points, next_ord, first_step, last_step) \
                      values ($1, $2, 0, 0, $3, $4) returning id";
        let values = [Value::Int(self.run), name.into(), Value::Int(step), Value::Int(step)];
        let id = first(self.sql, insert, &values)?.and_then(|row| row.int(0)).unwrap_or(0);
        Ok(Series {
            id,
            points: 0,
            next_ord: 0,
            first_step: step,
            last_step: step,
            last_ms: None,
            last: Value::Null,
            least: None,
            most: None,
            changed: true,
        })
    }

    /// Forgets the points whose lines were cut off.
    fn cut(&mut self, metrics_bytes: u64) -> Result<(), SqlError> {
        self.flush()?;
        let begin = i64::try_from(metrics_bytes).unwrap_or(i64::MAX);
        let cut = self.series.iter().filter(|(_, series)| series.next_ord > begin);
        let cut: Vec<String> = cut.map(|(name, _)| name.clone()).collect();
        for name in cut {
            let Some(series) = self.series.get(&name) else { continue };
            let id = Value::Int(series.id);
            self.sql.execute(
                "delete from point where series = $1 and ord >= $2",
                &[id.clone(), Value::Int(begin)],
            )?;
            match self.recount(id.clone())? {
                Some(series) => {
                    self.series.insert(name, series);
                }
                None => {
                    self.sql.execute("delete from series where id = $1", &[id])?;
                    self.series.remove(&name);
                }
            }
        }
        Ok(())
    }

    /// A series by its points; `None` if it has none left.
    fn recount(&mut self, id: Value) -> Result<Option<Series>, SqlError> {
        // The largest number that is finite.
        let counts = "select count(*), max(ord) + 1, min(step), \
                      min(case when abs(value) <= 1.7976931348623157e308 then value end), \
                      max(case when abs(value) <= 1.7976931348623157e308 then value end) from point where series = $1";
        let last =
            "select step, unix_ms, value from point where series = $1 order by step desc, ord desc limit 1";
        let counted = first(self.sql, counts, std::slice::from_ref(&id))?;
        let last = first(self.sql, last, std::slice::from_ref(&id))?;
        let (Some(counted), Some(last), Value::Int(id)) = (counted, last, id) else { return Ok(None) };
        Ok(Some(Series {
            id,
            points: counted.count(0),
            next_ord: counted.int(1).unwrap_or(0),
            first_step: counted.int(2).unwrap_or(0),
            last_step: last.int(0).unwrap_or(0),
            last_ms: last.int(1),
            last: last.0.get(2).cloned().unwrap_or(Value::Null),
            least: counted.real(3),
            most: counted.real(4),
            changed: true,
        }))
    }

    fn flush(&mut self) -> Result<(), SqlError> {
        if !self.points.is_empty() {
            self.sql.insert_points(&self.points)?;
            self.points.clear();
        }
        Ok(())
    }

    /// Writes what is still held back.
    pub(super) fn finish(mut self) -> Result<(), SqlError> {
        self.flush()?;
        for series in self.series.values().filter(|series| series.changed) {
            let update = "update series set points = $1, next_ord = $2, first_step = $3, last_step = $4, last_ms = $5, \
                          last = $6, least = $7, most = $8 where id = $9";
            let values = [
                series.points.into(),
                series.next_ord.into(),
                series.first_step.into(),
                series.last_step.into(),
                series.last_ms.into(),
                series.last.clone(),
                series.least.into(),
                series.most.into(),
                series.id.into(),
            ];
            self.sql.execute(update, &values)?;
        }
        Ok(())
    }
}

impl Series {
    fn of(row: &Row) -> Self {
        Self {
            id: row.int(0).unwrap_or(0),
            points: row.count(1),
            next_ord: row.int(2).unwrap_or(0),
            first_step: row.int(3).unwrap_or(0),
            last_step: row.int(4).unwrap_or(0),
            last_ms: row.int(5),
            last: row.0.get(6).cloned().unwrap_or(Value::Null),
            least: row.real(7),
            most: row.real(8),
            changed: false,
        }
    }

    fn push(&mut self, point: &PointRow) {
        let PointRow { step, ord, unix_ms, value, .. } = *point;
        self.changed = true;
        self.points += 1;
        self.next_ord = self.next_ord.max(ord + 1);
        self.first_step = self.first_step.min(step);
        if step >= self.last_step {
            (self.last_step, self.last_ms, self.last) = (step, unix_ms, Value::number(value));
        }
        if value.is_finite() {
            self.least = Some(self.least.map_or(value, |least| least.min(value)));
            self.most = Some(self.most.map_or(value, |most| most.max(value)));
        }
    }
}

/// Removes everything that is known about a run, apart from its row.
pub(super) fn clear(sql: &mut dyn Sql, run: i64) -> Result<(), SqlError> {
    let run = [Value::Int(run)];
    sql.execute("delete from point where series in (select id from series where run = $1)", &run)?;
    sql.execute("delete from series where run = $1", &run)?;
    for table in OF_RUN {
        sql.execute(&format!("delete from {table} where run = $1"), &run)?;
    }
    Ok(())
}

/// Removes a run.
pub(super) fn remove(sql: &mut dyn Sql, run: i64) -> Result<(), SqlError> {
    clear(sql, run)?;
    sql.execute("delete from run where id = $1", &[Value::Int(run)])?;
    Ok(())
}
