//! Jobs: brings the journals of main nodes into the ledger, and answers what is known of their jobs. A journal and the
//! position in it change in one transaction, as with runs.

use super::place::host;
use super::pool::{Ledger, Transacted};
use super::sql::{Sql, all, first};
use crate::core::bounded;
use crate::error::{LedgerError, SqlError, failed};
use crate::rows::{CaughtUpJournals, Fed, JobRow, JournalRow};
use crate::value::{Row, Value};
use phalanx_jobs::{JournalBatch, JournalEntry, JournalPosition, read_journal_from};
use phalanx_records::with_causes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How the file of a journal ends.
const ENDING: &str = ".journal";

/// A journal by the directory that it is in and its name there, without the ending.
struct Place {
    dir: String,
    name: String,
    path: PathBuf,
}

/// See [`Ledger::known_journals`].
type KnownJournals = (BTreeMap<String, (i64, String)>, Vec<(PathBuf, String)>);

impl Place {
    fn name_of(path: &Path) -> String {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        file.strip_suffix(ENDING).map_or(file.clone(), str::to_owned)
    }

    fn of(journal: &Path) -> Result<Self, LedgerError> {
        let failed = |source| LedgerError::File { what: "find", path: journal.to_owned(), source };
        let path = journal.canonicalize().map_err(failed)?;
        let name = Self::name_of(&path);
        let dir = path.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
        Ok(Self { dir, name, path })
    }
}

/// A journal as the ledger knows it.
struct Known {
    id: i64,
    host: String,
    session: String,
    domain: String,
    position: JournalPosition,
    /// What its file was like when it was read.
    stamp: String,
}

impl Known {
    const COLUMNS: &str = "id, host, session, domain, bytes, last, checksum, unix_ms, stamp";

    fn of(row: &Row) -> Self {
        let check = u32::try_from(row.count(6)).unwrap_or(0);
        let (bytes, last, unix_ms) = (row.count(4), row.count(5), row.count(7));
        Self {
            id: row.int(0).unwrap_or(-1),
            host: row.required_text(1),
            session: row.required_text(2),
            domain: row.required_text(3),
            position: JournalPosition { bytes, last, check, unix_ms },
            stamp: row.required_text(8),
        }
    }
}

impl Ledger {
    /// Brings everything that the journal of a main node tells into the ledger.
    ///
    /// # Errors
    /// The journal cannot be read, or the ledger does not take it; what was taken stays.
    pub fn feed_journal(&self, domain: &str, journal: &Path) -> Result<Fed, LedgerError> {
        let place = Place::of(journal)?;
        let key = place.path.to_string_lossy().into_owned();
        let mut total = Fed::default();
        loop {
            let (fed, more) = self.transaction(&key, |sql| feed_batch(sql, domain, &place))?;
            total.entries += fed.entries;
            total.changed |= fed.changed;
            if !more {
                return Ok(total);
            }
        }
    }

    /// Brings the journals of a directory into the ledger, and forgets those that are gone. Journals of the domain that
    /// their main nodes had elsewhere on this host are looked at, too.
    ///
    /// # Errors
    /// The directory cannot be read, or the ledger does not take it. A journal that cannot be read is only named.
    pub fn catch_up_journals(&self, domain: &str, dir: &Path) -> Result<CaughtUpJournals, LedgerError> {
        let mut result = CaughtUpJournals::default();
        let dir = dir.canonicalize().unwrap_or_else(|_missing| dir.to_owned());
        let (mut here, elsewhere) = self.known_journals(domain, &dir)?;
        for path in journals_in(&dir)? {
            let name = Place::name_of(&path);
            let known = here.remove(&name);
            if known.is_some_and(|(_, stamp)| stamp == stamp_of(&path)) {
                result.journals += 1;
            } else {
                self.look_at_journal(domain, &path, &mut result)?;
            }
        }
        for (id, _) in here.into_values() {
            self.forget_journal(id)?;
            result.removed += 1;
        }
        for (path, stamp) in elsewhere {
            if path.is_file() && stamp_of(&path) != stamp {
                self.look_at_journal(domain, &path, &mut result)?;
            }
        }
        Ok(result)
    }

