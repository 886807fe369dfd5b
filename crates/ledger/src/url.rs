//! Where a ledger is.

use crate::error::LedgerError;
use crate::postgres_url::PostgresUrl;
use std::fmt;
use std::path::{Path, PathBuf};

/// The variable that names another place for the ledger.
pub const LEDGER_VARIABLE: &str = "PHALANX_LEDGER";
/// The file of the ledger, in the directory of the runs.
pub const LEDGER_FILE: &str = "ledger.sqlite";

/// Where runs are by default.
const RUNS: &str = "runs";
/// Where searches are by default, beside the runs.
const SEARCHES: &str = "searches";

/// Where a ledger is.
#[derive(Clone, PartialEq, Eq)]
pub enum LedgerUrl {
    /// A file; the directories of its runs are named relative to it if they are beside it.
    Sqlite(PathBuf),
    /// A server, as PostgreSQL's clients name it: `postgres://user:password@host:port/database`.
    Postgres(String),
}

impl LedgerUrl {
    /// Reads `postgres://…`, `sqlite:FILE` or `none`.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Option<Self>, LedgerError> {
        let fail = |why| LedgerError::Url { text: without_password(text), why };
        if text == "none" || text == "off" {
            return Ok(None);
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return match PostgresUrl::parse(text) {
                Ok(_url) => Ok(Some(Self::Postgres(text.to_owned()))),
                Err(why) => Err(fail(why)),
            };
        }
        match text.strip_prefix("sqlite:") {
            Some(path) if !path.trim_start_matches('/').is_empty() => {
                let path = path.strip_prefix("//").unwrap_or(path);
                Ok(Some(Self::Sqlite(PathBuf::from(path))))
            }
            Some(_) => Err(fail("the file is missing")),
            None => Err(fail("it begins with neither postgres:// nor sqlite:")),
        }
    }

    /// The ledger of a directory of runs: what `PHALANX_LEDGER` names, or `ledger.sqlite` in it; `None` if it is
    /// switched off.
    ///
    /// # Errors
    /// The variable cannot be understood.
    pub fn for_runs(runs: &Path) -> Result<Option<Self>, LedgerError> {
        match std::env::var(LEDGER_VARIABLE) {
            Ok(text) if !text.trim().is_empty() => Self::parse(text.trim()),
            _ => Ok(Some(Self::Sqlite(runs.join(LEDGER_FILE)))),
        }
    }
}

impl LedgerUrl {
    /// The ledger that a run belongs to: what `PHALANX_LEDGER` names, or that of the directory which it is in, if that
    /// is one of runs: named `runs`, or with a ledger in it. Other directories get no file that their owner did not
    /// ask for. `None` if there is none.
    ///
    /// # Errors
    /// The variable cannot be understood.
    pub fn for_run(run: &Path) -> Result<Option<Self>, LedgerError> {
        let failed = |source| LedgerError::File { what: "find", path: run.to_owned(), source };
        let whole = std::path::absolute(run).map_err(failed)?;
        let Some(runs) = whole.parent() else { return Ok(None) };
        let url = Self::for_runs(runs)?;
        let beside = runs.join(LEDGER_FILE);
        let is_ours = || runs.file_name().is_some_and(|name| name == RUNS) || beside.exists();
        Ok(url.filter(|url| *url != Self::Sqlite(beside.clone()) || is_ours()))
    }
}

impl LedgerUrl {
    /// The ledger of a directory of searches: what `PHALANX_LEDGER` names, or that of the directory `runs` beside it, if
    /// it is named `searches` or there is such a ledger. `None` if there is none.
    ///
    /// # Errors
    /// The variable cannot be understood.
    pub fn for_searches(searches: &Path) -> Result<Option<Self>, LedgerError> {
        let failed = |source| LedgerError::File { what: "find", path: searches.to_owned(), source };
        let searches = std::path::absolute(searches).map_err(failed)?;
        let runs = searches.parent().unwrap_or(&searches).join(RUNS);
        let url = Self::for_runs(&runs)?;
        let beside = runs.join(LEDGER_FILE);
        let is_ours = || searches.file_name().is_some_and(|name| name == SEARCHES) || beside.exists();
        Ok(url.filter(|url| *url != Self::Sqlite(beside.clone()) || is_ours()))
    }
}

/// The directory of searches beside a directory of runs.
pub fn searches_beside(runs: &Path) -> PathBuf {
    match runs.parent().filter(|_named| runs.file_name().is_some()) {
        Some(workspace) => workspace.join(SEARCHES),
        None => runs.join("..").join(SEARCHES),
    }
}

impl fmt::Display for LedgerUrl {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            Self::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for LedgerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LedgerUrl({self})")
    }
}

/// The same URL with stars in the place of a password.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let user_ends = rest.find('/').unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(rest[..user_ends].rfind('@').unwrap_or(0));
    let user = authority.split_once(':').map_or(authority.to_owned(), |(user, _)| format!("{user}:***"));
    // Clients also take it as a parameter.
    let tail = match tail.find("password=") {
        Some(at) => {
            let end = tail[at..].find('&').map_or(tail.len(), |len| at + len);
            format!("{}password=***{}", &tail[..at], &tail[end..])
        }
        None => tail.to_owned(),
    };
    format!("{scheme}://{user}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_passwords_not_shown() {
        let url = LedgerUrl::parse("postgres://me:se@cret@db.example:5433/runs?password=x&sslmode=disable");
        let shown = url.unwrap().unwrap().to_string();
        assert_eq!(shown, "postgres://me:***@db.example:5433/runs?password=***&sslmode=disable");
        assert_eq!(LedgerUrl::parse("none").unwrap(), None);
        assert_eq!(LedgerUrl::parse("sqlite:a/b").unwrap(), Some(LedgerUrl::Sqlite("a/b".into())));
        assert_eq!(LedgerUrl::parse("sqlite:///a/b").unwrap(), Some(LedgerUrl::Sqlite("/a/b".into())));
        for wrong in ["", "sqlite:", "mysql://x", "ledger.db", "postgres://[", "none "] {
            assert!(LedgerUrl::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(without_password("postgres://host/db"), "postgres://host/db");
    }
}
