//! Why the ledger cannot be used, or what was asked is not in it.

use crate::core::filter::FilterError;
use phalanx_jobs::JournalError;
use phalanx_records::run_dir::RunDirError;
use phalanx_search_results::follow::FollowError;
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
    #[error("PostgreSQL: the connection is not encrypted as sslmode asks")]
    Tls(#[from] TlsError),
    /// Of a ledger that was made without reading its URL first.
    #[error("no URL of a PostgreSQL server: {0}")]
    Url(&'static str),
    #[error("the thread of the database connection has ended")]
    ConnectionGone,
}

/// Why a connection to a server could not be encrypted, or is not trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    #[error("no known authority has signed the certificate of the server")]
    UnknownAuthority,
    #[error("the certificate of the server is for another host")]
    OtherHost(#[source] rustls::Error),
    #[error("the certificate of the server has expired, or is not valid yet")]
    NotNow(#[source] rustls::Error),
    #[error("the two sides could not agree")]
    Handshake(#[source] rustls::Error),
    #[error("there are no certificates of authorities to check the server's with")]
    NoAuthorities,
    #[error("could not read the certificates of authorities in {}", path.display())]
    Authorities { path: PathBuf, source: std::io::Error },
}

impl TlsError {
    /// What the other side, or the check of its certificate, said.
    pub(crate) fn of(error: rustls::Error) -> Self {
        use rustls::CertificateError as Bad;
        match &error {
            rustls::Error::InvalidCertificate(Bad::UnknownIssuer) => Self::UnknownAuthority,
            rustls::Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
                Self::OtherHost(error)
            }
            rustls::Error::InvalidCertificate(
                Bad::Expired | Bad::ExpiredContext { .. } | Bad::NotValidYet | Bad::NotValidYetContext { .. },
            ) => Self::NotNow(error),
            _ => Self::Handshake(error),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::UnknownAuthority | Self::NoAuthorities => {
                "sslrootcert=FILE names the authority that signed the server's certificate, sslrootcert=system \
                 takes those of the system; sslmode=require encrypts without a check"
            }
            Self::OtherHost(_) => {
                "name the server as its certificate does (subjectAltName), or check only who signed it, by \
                 sslmode=verify-ca"
            }
            Self::NotNow(_) => "the server needs a new certificate, or a clock is wrong",
            Self::Handshake(_) => {
                "the server must speak TLS 1.3; sslmode=disable connects without encryption"
            }
            Self::Authorities { .. } => "sslrootcert names a file of certificates in PEM",
        }
    }
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
            Self::ConnectionGone | Self::Tls(_) | Self::Url(_) => true,
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
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The records of a search cannot be read.
    #[error(transparent)]
    SearchFiles(#[from] FollowError),
    #[error("what the ledger has of the search was written by another version of this program")]
    MalformedSearch { source: serde_json::Error },
    #[error("there is no search `{id}` in the ledger")]
    NoSearch { id: String, nearest: Option<String> },
    #[error("the ledger has several searches `{id}`: {}", uids.join(", "))]
    AmbiguousSearch { id: String, uids: Vec<String> },
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
            Self::Open { source: SqlError::Tls(error), .. } => error.hint().to_owned(),
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
            Self::Journal(error) => return error.hint().map(str::to_owned),
            Self::NoRun { nearest: Some(nearest), .. }
            | Self::NoSeries { nearest: Some(nearest), .. }
            | Self::NoSearch { nearest: Some(nearest), .. } => {
                format!("did you mean `{nearest}`?")
            }
            Self::NoSearch { nearest: None, .. } => {
                "`phalanx search list` names the searches there are".to_owned()
            }
            Self::AmbiguousSearch { .. } => "give its uid".to_owned(),
            Self::MalformedSearch { .. } => {
                "`phalanx ledger rebuild` on its host makes the ledger anew from its files".to_owned()
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
