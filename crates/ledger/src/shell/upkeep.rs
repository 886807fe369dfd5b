//! What keeps a ledger well: information, making it anew, cleaning up.

use super::place::{Place, host, root_of};
use super::pool::{Ledger, Transacted};
use super::schema::{self, SCHEMA, is_plain, now_ms};
use super::sql::{all, first};
use crate::core::filter::Dialect;
use crate::error::{LedgerError, failed};
use crate::rows::{CaughtUp, LedgerInfo, Pruned};
use crate::url::LedgerUrl;
use phalanx_records::run_dir::is_run;
use std::path::{Path, PathBuf};

impl Ledger {
    /// What the ledger is and holds.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn info(&self) -> Result<LedgerInfo, LedgerError> {
        self.with(|sql| {
            let read = failed("read");
            let counts = "select (select count(*) from run), (select count(*) from run where state = 'running'), \
                          (select count(*) from series), (select coalesce(sum(points), 0) from series), \
                          (select count(*) from event), (select count(*) from job), (select count(*) from search), \
                          (select count(*) from trial)";
            // The sum of whole numbers has another type in PostgreSQL.
            let counts = counts.replace("coalesce(sum(points), 0)", "cast(coalesce(sum(points), 0) as bigint)");
            let row = first(sql, &counts, &[]).map_err(&read)?;
            let count = |at| row.as_ref().map_or(0, |row| row.count(at));
            let (database, size) = match sql.dialect() {
                Dialect::Sqlite => {
                    let version = first(sql, "select sqlite_version()", &[]).map_err(&read)?;
                    let version = version.map_or_else(String::new, |row| row.required_text(0));
                    (format!("SQLite {version}"), self.bytes_on_disk())
                }
                Dialect::Postgres => {
                    let version = first(sql, "select current_setting('server_version')", &[]).map_err(&read)?;
                    let version = version.map_or_else(String::new, |row| row.required_text(0));
                    let size = "select cast(coalesce(sum(pg_total_relation_size(quote_ident(schemaname) || '.' || \
                                quote_ident(tablename))), 0) as bigint) from pg_tables where schemaname = 'phalanx'";
                    let size = first(sql, size, &[]).map_err(&read)?;
                    (format!("PostgreSQL {version}"), size.map_or(0, |row| row.count(0)))
                }
            };
            let schema = schema::version(sql).map_err(&read)?;
            Ok(LedgerInfo {
                place: self.url().to_string(),
                database,
                schema,
                newest_schema: SCHEMA,
                runs: count(0),
                running: count(1),
                series: count(2),
                points: count(3),
                events: count(4),
                jobs: count(5),
                searches: count(6),
                trials: count(7),
                size,
            })
        })
    }

    /// Makes everything about the runs of a directory anew from their files.
    ///
    /// # Errors
    /// The directory cannot be read, or the ledger does not take it.
    pub fn rebuild(&self, runs: &Path) -> Result<CaughtUp, LedgerError> {
        let root = root_of(self.url(), runs);
        self.transaction("rebuild", |sql| {
            let write = failed("write to");
            let ours = "select id from run where root = $1 and (host = $2 or root = '')";
            for row in all(sql, ours, &[root.into(), host().into()]).map_err(&write)? {
                let id = [row.int(0).unwrap_or(-1).into()];
                // A run without a position would never be looked at.
                let mark = "insert into position (run, events, metrics, annotations, state_file, run_file, stale) \
                            values ($1, 0, 0, 0, '', '', 1) on conflict (run) do update set stale = 1";
                sql.execute(mark, &id).map_err(&write)?;
            }
            Ok(Transacted::Commit(()))
        })?;
        self.catch_up(runs)
    }

    /// Forgets runs, searches and journals of this machine that are gone, removes copies that were made before migrations, and
    /// gives free space back.
    ///
    /// # Errors
    /// The ledger does not take it.
    pub fn prune(&self) -> Result<Pruned, LedgerError> {
        let before = self.bytes_on_disk();
        let find = "select id, root, dir from run where host = $1 or root = ''";
        let rows = self.with(|sql| all(sql, find, &[host().into()]).map_err(failed("read")))?;
        let gone = rows
            .iter()
            .filter(|row| !is_run(&Place::path_of(self.url(), &row.required_text(1), &row.required_text(2))));
        let runs = self.forget(gone.filter_map(|row| row.int(0)).collect::<Vec<_>>().into_iter())?;
        let journals = self.forget_gone_journals()?;
        let searches = self.forget_gone_searches()?;
        let copies = self.remove_copies()?;
        self.with(|sql| {
            let vacuum = match sql.dialect() {
                Dialect::Sqlite => "vacuum; pragma wal_checkpoint(truncate)",
                Dialect::Postgres => "vacuum",
            };
            sql.script(vacuum).map_err(failed("clean up"))
        })?;
        Ok(Pruned { runs, journals, searches, copies, freed: before.saturating_sub(self.bytes_on_disk()) })
    }

    /// Forgets one run.
    ///
    /// # Errors
    /// There is no such run, or the ledger does not take it.
    pub fn forget_run(&self, uid: &str) -> Result<(), LedgerError> {
        let id = self.with(|sql| {
            first(sql, "select id from run where uid = $1", &[uid.into()]).map_err(failed("read"))
        })?;
        let id = id.and_then(|row| row.int(0));
        let id = id.ok_or_else(|| LedgerError::NoRun { id: uid.to_owned(), nearest: None })?;
        self.forget(std::iter::once(id)).map(|_one| ())
    }

    fn remove_copies(&self) -> Result<u64, LedgerError> {
        match self.url() {
            LedgerUrl::Sqlite(path) => {
                let copies = copies_of(path);
                for copy in &copies {
                    let failed = |source| LedgerError::File { what: "remove", path: copy.clone(), source };
                    std::fs::remove_file(copy).map_err(failed)?;
                }
                Ok(copies.len() as u64)
            }
            LedgerUrl::Postgres(_) => self.with(|sql| {
                let find = "select nspname from pg_namespace where nspname like 'phalanx\\_schema%'";
                let found = all(sql, find, &[]).map_err(failed("read"))?;
                let names: Vec<String> =
                    found.iter().filter_map(|row| row.text(0)).filter(|name| is_plain(name)).collect();
                for name in &names {
                    sql.script(&format!("drop schema {name} cascade")).map_err(failed("clean up"))?;
                }
                Ok(names.len() as u64)
            }),
        }
    }

    fn bytes_on_disk(&self) -> u64 {
        let LedgerUrl::Sqlite(path) = self.url() else { return 0 };
        let len = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            std::fs::metadata(name).map_or(0, |file| file.len())
        };
        len("") + len("-wal")
    }
}

/// Copies of a file that were made before migrations.
fn copies_of(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let ours = |file: &str| file.strip_prefix(&name).is_some_and(|end| end.starts_with(".schema"));
    entries.filter(|entry| ours(&entry.file_name().to_string_lossy())).map(|entry| entry.path()).collect()
}

/// Sets a damaged file aside, so that the next [`Ledger::open`] makes a new one; gives its new name.
///
/// # Errors
/// It cannot be renamed.
pub fn set_aside(path: &Path) -> Result<PathBuf, LedgerError> {
    let stamp = now_ms();
    let renamed = |end: &str, new: bool| {
        let mut name = path.as_os_str().to_owned();
        if new {
            name.push(format!(".damaged-{stamp}"));
        }
        name.push(end);
        PathBuf::from(name)
    };
    for end in ["-wal", "-shm"] {
        // Often there is none.
        let _moved = std::fs::rename(renamed(end, false), renamed(end, true));
    }
    let aside = renamed("", true);
    let failed = |source| LedgerError::File { what: "rename", path: path.to_owned(), source };
    std::fs::rename(path, &aside).map_err(failed)?;
    Ok(aside)
}