    /// Makes everything about journals of this host anew: those of directories, with the names of their domains, and
    /// those that their main nodes had elsewhere.
    ///
    /// # Errors
    /// As [`Ledger::catch_up_journals`].
    pub fn rebuild_journals(&self, dirs: &[(String, PathBuf)]) -> Result<CaughtUpJournals, LedgerError> {
        self.transaction("rebuild", |sql| {
            let forget = "update journal set bytes = 0, stamp = '' where host = $1";
            sql.execute(forget, &[host().into()]).map_err(failed("write to"))?;
            Ok(Transacted::Commit(()))
        })?;
        let mut result = CaughtUpJournals::default();
        for (domain, dir) in dirs {
            result.add(self.catch_up_journals(domain, dir)?);
        }
        // Of domains that have no directory here.
        let find = "select dir, name, domain from journal where host = $1 and bytes = 0 order by id";
        let left = self.with(|sql| all(sql, find, &[host().into()]).map_err(failed("read")))?;
        for row in left {
            let path = path_of(&row.required_text(0), &row.required_text(1));
            if path.is_file() {
                self.look_at_journal(&row.required_text(2), &path, &mut result)?;
            }
        }
        Ok(result)
    }

    fn look_at_journal(
        &self,
        domain: &str,
        path: &Path,
        result: &mut CaughtUpJournals,
    ) -> Result<(), LedgerError> {
        result.journals += 1;
        match self.feed_journal(domain, path) {
            Ok(fed) => {
                result.changed += u64::from(fed.changed);
                result.entries += fed.entries;
            }
            Err(error @ (LedgerError::Journal(_) | LedgerError::File { .. })) => {
                result.failed.push((path.to_owned(), with_causes(&error)));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The journals of a domain, or all, in the order of their names.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn journals(&self, domain: Option<&str>) -> Result<Vec<JournalRow>, LedgerError> {
        let find = "select id, name, main, domain, host, dir from journal where $1 = '' or domain = $1 \
                    order by name, id";
        let rows =
            self.with(|sql| all(sql, find, &[domain.unwrap_or_default().into()]).map_err(failed("read")))?;
        let journal = |row: &Row| {
            let name = row.required_text(1);
            JournalRow {
                id: row.int(0).unwrap_or(-1),
                path: path_of(&row.required_text(5), &name),
                name,
                main: row.text(2),
                domain: row.required_text(3),
                host: row.required_text(4),
            }
        };
        Ok(rows.iter().map(journal).collect())
    }

    /// At most so many jobs of some journals, those that ended or came last first; all, or only those that have not
    /// ended.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn jobs(
        &self,
        journals: &[&JournalRow],
        limit: usize,
        ended_too: bool,
    ) -> Result<Vec<JobRow>, LedgerError> {
        if journals.is_empty() {
            return Ok(Vec::new());
        }
        let places: Vec<String> = (1..=journals.len()).map(|at| format!("${at}")).collect();
        let (ended, limit_at) = (if ended_too { "" } else { "and state = 'waiting' " }, journals.len() + 1);
        let find = format!(
            "select journal.name, job.id, kind, state, reason, node, priority, attempts, submitted_ms, ended_ms \
             from job join journal on journal.id = job.journal where journal in ({}) {ended}\
             order by coalesce(ended_ms, submitted_ms, 0) desc, journal desc, job.id desc limit ${limit_at}",
            places.join(", ")
        );
        let mut values: Vec<Value> = journals.iter().map(|journal| Value::Int(journal.id)).collect();
        values.push((limit as u64).into());
        let rows = self.with(|sql| all(sql, &find, &values).map_err(failed("read")))?;
        Ok(rows.iter().map(job_row).collect())
    }

    /// The journals of this host: those in a directory by name, with their row and their stamp, and those of
    /// a domain elsewhere.
    fn known_journals(&self, domain: &str, dir: &Path) -> Result<KnownJournals, LedgerError> {
        let find = "select name, id, stamp, dir, domain from journal where host = $1";
        let rows = self.with(|sql| all(sql, find, &[host().into()]).map_err(failed("read")))?;
        let (mut here, mut elsewhere) = KnownJournals::default();
        for row in rows {
            let (name, stamp, place) = (row.required_text(0), row.required_text(2), row.required_text(3));
            if Path::new(&place) == dir {
                here.insert(name, (row.int(1).unwrap_or(-1), stamp));
            } else if row.str(4) == Some(domain) {
                elsewhere.push((path_of(&place, &name), stamp));
            }
        }
        Ok((here, elsewhere))
    }

    fn forget_journal(&self, id: i64) -> Result<(), LedgerError> {
        self.transaction("forget", |sql| {
            remove(sql, id).map_err(failed("write to"))?;
            Ok(Transacted::Commit(()))
        })
    }

    /// Forgets journals of this machine that are gone.
    pub(super) fn forget_gone_journals(&self) -> Result<u64, LedgerError> {
        let find = "select id, dir, name from journal where host = $1";
        let rows = self.with(|sql| all(sql, find, &[host().into()]).map_err(failed("read")))?;
        let mut forgotten = 0;
        for row in rows {
            if !path_of(&row.required_text(1), &row.required_text(2)).is_file() {
                self.forget_journal(row.int(0).unwrap_or(-1))?;
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }
}

/// The journals in a directory, in the order of their names.
fn journals_in(dir: &Path) -> Result<Vec<PathBuf>, LedgerError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(LedgerError::File { what: "list", path: dir.to_owned(), source }),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let is_journal = |path: &PathBuf| path.to_string_lossy().ends_with(ENDING);
    let mut paths: Vec<PathBuf> = paths.filter(is_journal).collect();
    paths.sort_unstable();
    Ok(paths)
}

/// Says whether a journal was written since, or is another one: its size, time and place on the disk.
fn stamp_of(path: &Path) -> String {
    let shown = |stat: rustix::fs::Stat| {
        format!("{} {}.{} {}", stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ino)
    };
    rustix::fs::stat(path).map_or_else(|_missing| String::new(), shown)
}

/// The file of a journal; one that was named by its user may have another ending.
fn path_of(dir: &str, name: &str) -> PathBuf {
    let usual = Path::new(dir).join(format!("{name}{ENDING}"));
    let bare = Path::new(dir).join(name);
    if !usual.is_file() && bare.is_file() { bare } else { usual }
}

fn remove(sql: &mut dyn Sql, id: i64) -> Result<(), SqlError> {
    sql.execute("delete from job where journal = $1", &[Value::Int(id)])?;
    sql.execute("delete from journal where id = $1", &[Value::Int(id)]).map(|_one| ())
}

fn job_row(row: &Row) -> JobRow {
    JobRow {
        main: row.required_text(0),
        job: row.count(1),
        kind: row.required_text(2),
        state: row.required_text(3),
        reason: row.text(4),
        node: row.text(5),
        priority: row.int(6).unwrap_or(0),
        attempts: row.count(7),
        submitted_ms: row.maybe_count(8),
        ended_ms: row.maybe_count(9),
    }
}

/// The row of the journal at a place, and what came after it was read. Rows of another journal that was in this place
/// are removed; one of the same name on another host stays.
fn look(sql: &mut dyn Sql, place: &Place) -> Result<(Option<Known>, Option<JournalBatch>), LedgerError> {
    let find = format!("select {} from journal where dir = $1 and name = $2", Known::COLUMNS);
    let values = [place.dir.as_str().into(), place.name.as_str().into()];
    for row in all(sql, &find, &values).map_err(failed("read"))? {
        let known = Known::of(&row);
        let Some(batch) = read_journal_from(&place.path, &known.position)? else { return Ok((None, None)) };
        if session_of(&batch) == known.session {
            return Ok((Some(known), Some(batch)));
        }
        if known.host == host() {
            remove(sql, known.id).map_err(failed("write to"))?;
        }
    }
    Ok((None, read_journal_from(&place.path, &JournalPosition::default())?))
}

fn session_of(batch: &JournalBatch) -> String {
    format!("{:016x}", batch.session.0)
}

fn feed_batch(
    sql: &mut dyn Sql,
    domain: &str,
    place: &Place,
) -> Result<Transacted<(Fed, bool)>, LedgerError> {
    let nothing = Ok(Transacted::Nothing((Fed::default(), false)));
    // Before the records: what is written later is seen to be new.
    let stamp = stamp_of(&place.path);
    let (known, Some(batch)) = look(sql, place)? else { return nothing };
    let same = known.as_ref().is_some_and(|known| {
        known.position == batch.position && known.host == host() && known.domain == domain
    });
    if same && known.as_ref().is_some_and(|known| known.stamp == stamp) {
        return nothing;
    }
    // What is not read yet is not known, whatever becomes of this process.
    let stamp = if batch.is_all { stamp } else { String::new() };
    write_batch(sql, (domain, &stamp), place, known, &batch).map_err(failed("write to"))?;
    let fed = Fed { entries: batch.entries.len() as u64, changed: !same };
    Ok(Transacted::Commit((fed, !batch.is_all)))
}

fn write_batch(
    sql: &mut dyn Sql,
    (domain, stamp): (&str, &str),
    place: &Place,
    known: Option<Known>,
    batch: &JournalBatch,
) -> Result<(), SqlError> {
    let id = match known {
        Some(known) => known.id,
        None => {
            let insert = "insert into journal (host, dir, name, domain, session, epoch, bytes, last, checksum, \
                          unix_ms, stamp) values ($1, $2, $3, $4, $5, 0, 0, 0, 0, 0, '') returning id";
            let (dir, name) = (place.dir.as_str().into(), place.name.as_str().into());
            let values = [host().into(), dir, name, domain.into(), session_of(batch).into()];
            first(sql, insert, &values)?.and_then(|row| row.int(0)).unwrap_or(-1)
        }
    };
    if batch.is_from_begin {
        sql.execute("delete from job where journal = $1", &[Value::Int(id)])?;
    }
    for entry in &batch.entries {
        write_entry(sql, id, entry)?;
    }
    let JournalPosition { bytes, last, check, unix_ms } = batch.position;
    let update = "update journal set host = $1, domain = $2, bytes = $3, last = $4, checksum = $5, unix_ms = $6, \
                  stamp = $7 where id = $8";
    let position =
        [bytes.into(), last.into(), u64::from(check).into(), unix_ms.into(), stamp.into(), Value::Int(id)];
    let values: Vec<Value> = [host().into(), domain.into()].into_iter().chain(position).collect();
    sql.execute(update, &values).map(|_one| ())
}

fn write_entry(sql: &mut dyn Sql, journal: i64, entry: &JournalEntry) -> Result<(), SqlError> {
    let id = Value::Int(journal);
    match entry {
        JournalEntry::Opened { epoch } => {
            let update = "update journal set epoch = $1, main = null where id = $2";
            sql.execute(update, &[epoch.0.into(), id])?;
        }
        JournalEntry::MainNode { node } => {
            sql.execute("update journal set main = $1 where id = $2", &[node.as_str().into(), id])?;
        }
        JournalEntry::Submitted { job, kind, priority, unix_ms } => {
            let insert = "insert into job (journal, id, kind, state, priority, attempts, submitted_ms) \
                          values ($1, $2, $3, 'waiting', $4, 0, $5) on conflict (journal, id) do nothing";
            let kind = bounded(kind.to_string());
            sql.execute(
                insert,
                &[id, job.0.into(), kind.into(), i64::from(*priority).into(), (*unix_ms).into()],
            )?;
        }
        JournalEntry::Attempt { job, attempts } => {
            let update = "update job set attempts = $1 where journal = $2 and id = $3";
            sql.execute(update, &[u64::from(*attempts).into(), id, job.0.into()])?;
        }
        JournalEntry::Ended { job, state, reason, node, unix_ms } => {
            let update = "update job set state = $1, reason = $2, node = $3, ended_ms = $4 \
                          where journal = $5 and id = $6 and state = 'waiting'";
            let reason = reason.clone().map(bounded);
            let node = node.as_ref().map(|node| node.as_str().to_owned());
            let values = [(*state).into(), reason.into(), node.into(), (*unix_ms).into(), id, job.0.into()];
            sql.execute(update, &values)?;
        }
        // What a later version may record is no matter of jobs.
        _ => {}
    }
    Ok(())
}
