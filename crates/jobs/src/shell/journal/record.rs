//! The bytes of a journal: a header, then records of `length, checksum, body`.

use super::JournalError;
use crate::core::{JobSpec, Outcome};
use bytes::Bytes;
use phalanx_types::{Epoch, JobId, Needs, NodeId, Parcel, ParcelHead, PartError, SessionId};
use phalanx_wire::codec;
use phalanx_wire::reason::FailReason;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::path::Path;

const MAGIC: [u8; 8] = *b"PHLXJNL1";
pub(super) const HEADER_LEN: usize = 16;
/// Length (`u64`), its checksum and that of the body (`u32` each), little endian. The length has
/// its own, so that a damaged one is not taken for a record that was cut short.
pub(super) const PREFIX_LEN: usize = 16;

/// The first bytes of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) session: SessionId,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..].copy_from_slice(&self.session.0.to_le_bytes());
        bytes
    }

    /// Whether these are the bytes of a journal that was killed while its header was written.
    pub(super) fn is_unfinished(self, bytes: &[u8]) -> bool {
        bytes.len() < HEADER_LEN && MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())])
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (session, _) = rest.split_first_chunk::<8>()?;
        (*magic == MAGIC).then(|| Self { session: SessionId(u64::from_le_bytes(*session)) })
    }
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record {
    /// A main node took the journal up.
    Opened {
        epoch: Epoch,
    },
    Submitted {
        job: JobId,
        spec: RecordedSpec,
    },
    Attempt {
        job: JobId,
        attempts: u32,
    },
    Ended {
        job: JobId,
        outcome: RecordedOutcome,
    },
    /// A job whose solution is kept, or that takes kept solutions.
    SubmittedWith {
        job: JobId,
        spec: RecordedSpec,
        keep: bool,
        inputs: Vec<JobId>,
    },
    /// The user dropped the handle to a kept solution.
    Released {
        job: JobId,
    },
    /// When the records that follow were made, in milliseconds since 1970.
    Clock {
        unix_ms: u64,
    },
    /// The main node that took the journal up.
    MainNode {
        node: NodeId,
    },
    /// A job that a computing node solved.
    EndedAt {
        job: JobId,
        outcome: RecordedOutcome,
        node: NodeId,
    },
}

/// A [`JobSpec`] as it is recorded: its deadline on the calendar, its payload in two parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedSpec {
    kind: SmolStr,
    head: ParcelHead,
    body: Bytes,
    priority: i32,
    deadline_unix_ms: Option<u64>,
    max_attempts: u32,
    needs: Needs,
}

impl RecordedSpec {
    pub(crate) fn new(spec: &JobSpec, now_unix_ms: u64) -> Self {
        let deadline = |d: std::time::Duration| {
            now_unix_ms.saturating_add(u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
        };
        Self {
            kind: spec.kind.clone(),
            head: spec.payload.head(),
            body: spec.payload.body(),
            priority: spec.priority,
            deadline_unix_ms: spec.deadline.map(deadline),
            max_attempts: spec.max_attempts,
            needs: spec.needs,
        }
    }

    /// What listings show of it.
    pub(super) fn kind_and_priority(self) -> (SmolStr, i32) {
        (self.kind, self.priority)
    }

    /// The spec without its deadline, and the deadline.
    pub(super) fn into_spec(self) -> Result<(JobSpec, Option<u64>), PartError> {
        let spec = JobSpec {
            kind: self.kind,
            payload: Parcel::from_parts(self.head, self.body)?,
            priority: self.priority,
            deadline: None,
            max_attempts: self.max_attempts,
            needs: self.needs,
            keep: false,
            inputs: Vec::new(),
        };
        Ok((spec, self.deadline_unix_ms))
    }
}

/// An [`Outcome`] as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RecordedOutcome {
    Solved { head: ParcelHead, body: Bytes },
    Failed(FailReason),
    Cancelled,
    Expired,
    Kept { len: u64 },
}

