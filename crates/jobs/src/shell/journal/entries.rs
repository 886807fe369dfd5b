//! Reading a journal from where an earlier look ended, without the payloads and solutions in it.

use super::JournalError;
use super::record::{
    HEADER_LEN, Header, PREFIX_LEN, Record, RecordedOutcome, RecordedSpec, len_of_whole_records, read_records,
};
use phalanx_types::{Epoch, JobId, NodeId, SessionId};
use smol_str::SmolStr;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of a journal in one batch, unless one record is longer.
const BATCH: u64 = 1 << 20;

/// A record of a journal, for those who index it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum JournalEntry {
    /// A main node took the journal up.
    Opened {
        epoch: Epoch,
    },
    /// Its name.
    MainNode {
        node: NodeId,
    },
    Submitted {
        job: JobId,
        kind: SmolStr,
        priority: i32,
        unix_ms: Option<u64>,
    },
    Attempt {
        job: JobId,
        attempts: u32,
    },
    /// The one outcome of a job: what it is called, why, and the node that solved it.
    Ended {
        job: JobId,
        state: &'static str,
        reason: Option<String>,
        node: Option<NodeId>,
        unix_ms: Option<u64>,
    },
}

/// Up to where a journal was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalPosition {
    pub bytes: u64,
    /// Where the last record that was read begins, and a checksum of it: if another one stands there, the journal is
    /// not the one that was read.
    pub last: u64,
    pub check: u32,
    /// When the last record was made, in milliseconds since 1970; 0 if that is not known.
    pub unix_ms: u64,
}

/// Records of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalBatch {
    pub session: SessionId,
    pub entries: Vec<JournalEntry>,
    /// Up to where they go.
    pub position: JournalPosition,
    /// Whether they begin at the begin of the journal, because nothing or another journal was read before.
    pub is_from_begin: bool,
    /// Whether nothing more was there.
    pub is_all: bool,
}

/// Reads the records of a journal that came after a position, also while a main node writes it; `None` if the journal
/// is only being made. What was torn when a process died is not a record.
///
/// # Errors
/// The file cannot be read, is not a journal, or is damaged before its end.
pub fn read_journal_from(
    path: &Path,
    position: &JournalPosition,
) -> Result<Option<JournalBatch>, JournalError> {
    let failed = |source| JournalError::Io { doing: "read", path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let mut begin = Vec::with_capacity(HEADER_LEN);
    (&mut file).take(HEADER_LEN as u64).read_to_end(&mut begin).map_err(failed)?;
    let Some(Header { session }) = Header::parse(&begin) else {
        if (Header { session: SessionId(0) }).is_unfinished(&begin) {
            return Ok(None);
        }
        return Err(JournalError::NotAJournal { path: path.to_owned() });
    };
    let goes_on = is_same(&mut file, position).map_err(failed)?;
    let mut reached = if goes_on { *position } else { JournalPosition::default() };
    let begin = reached.bytes.max(HEADER_LEN as u64);
    let (mut bytes, mut is_all) = read_some(&mut file, begin, BATCH).map_err(failed)?;
    let mut batch = Parsed::new(path, (begin, &bytes), reached.unix_ms)?;
    if batch.torn > 0 && !is_all {
        // Whether a record is torn or damaged shows at the end of the journal.
        (bytes, is_all) = read_some(&mut file, begin, u64::MAX).map_err(failed)?;
        batch = Parsed::new(path, (begin, &bytes), reached.unix_ms)?;
    }
    reached.bytes = begin + bytes.len() as u64 - batch.torn;
    reached.unix_ms = batch.unix_ms;
    if let Some(last) = batch.last {
        let at = usize::try_from(last - begin).unwrap_or(usize::MAX);
        let prefix = bytes.get(at..).and_then(|record| record.get(..PREFIX_LEN));
        (reached.last, reached.check) = (last, crc32fast::hash(prefix.unwrap_or_default()));
    }
    let entries = batch.entries;
    Ok(Some(JournalBatch { session, entries, position: reached, is_from_begin: !goes_on, is_all }))
}

/// Some bytes of a journal as records.
struct Parsed {
    entries: Vec<JournalEntry>,
    /// Where the last record begins.
    last: Option<u64>,
    unix_ms: u64,
    /// Bytes at the end that are no record.
    torn: u64,
}

impl Parsed {
    fn new(path: &Path, (begin, bytes): (u64, &[u8]), unix_ms: u64) -> Result<Self, JournalError> {
        let mut parsed = Self { entries: Vec::new(), last: None, unix_ms, torn: 0 };
        parsed.torn = read_records(path, (begin, bytes), |offset, record| {
            parsed.last = Some(offset);
            if let Record::Clock { unix_ms } = &record {
                parsed.unix_ms = *unix_ms;
            }
            parsed.entries.extend(entry(record, Some(parsed.unix_ms).filter(|unix_ms| *unix_ms > 0)));
            Ok(())
        })?;
        Ok(parsed)
    }
}

/// Whether what was read up to a position stands there still.
fn is_same(file: &mut File, position: &JournalPosition) -> std::io::Result<bool> {
    if position.bytes == 0 || file.metadata()?.len() < position.bytes {
        return Ok(false);
    }
    let mut prefix = [0; PREFIX_LEN];
    file.seek(SeekFrom::Start(position.last))?;
    match file.read_exact(&mut prefix) {
        Ok(()) => Ok(crc32fast::hash(&prefix) == position.check),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// At least one whole record from a position on and about `most` bytes, or all that are left; and whether they are all.
fn read_some(file: &mut File, begin: u64, most: u64) -> std::io::Result<(Vec<u8>, bool)> {
    let (mut bytes, mut most) = (Vec::new(), most);
    file.seek(SeekFrom::Start(begin))?;
    loop {
        (&mut *file).take(most - bytes.len() as u64).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < most {
            return Ok((bytes, true));
        }
        let whole = len_of_whole_records(&bytes);
        if whole > 0 {
            bytes.truncate(whole);
            return Ok((bytes, false));
        }
        most = most.saturating_mul(2);
    }
}

fn entry(record: Record, unix_ms: Option<u64>) -> Option<JournalEntry> {
    let submitted = |job: JobId, spec: RecordedSpec| {
        let (kind, priority) = spec.kind_and_priority();
        Some(JournalEntry::Submitted { job, kind, priority, unix_ms })
    };
    let ended = |job: JobId, outcome: RecordedOutcome, node: Option<NodeId>| {
        let (state, reason) = outcome.name_and_reason();
        Some(JournalEntry::Ended { job, state, reason, node, unix_ms })
    };
    match record {
        Record::Opened { epoch } => Some(JournalEntry::Opened { epoch }),
        Record::MainNode { node } => Some(JournalEntry::MainNode { node }),
        Record::Submitted { job, spec } | Record::SubmittedWith { job, spec, .. } => submitted(job, spec),
        Record::Attempt { job, attempts } => Some(JournalEntry::Attempt { job, attempts }),
        Record::Ended { job, outcome } => ended(job, outcome, None),
        Record::EndedAt { job, outcome, node } => ended(job, outcome, Some(node)),
        Record::Released { .. } | Record::Clock { .. } => None,
    }
}
