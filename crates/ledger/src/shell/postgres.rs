//! PostgreSQL: the connection lives on a thread with its own runtime, so that callers may be anywhere, also in one.

use super::sql::{PointRow, Sql};
use crate::core::filter::Dialect;
use crate::error::SqlError;
use crate::value::{Row, Value};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};
use tokio_postgres::{Client, NoTls, Statement};

/// How long connecting may take, if the URL does not say.
const CONNECT: Duration = Duration::from_secs(5);
/// Statements that are kept prepared.
const KEPT: usize = 64;
/// Rows of a result that travel at once between the threads.
const ROWS: usize = 4096;

pub(crate) struct Postgres {
    requests: UnboundedSender<Request>,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}

enum Request {
    Execute { sql: String, values: Vec<Value>, reply: SyncSender<Result<u64, SqlError>> },
    Query { sql: String, values: Vec<Value>, reply: SyncSender<Result<Vec<Row>, SqlError>> },
    Script { sql: String, reply: SyncSender<Result<(), SqlError>> },
    Points { points: Vec<PointRow>, reply: SyncSender<Result<(), SqlError>> },
}

impl Postgres {
    pub(crate) fn open(url: &str) -> Result<Self, SqlError> {
        let mut config: tokio_postgres::Config = url.parse()?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_application_name().is_none() {
            config.application_name("phalanx");
        }
        let (requests, inbox) = unbounded_channel();
        let (opened, wait) = sync_channel(1);
        let spawned = std::thread::Builder::new().name("ledger-postgres".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(serve(config, inbox, &opened));
            }
        });
        if spawned.is_err() {
            return Err(SqlError::ConnectionGone);
        }
        wait.recv().unwrap_or(Err(SqlError::ConnectionGone))?;
        let mut this = Self { requests };
        // `if not exists` does not help when two connections make it at the same moment: one of them waits.
        this.script(
            "begin; select pg_advisory_xact_lock(hashtext('phalanx')); create schema if not exists phalanx; commit; \
             set search_path to phalanx",
        )?;
        Ok(this)
    }

    fn ask<T>(
        &self,
        request: impl FnOnce(SyncSender<Result<T, SqlError>>) -> Request,
    ) -> Result<Receiver<Result<T, SqlError>>, SqlError> {
        let (reply, answer) = sync_channel(4);
        self.requests.send(request(reply)).map_err(|_gone| SqlError::ConnectionGone)?;
        Ok(answer)
    }

    fn answer<T>(
        &self,
        request: impl FnOnce(SyncSender<Result<T, SqlError>>) -> Request,
    ) -> Result<T, SqlError> {
        self.ask(request)?.recv().unwrap_or(Err(SqlError::ConnectionGone))
    }
}

/// Serves one connection until its owner is gone.
async fn serve(
    config: tokio_postgres::Config,
    mut inbox: UnboundedReceiver<Request>,
    opened: &SyncSender<Result<(), SqlError>>,
) {
    let (client, connection) = match config.connect(NoTls).await {
        Ok(connected) => connected,
        Err(error) => {
            // The caller waits for it.
            let _told = opened.send(Err(error.into()));
            return;
        }
    };
    let background = tokio::spawn(connection);
    let _told = opened.send(Ok(()));
    let mut session = Session { client, prepared: BTreeMap::new() };
    while let Some(request) = inbox.recv().await {
        // Answers to callers that are gone are dropped.
        match request {
            Request::Execute { sql, values, reply } => drop(reply.send(session.execute(&sql, &values).await)),
            Request::Query { sql, values, reply } => session.query(&sql, &values, &reply).await,
            Request::Script { sql, reply } => {
                drop(reply.send(session.client.batch_execute(&sql).await.map_err(Into::into)));
            }
            Request::Points { points, reply } => drop(reply.send(session.points(&points).await)),
        }
    }
    drop(session);
    // Ends with the client, after telling the server so.
    let _ended = background.await;
}

struct Session {
    client: Client,
    prepared: BTreeMap<String, Statement>,
}

impl Session {
    async fn prepare(&mut self, sql: &str) -> Result<Statement, SqlError> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        if self.prepared.len() >= KEPT {
            self.prepared.clear();
        }
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, SqlError> {
        let statement = self.prepare(sql).await?;
        Ok(self.client.execute_raw(&statement, values).await?)
    }

    async fn query(&mut self, sql: &str, values: &[Value], reply: &SyncSender<Result<Vec<Row>, SqlError>>) {
        if let Err(error) = self.query_rows(sql, values, reply).await {
            // A caller that is gone needs no error.
            let _told = reply.send(Err(error));
        }
    }

    async fn query_rows(
        &mut self,
        sql: &str,
        values: &[Value],
        reply: &SyncSender<Result<Vec<Row>, SqlError>>,
    ) -> Result<(), SqlError> {
        let statement = self.prepare(sql).await?;
        let rows = self.client.query_raw(&statement, values).await?;
        let mut rows = std::pin::pin!(rows);
        let mut some = Vec::new();
        while let Some(row) = next(rows.as_mut()).await {
            let row = row?;
            let cells = (0..row.len()).map(|at| row.try_get::<_, Cell>(at).map(|cell| cell.0));
            some.push(Row(cells.collect::<Result<_, _>>()?));
            if some.len() == ROWS && reply.send(Ok(std::mem::take(&mut some))).is_err() {
                return Ok(());
            }
        }
        let _told = reply.send(Ok(some));
        Ok(())
    }