impl RecordedOutcome {
    pub(crate) fn new(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Solved(parcel) => Self::Solved { head: parcel.head(), body: parcel.body() },
            Outcome::Kept { len } => Self::Kept { len: *len },
            Outcome::Failed(reason) => Self::Failed(reason.clone()),
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Expired => Self::Expired,
        }
    }

    /// What it is called, and why it is so.
    pub(super) fn name_and_reason(&self) -> (&'static str, Option<String>) {
        match self {
            Self::Solved { .. } | Self::Kept { .. } => ("solved", None),
            Self::Failed(reason) => ("failed", Some(reason.to_string())),
            Self::Cancelled => ("cancelled", None),
            Self::Expired => ("expired", None),
        }
    }

    pub(super) fn into_outcome(self) -> Result<Outcome, PartError> {
        Ok(match self {
            Self::Solved { head, body } => Outcome::Solved(Parcel::from_parts(head, body)?),
            Self::Kept { len } => Outcome::Kept { len },
            Self::Failed(reason) => Outcome::Failed(reason),
            Self::Cancelled => Outcome::Cancelled,
            Self::Expired => Outcome::Expired,
        })
    }
}

/// Appends a record to `out`.
pub(super) fn put(record: &Record, out: &mut bytes::BytesMut) {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_LEN]);
    if codec::encode_into(record, out).is_err() {
        // Plain data always encodes; half a record must not stay if that ever changes.
        out.truncate(start);
        return;
    }
    let (prefix, body) = out[start..].split_at_mut(PREFIX_LEN);
    let len = (body.len() as u64).to_le_bytes();
    prefix[..8].copy_from_slice(&len);
    prefix[8..12].copy_from_slice(&crc32fast::hash(&len).to_le_bytes());
    prefix[12..].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
}

/// What stands at the front of some bytes.
enum Front {
    Whole {
        record: Record,
        len: usize,
    },
    /// A record that was being written when the process or the machine died.
    Torn,
    Damaged,
}

fn front(bytes: &[u8]) -> Front {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_LEN>() else { return Front::Torn };
    let [len @ .., l0, l1, l2, l3, b0, b1, b2, b3] = *prefix;
    if crc32fast::hash(&len) != u32::from_le_bytes([l0, l1, l2, l3]) {
        // A file that grew before its bytes reached the disk ends in zeros.
        return if bytes.iter().all(|b| *b == 0) { Front::Torn } else { Front::Damaged };
    }
    let len = usize::try_from(u64::from_le_bytes(len)).unwrap_or(usize::MAX);
    let Some(body) = rest.get(..len) else { return Front::Torn };
    if crc32fast::hash(body) != u32::from_le_bytes([b0, b1, b2, b3]) {
        // The last record may have reached the disk in parts.
        return if len == rest.len() { Front::Torn } else { Front::Damaged };
    }
    match codec::decode(body) {
        Ok(record) => Front::Whole { record, len: PREFIX_LEN + len },
        Err(_unknown) => Front::Damaged,
    }
}

/// The length of the records at the front of some bytes that are there from begin to end, as far as lengths tell.
pub(super) fn len_of_whole_records(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(([l0, l1, l2, l3, l4, l5, l6, l7, ..], rest)) =
        bytes.get(at..).and_then(<[u8]>::split_first_chunk::<PREFIX_LEN>)
    {
        let len = u64::from_le_bytes([*l0, *l1, *l2, *l3, *l4, *l5, *l6, *l7]);
        match usize::try_from(len) {
            Ok(len) if len <= rest.len() => at += PREFIX_LEN + len,
            _ => break,
        }
    }
    at
}

/// Feeds every whole record to `each` and tells how many torn bytes stand at the end. The bytes are those of the file
/// from `begin` on, up to its end.
///
/// # Errors
/// A record is damaged, or `each` refuses one.
pub(super) fn read_records(
    path: &Path,
    (begin, bytes): (u64, &[u8]),
    mut each: impl FnMut(u64, Record) -> Result<(), JournalError>,
) -> Result<u64, JournalError> {
    let mut at = 0;
    while at < bytes.len() {
        match front(bytes.get(at..).unwrap_or_default()) {
            Front::Whole { record, len } => {
                each(begin + at as u64, record)?;
                at += len;
            }
            Front::Torn => return Ok((bytes.len() - at) as u64),
            Front::Damaged => {
                return Err(JournalError::Damaged { path: path.to_owned(), offset: begin + at as u64 });
            }
        }
    }
    Ok(0)
}
