//! The ledger as callers have it: a place, and a few open connections to it.

use super::postgres::Postgres;
use super::schema;
use super::sql::Sql;
use super::sqlite::Sqlite;
use crate::error::{LedgerError, SqlError};
use crate::rows::Migrated;
use crate::url::LedgerUrl;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections that are kept open while no query uses them.
const IDLE: usize = 4;

/// An index of runs. Clones use the same connections; all calls block, and any thread may make them.
#[derive(Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

/// Makes connections.
pub(crate) type Connect = Box<dyn Fn(&LedgerUrl) -> Result<Box<dyn Sql>, LedgerError> + Send + Sync>;

struct Inner {
    url: LedgerUrl,
    connect: Connect,
    idle: Mutex<Vec<Box<dyn Sql>>>,
    migrated: Option<Migrated>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("url", &self.inner.url).finish_non_exhaustive()
    }
}

impl Ledger {
    /// Opens a ledger, or makes one. One of an older schema is brought to the newest, with a copy first.
    ///
    /// # Errors
    /// It cannot be reached, is damaged, or has a schema that is newer than this program.
    pub fn open(at: &LedgerUrl) -> Result<Self, LedgerError> {
        Self::open_by(at, Box::new(connect))
    }

    /// The same over connections of any kind.
    pub(super) fn open_by(at: &LedgerUrl, connect: Connect) -> Result<Self, LedgerError> {
        let mut connection = connect(at)?;
        let migrated = schema::migrate(connection.as_mut(), at)?;
        let idle = Mutex::new(vec![connection]);
        Ok(Self { inner: Arc::new(Inner { url: at.clone(), connect, idle, migrated }) })
    }

    /// Opens the ledger of a directory of runs: what `PHALANX_LEDGER` names, or the file `ledger.sqlite` in it.
    ///
    /// # Errors
    /// As [`Ledger::open`], or the ledger is switched off.
    pub fn for_runs(runs: &Path) -> Result<Self, LedgerError> {
        Self::open(&LedgerUrl::for_runs(runs)?.ok_or(LedgerError::Off)?)
    }

    /// Where it is.
    pub fn url(&self) -> &LedgerUrl {
        &self.inner.url
    }

    /// What opening it did to its schema.
    pub fn migrated(&self) -> Option<&Migrated> {
        self.inner.migrated.as_ref()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Box<dyn Sql>>> {
        // A list of connections is whole at any time.
        self.inner.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a connection. One that failed as a connection is not used again.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut dyn Sql) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let idle = self.idle().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => (self.inner.connect)(&self.inner.url)?,
        };
        let result = work(connection.as_mut());
        let lost = match &result {
            Err(LedgerError::Sql { source, .. } | LedgerError::Open { source, .. }) => {
                source.loses_connection()
            }
            _ => false,
        };
        if lost {
            // Others of the same server are as likely gone.
            self.idle().clear();
        } else {
            let mut idle = self.idle();
            if idle.len() < IDLE {
                idle.push(connection);
            }
        }
        result
    }

    /// Does something in one transaction: all of it, or nothing.
    pub(super) fn transaction<T>(
        &self,
        key: &str,
        work: impl FnOnce(&mut dyn Sql) -> Result<Transacted<T>, LedgerError>,
    ) -> Result<T, LedgerError> {
        self.with(|sql| {
            sql.begin(key).map_err(crate::error::failed("write to"))?;
            match work(sql) {
                Ok(Transacted::Commit(value)) => {
                    if let Err(source) = sql.commit() {
                        // The first error says why.
                        let _ended = sql.rollback();
                        return Err(LedgerError::Sql { what: "write to", source });
                    }
                    Ok(value)
                }
                Ok(Transacted::Nothing(value)) => {
                    sql.rollback().map_err(crate::error::failed("read"))?;
                    Ok(value)
                }
                Err(error) => {
                    // The first error says why.
                    let _ended = sql.rollback();
                    Err(error)
                }
            }
        })
    }
}

/// How a transaction ends.
pub(super) enum Transacted<T> {
    Commit(T),
    /// There was nothing to write.
    Nothing(T),
}

pub(crate) fn connect(url: &LedgerUrl) -> Result<Box<dyn Sql>, LedgerError> {
    let opened = match url {
        LedgerUrl::Sqlite(path) => Sqlite::open(path).map(|sqlite| Box::new(sqlite) as Box<dyn Sql>),
        LedgerUrl::Postgres(url) => Postgres::open(url).map(|postgres| Box::new(postgres) as Box<dyn Sql>),
    };
    opened.map_err(|source: SqlError| LedgerError::Open { at: url.to_string(), source })
}
