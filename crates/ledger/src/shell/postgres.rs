//! PostgreSQL: the connection lives on a thread with its own runtime, so that callers may be anywhere, also in one.

mod session;
mod tls;
mod values;

use super::sql::{PointRow, Sql};
use crate::core::filter::Dialect;
use crate::error::SqlError;
use crate::postgres_url::PostgresUrl;
use crate::value::{Row, Value};
use session::Session;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tls::Connector;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How long connecting may take, if the URL does not say.
const CONNECT: Duration = Duration::from_secs(5);
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
        let PostgresUrl { mut config, mode, authorities } = PostgresUrl::parse(url).map_err(SqlError::Url)?;
        let tls = Connector::new(mode, &authorities)?;
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
                runtime.block_on(serve(config, tls, inbox, &opened));
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
    tls: Connector,
    mut inbox: UnboundedReceiver<Request>,
    opened: &SyncSender<Result<(), SqlError>>,
) {
    let (client, connection) = match tls.reach(config).await {
        Ok(connected) => connected,
        Err(error) => {
            // The caller waits for it.
            let _told = opened.send(Err(error));
            return;
        }
    };
    let background = tokio::spawn(connection);
    let _told = opened.send(Ok(()));
    let mut session = Session::new(client);
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