    /// One statement for all points: arrays are rows of a table.
    async fn points(&mut self, points: &[PointRow]) -> Result<(), SqlError> {
        let insert = "insert into point (series, step, ord, unix_ms, value) \
                      select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::float8[])";
        let statement = self.prepare(insert).await?;
        let series: Vec<i64> = points.iter().map(|point| point.series).collect();
        let steps: Vec<i64> = points.iter().map(|point| point.step).collect();
        let orders: Vec<i64> = points.iter().map(|point| point.ord).collect();
        let times: Vec<Option<i64>> = points.iter().map(|point| point.unix_ms).collect();
        let value = |point: &PointRow| Some(point.value).filter(|value| !value.is_nan());
        let values: Vec<Option<f64>> = points.iter().map(value).collect();
        let columns: [&(dyn ToSql + Sync); 5] = [&series, &steps, &orders, &times, &values];
        self.client.execute(&statement, &columns).await?;
        Ok(())
    }
}

/// The next row of a stream.
async fn next(
    mut rows: std::pin::Pin<&mut tokio_postgres::RowStream>,
) -> Option<Result<tokio_postgres::Row, tokio_postgres::Error>> {
    use futures_core::Stream as _;
    std::future::poll_fn(|context| rows.as_mut().poll_next(context)).await
}

impl Sql for Postgres {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn begin(&mut self, key: &str) -> Result<(), SqlError> {
        self.script("begin")?;
        let lock = "select pg_advisory_xact_lock(hashtextextended($1, 7070))";
        match self.query(lock, &[Value::from(key)], &mut |_row| {}) {
            Ok(()) => Ok(()),
            Err(error) => {
                // The first error says why.
                let _ended = self.rollback();
                Err(error)
            }
        }
    }

    fn commit(&mut self) -> Result<(), SqlError> {
        self.script("commit")
    }

    fn rollback(&mut self) -> Result<(), SqlError> {
        self.script("rollback")
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, SqlError> {
        self.answer(|reply| Request::Execute { sql: sql.to_owned(), values: values.to_vec(), reply })
    }

    fn query(&mut self, sql: &str, values: &[Value], each: &mut dyn FnMut(&Row)) -> Result<(), SqlError> {
        let answers =
            self.ask(|reply| Request::Query { sql: sql.to_owned(), values: values.to_vec(), reply })?;
        loop {
            let rows = answers.recv().unwrap_or(Err(SqlError::ConnectionGone))?;
            rows.iter().for_each(&mut *each);
            if rows.len() < ROWS {
                return Ok(());
            }
        }
    }

    fn script(&mut self, sql: &str) -> Result<(), SqlError> {
        self.answer(|reply| Request::Script { sql: sql.to_owned(), reply })
    }

    fn insert_points(&mut self, points: &[PointRow]) -> Result<(), SqlError> {
        self.answer(|reply| Request::Points { points: points.to_vec(), reply })
    }
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (self, ty) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Int(value), &Type::INT4) => i32::try_from(*value)?.to_sql(ty, out),
            (Value::Int(value), &Type::FLOAT8) => (*value as f64).to_sql(ty, out),
            (Value::Int(value), _) => value.to_sql(ty, out),
            (Value::Real(value), &Type::INT8) => (*value as i64).to_sql(ty, out),
            (Value::Real(value), _) => value.to_sql(ty, out),
            // PostgreSQL has no text with this character.
            (Value::Text(text), _) if text.contains('\0') => text.replace('\0', "\u{fffd}").to_sql(ty, out),
            (Value::Text(text), _) => text.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::INT4 | Type::INT8 | Type::FLOAT8 | Type::TEXT | Type::VARCHAR | Type::NAME)
    }

    tokio_postgres::types::to_sql_checked!();
}

/// A value of a result.
struct Cell(Value);

impl<'a> FromSql<'a> for Cell {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Cell(match *ty {
            Type::BOOL => Value::Int(i64::from(bool::from_sql(ty, raw)?)),
            Type::INT4 => Value::Int(i64::from(i32::from_sql(ty, raw)?)),
            Type::INT8 => Value::Int(i64::from_sql(ty, raw)?),
            Type::FLOAT8 => Value::Real(f64::from_sql(ty, raw)?),
            _ => Value::Text(String::from_sql(ty, raw)?),
        }))
    }

    fn from_sql_null(_ty: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Cell(Value::Null))
    }

    fn accepts(ty: &Type) -> bool {
        let known =
            matches!(*ty, Type::BOOL | Type::INT4 | Type::INT8 | Type::FLOAT8 | Type::TEXT | Type::NAME);
        // What the functions of PostgreSQL that return nothing return.
        known || *ty == Type::VARCHAR || *ty == Type::VOID
    }
}
