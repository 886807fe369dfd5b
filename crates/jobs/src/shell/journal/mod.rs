//! The journal of a main node: what was submitted and how it ended, surviving the process.
//!
//! A file of records, each with its length and a checksum in front. Records are written before
//! anybody hears of what they record, so a killed main node forgets nothing it acknowledged. A
//! record that was being written when the process or machine died is cut off at the next start;
//! damage anywhere else is an error, never silently skipped.

mod entries;
mod record;
#[cfg(test)]
mod tests;
mod writer;

pub use entries::{JournalBatch, JournalEntry, JournalPosition, read_journal_from};

pub(super) use record::{Record, RecordedOutcome, RecordedSpec};
pub(super) use writer::Journal;

use crate::core::{JobSpec, Outcome};
use phalanx_types::{Epoch, JobId, NodeId, SessionId};
use record::{HEADER_LEN, Header, read_records};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    #[error("could not {doing} journal {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a journal of this version", path.display())]
    NotAJournal { path: PathBuf },
    #[error("another main node is using journal {}", path.display())]
    InUse { path: PathBuf },
    #[error("journal {} is damaged at byte {offset}", path.display())]
    Damaged { path: PathBuf, offset: u64 },
    #[error("journal {} holds a record out of order at byte {offset}", path.display())]
    OutOfOrder { path: PathBuf, offset: u64 },
}

impl JournalError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            JournalError::NotAJournal { .. } => Some("name a file that does not exist yet, or a journal"),
            JournalError::InUse { .. } => Some("wait for it to end, or name another file"),
            JournalError::Damaged { .. } | JournalError::OutOfOrder { .. } => {
                Some("restore the file from a copy, or start again with a new journal")
            }
            JournalError::Io { .. } => None,
        }
    }
}

/// One job as a journal tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournaledJob {
    pub spec: JobSpec,
    /// When a job with a deadline expires, in milliseconds since 1970.
    pub deadline_unix_ms: Option<u64>,
    pub attempts: u32,
    pub outcome: Option<Outcome>,
    /// The user has dropped its kept solution.
    pub is_released: bool,
    /// When it was submitted and when it ended, in milliseconds since 1970, if the journal tells.
    pub submitted_unix_ms: Option<u64>,
    pub ended_unix_ms: Option<u64>,
    /// The computing node that solved it, if the journal tells.
    pub solver: Option<NodeId>,
}

/// All that a journal tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalHistory {
    pub session: SessionId,
    /// The last life of the main node that wrote it.
    pub epoch: Epoch,
    /// The main node of that life, if the journal tells.
    pub main: Option<NodeId>,
    pub jobs: BTreeMap<JobId, JournaledJob>,
    /// Bytes of a torn record at the end.
    pub torn_bytes: u64,
}

/// Reads a journal without changing it, also while a main node writes it.
///
/// # Errors
/// The file cannot be read, is not a journal, or is damaged before its end.
pub fn read_journal(path: &Path) -> Result<JournalHistory, JournalError> {
    let bytes = std::fs::read(path).map_err(|source| JournalError::Io {
        doing: "read",
        path: path.to_owned(),
        source,
    })?;
    history(path, &bytes)
}

fn history(path: &Path, bytes: &[u8]) -> Result<JournalHistory, JournalError> {
    let Some(header) = Header::parse(bytes) else {
        return Err(JournalError::NotAJournal { path: path.to_owned() });
    };
    let mut history = JournalHistory {
        session: header.session,
        epoch: Epoch(0),
        main: None,
        jobs: BTreeMap::new(),
        torn_bytes: 0,
    };
    let mut clock = None;
    let records = bytes.get(HEADER_LEN..).unwrap_or_default();
    history.torn_bytes = read_records(path, (HEADER_LEN as u64, records), |offset, record| {
        let known = apply(&mut history, &mut clock, record);
        known.then_some(()).ok_or_else(|| JournalError::OutOfOrder { path: path.to_owned(), offset })
    })?;
    Ok(history)
}

/// Adds a record to the history; `false` when it speaks of a job that is not there. `clock` is when records were made.
fn apply(history: &mut JournalHistory, clock: &mut Option<u64>, record: Record) -> bool {
    let ended = |history: &mut JournalHistory, job: JobId, outcome: RecordedOutcome, solver| {
        let Some(known) = history.jobs.get_mut(&job) else { return false };
        let Ok(outcome) = outcome.into_outcome() else { return false };
        if known.outcome.is_none() {
            (known.outcome, known.ended_unix_ms, known.solver) = (Some(outcome), *clock, solver);
        }
        true
    };
    match record {
        Record::Opened { epoch } => (history.epoch, history.main) = (epoch, None),
        Record::MainNode { node } => history.main = Some(node),
        Record::Clock { unix_ms } => *clock = Some(unix_ms),
        Record::Submitted { job, spec } => return submitted(history, *clock, job, spec, (false, Vec::new())),
        Record::SubmittedWith { job, spec, keep, inputs } => {
            return submitted(history, *clock, job, spec, (keep, inputs));
        }
        Record::Released { job } => {
            let Some(known) = history.jobs.get_mut(&job) else { return false };
            known.is_released = true;
        }
        Record::Attempt { job, attempts } => {
            let Some(known) = history.jobs.get_mut(&job) else { return false };
            known.attempts = attempts;
        }
        Record::Ended { job, outcome } => return ended(history, job, outcome, None),
        Record::EndedAt { job, outcome, node } => return ended(history, job, outcome, Some(node)),
    }
    true
}

fn submitted(
    history: &mut JournalHistory,
    submitted_unix_ms: Option<u64>,
    job: JobId,
    spec: RecordedSpec,
    (keep, inputs): (bool, Vec<JobId>),
) -> bool {
    let Ok((spec, deadline_unix_ms)) = spec.into_spec() else { return false };
    let next = history.jobs.last_key_value().map_or(JobId(1), |(id, _)| id.next());
    if job != next {
        return false;
    }
    let known = JournaledJob {
        spec: JobSpec { keep, inputs, ..spec },
        deadline_unix_ms,
        attempts: 0,
        outcome: None,
        is_released: false,
        submitted_unix_ms,
        ended_unix_ms: None,
        solver: None,
    };
    history.jobs.insert(job, known);
    true
}

/// Locks the file for one main node.
fn lock(file: &File, path: &Path) -> Result<(), JournalError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(std::fs::TryLockError::WouldBlock) => Err(JournalError::InUse { path: path.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => {
            Err(JournalError::Io { doing: "lock", path: path.to_owned(), source })
        }
    }
}
