//! Why the ledger cannot be used, or what was asked is not in it.

use crate::core::filter::FilterError;
use phalanx_records::run_dir::RunDirError;
use phalanx_types::Class;
use std::path::PathBuf;

/// A failure of a database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("{}", postgres_text(.0))]
    Postgres(#[source] tokio_postgres::Error),
    #[error("the thread of the database connection has ended")]
    ConnectionGone,
}

/// What the server says, which its error type leaves out.
fn postgres_text(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(server) => format!("PostgreSQL: {}", server.message()),
        None => format!("PostgreSQL: {error}"),
    }
}

impl From<tokio_postgres::Error> for SqlError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Postgres(error)
    }
}

impl SqlError {
    /// Whether another connection may work where this one failed.
    pub(crate) fn loses_connection(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(error) => error.is_closed() || error.as_db_error().is_none(),
            Self::ConnectionGone => true,
        }
    }

    /// Whether the file is not, or no longer, a database.
    pub(crate) fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        matches!(self, Self::Sqlite(error)
            if matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase)))
    }
}

/// Why the ledger cannot be used, or what was asked is not in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    #[error("could not open the ledger {at}")]
    Open { at: String, source: SqlError },
    #[error("could not {what} the ledger")]
    Sql { what: &'static str, source: SqlError },
    #[error("the ledger {at} has schema {found}, and this program knows schemas up to {known}")]
    Newer { at: String, found: u32, known: u32 },
    #[error("could not bring the ledger from schema {from} to {to}")]
    Migrate { from: u32, to: u32, source: SqlError },
    #[error("`{text}` is no place of a ledger: {why}")]
    Url { text: String, why: &'static str },
    #[error("the ledger is switched off by PHALANX_LEDGER=none")]
    Off,
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    Records(#[from] RunDirError),
    #[error("there is no run `{id}` in the ledger")]
    NoRun { id: String, nearest: Option<String> },
    #[error("`{id}` could be any of {count} runs, among them {}", examples.join(", "))]
    Ambiguous { id: String, count: usize, examples: Vec<String> },
    #[error("there is no series `{name}` of run {run}")]
    NoSeries { run: String, name: String, nearest: Option<String> },
    #[error("could not {what} {}", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
}

impl LedgerError {
    pub fn class(&self) -> Class {
        match self {
            Self::Open { .. } | Self::Sql { .. } | Self::Migrate { .. } | Self::File { .. } => Class::Retry,
            Self::Records(error) => error.class(),
            _ => Class::Fatal,
        }
    }

    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Open { source, .. } | Self::Sql { source, .. } if source.is_damage() => {
                "`phalanx ledger rebuild` sets the damaged file aside and makes the ledger anew from the runs".to_owned()
            }
            Self::Open { .. } => {
                "PHALANX_LEDGER names another place for it; records stay in the run directories and arrive later"
                    .to_owned()
            }
            Self::Newer { .. } => "use the newer program, or another PHALANX_LEDGER".to_owned(),
            Self::Url { .. } => {
                "PHALANX_LEDGER is postgres://USER@HOST/DATABASE, sqlite:FILE or none".to_owned()
            }
            Self::Off => "unset PHALANX_LEDGER".to_owned(),
            Self::Filter(error) => return error.hint(),
            Self::Records(error) => return error.hint(),
            Self::NoRun { nearest: Some(nearest), .. } | Self::NoSeries { nearest: Some(nearest), .. } => {
                format!("did you mean `{nearest}`?")
            }
            Self::NoRun { nearest: None, .. } => "`phalanx run list` names the runs there are".to_owned(),
            Self::Ambiguous { .. } => "give more of its name, or its uid".to_owned(),
            _ => return None,
        })
    }

    /// Whether the file of the ledger is not, or no longer, a database.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Open { source, .. } | Self::Sql { source, .. } if source.is_damage())
    }

    /// Whether the user asked for something wrong, rather than that something broke.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Open { .. } | Self::Sql { .. } | Self::Migrate { .. } | Self::File { .. })
    }
}

/// Says which operation of the ledger failed.
pub(crate) fn failed(what: &'static str) -> impl Fn(SqlError) -> LedgerError {
    move |source| LedgerError::Sql { what, source }
}
