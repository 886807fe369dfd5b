//! SQLite: one file, many readers, one writer at a time.

use super::sql::{PointRow, Sql};
use crate::core::filter::Dialect;
use crate::error::SqlError;
use crate::value::{Row, Value};
use rusqlite::types::{ToSqlOutput, Value as Stored, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a writer waits for another one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two attempts where SQLite itself does not wait.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    pub(crate) fn open(path: &Path) -> Result<Self, SqlError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(PATIENCE)?;
        use_write_ahead_log(&connection)?;
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "foreign_keys", "off")?;
        connection.pragma_update(None, "cache_size", -16_384)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(Self { connection })
    }
}

/// Several processes may do so to a new file at once. SQLite does not wait then, as it does for other locks.
fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let begin = Instant::now();
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(error) if is_busy(&error) && begin.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => ToSqlOutput::Owned(Stored::Null),
            Value::Int(value) => ToSqlOutput::Owned(Stored::Integer(*value)),
            Value::Real(value) => ToSqlOutput::Owned(Stored::Real(*value)),
            Value::Text(value) => ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())),
        })
    }
}

impl Sql for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    /// There is one writer, whatever the key.
    fn begin(&mut self, _key: &str) -> Result<(), SqlError> {
        Ok(self.connection.execute_batch("begin immediate")?)
    }

    fn commit(&mut self) -> Result<(), SqlError> {
        Ok(self.connection.execute_batch("commit")?)
    }

    fn rollback(&mut self) -> Result<(), SqlError> {
        // After some errors, such as a full disk, SQLite has done so by itself.
        if self.connection.is_autocommit() {
            return Ok(());
        }
        Ok(self.connection.execute_batch("rollback")?)
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, SqlError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement.execute(rusqlite::params_from_iter(values))? as u64)
    }

    fn query(&mut self, sql: &str, values: &[Value], each: &mut dyn FnMut(&Row)) -> Result<(), SqlError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let mut row = Row(vec![Value::Null; columns]);
        while let Some(found) = rows.next()? {
            for (at, value) in row.0.iter_mut().enumerate() {
                *value = match found.get_ref(at)? {
                    ValueRef::Null | ValueRef::Blob(_) => Value::Null,
                    ValueRef::Integer(value) => Value::Int(value),
                    ValueRef::Real(value) => Value::Real(value),
                    ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
                };
            }
            each(&row);
        }
        Ok(())
    }

    fn script(&mut self, sql: &str) -> Result<(), SqlError> {
        Ok(self.connection.execute_batch(sql)?)
    }

    fn insert_points(&mut self, points: &[PointRow]) -> Result<(), SqlError> {
        let insert = "insert into point (series, step, ord, unix_ms, value) values (?1, ?2, ?3, ?4, ?5)";
        let mut statement = self.connection.prepare_cached(insert)?;
        for point in points {
            // SQLite stores what is not a number as NULL.
            statement.execute((point.series, point.step, point.ord, point.unix_ms, point.value))?;
        }
        Ok(())
    }
}
