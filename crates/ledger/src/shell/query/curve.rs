//! The metrics of a run: its series, and the curve of one.

use crate::core::reduce::{Axis, Curve, Point, Reducer, Window};
use crate::error::{LedgerError, failed};
use crate::rows::SeriesInfo;
use crate::shell::pool::Ledger;
use crate::shell::sql::first;
use crate::value::{Row, Value};
use phalanx_types::nearest;

impl Ledger {
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
}
