//! Brings changes to the journal in the order of the commands, and takes them back when that fails.

use super::{Event, Persistence, RecordNumber};
use crate::core::{
    Change, CommandKind, ENCODED_KIND, Effects, EncodedChanges, Keyspace, PersistFacts, Undo, encode_changes,
};
use phalanx_resp::Reply;
use phalanx_segments::{AppendError, Durability, Journal, PendingSnapshot, Record, SnapshotError};
use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The side of persistence that is under the hub's lock.
#[derive(Debug)]
pub(crate) struct Recorder {
    journal: Arc<Journal>,
    link: Arc<Persistence>,
    durability: Durability,
    /// The last number that was given.
    last: RecordNumber,
    /// What is told now follows from this record.
    required: RecordNumber,
    /// Records that are not known to be recorded, in order.
    pending: VecDeque<PendingRecord>,
    /// Records of an earlier epoch are decided; what is heard of them late means nothing.
    epoch: u64,
    /// Why writes are refused, for clients.
    refusing: Option<Arc<str>>,
    since_snapshot: u64,
    /// The last record that the snapshot has that is being written.
    snapshot_at: Option<RecordNumber>,
    /// The last record that a snapshot on disk has, of those since the store was started.
    saved_at: Option<RecordNumber>,
    saving: bool,
    save_error: Option<String>,
}

/// Why nothing was saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SaveError {
    #[error("the journal cannot be written")]
    Refusing,
    #[error("the store has no journal any more")]
    Closed,
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

#[derive(Debug)]
struct PendingRecord {
    number: RecordNumber,
    encoded: EncodedChanges,
    undo: Vec<Undo>,
    has_undo: bool,
    /// Whether the journal has it; otherwise it waits until the journal can be written.
    is_sent: bool,
}

impl Recorder {
    pub(crate) fn new(journal: Arc<Journal>, link: Arc<Persistence>, durability: Durability) -> Self {
        Self {
            journal,
            link,
            durability,
            last: RecordNumber::NONE,
            required: RecordNumber::NONE,
            pending: VecDeque::new(),
            epoch: 0,
            refusing: None,
            since_snapshot: 0,
            snapshot_at: None,
            saved_at: None,
            saving: false,
            save_error: None,
        }
    }

    /// Why a command is not carried out, if it is not.
    pub(crate) fn refusal(&self, kind: CommandKind) -> Option<Reply> {
        let text = self.refusing.as_ref().filter(|_| kind == CommandKind::Write)?;
        Some(Reply::error(text.to_string()))
    }

    pub(crate) fn is_refusing(&self) -> bool {
        self.refusing.is_some()
    }

    /// Records the changes of a command; says after which record its effects may be told.
    ///
    /// # Errors
    /// The journal refuses it. Then the command is taken back, and the text is for its client.
    pub(crate) fn record(
        &mut self,
        keyspace: &mut Keyspace,
        effects: &mut Effects,
        may_undo: bool,
    ) -> Result<RecordNumber, Arc<str>> {
        let undo = std::mem::take(&mut effects.undo);
        self.prune(&mut effects.undo);
        if effects.changes.is_empty() {
            return Ok(self.required);
        }
        let has_undo = effects.changes.iter().all(Change::has_undo);
        let only_removes = effects.changes.iter().all(|change| matches!(change, Change::Delete { .. }));
        let number = RecordNumber(self.last.0 + 1);
        let encoded = encode_changes(&effects.changes);
        let mut record = PendingRecord { number, encoded, undo, has_undo, is_sent: false };
        if self.refusing.is_none() {
            match self.send(&record) {
                Ok(()) => record.is_sent = true,
                Err(error) => self.refuse(&error),
            }
        }
        if !record.is_sent
            && may_undo
            && has_undo
            && let Some(text) = &self.refusing
        {
            keyspace.undo(record.undo);
            return Err(text.clone());
        }
        // A key that ended by time is gone whatever the journal says, so no reply has to wait for that.
        if record.is_sent || !only_removes {
            self.required = number;
        }
        self.last = number;
        self.pending.push_back(record);
        Ok(self.required)
    }

    fn send(&mut self, record: &PendingRecord) -> Result<(), AppendError> {
        let EncodedChanges { body, values } = &record.encoded;
        let weight = (body.len() + values.iter().map(|value| value.len()).sum::<usize>()) as u64;
        let values = values
            .iter()
            .map(|bytes| self.link.index.find(bytes).unwrap_or_else(|| self.journal.value([bytes.clone()])));
        let journaled = Record { kind: ENCODED_KIND, parts: vec![body.clone()], values: values.collect() };
        let (link, number, epoch) = (self.link.clone(), record.number, self.epoch);
        self.link.in_flight.fetch_add(weight, Ordering::Relaxed);
        let done = move |result: Result<_, AppendError>| {
            link.in_flight.fetch_sub(weight, Ordering::Relaxed);
            match result {
                Ok(_position) => link.acknowledgements.settle(number),
                Err(error) => link.tell(Event::Failed { epoch, error }),
            }
        };
        // The journal's own queue has no bound: connections wait before they execute, see `is_congested`.
        let appended = self.journal.append(journaled, Box::new(done));
        self.since_snapshot += 1;
        appended.map_err(|rejected| {
            self.link.in_flight.fetch_sub(weight, Ordering::Relaxed);
            rejected.reason
        })
    }

    /// Forgets how to take back what is recorded; what is dropped is added to `dropped`.
    pub(crate) fn prune(&mut self, dropped: &mut Vec<Undo>) {
        let settled = self.link.acknowledgements.settled();
        while self.pending.front().is_some_and(|record| record.number <= settled && record.is_sent) {
            let Some(record) = self.pending.pop_front() else { break };
            dropped.extend(record.undo);
        }
    }

    fn refuse(&mut self, error: &AppendError) {
        if self.refusing.is_none() {
            let text = refusal_text(error);
            tracing::error!(error = %error, cause = ?error.source(), "writes are refused: the journal cannot be written");
            self.refusing = Some(text.into());
        }
    }

    /// Takes back everything that was not recorded, the last first, and refuses writes.
    ///
    /// What cannot be taken back stays, with everything before it, and is recorded as soon as that is possible.
    pub(crate) fn on_failed(&mut self, keyspace: &mut Keyspace, epoch: u64, error: &AppendError) {
        if epoch != self.epoch {
            return;
        }
        self.epoch += 1;
        self.refuse(error);
        self.prune(&mut Vec::new());
        let Some(text) = self.refusing.clone() else { return };
        let stays = self.pending.iter().rposition(|record| !record.has_undo).map_or(0, |at| at + 1);
        let failed = self.pending.split_off(stays);
        self.pending.iter_mut().for_each(|record| record.is_sent = false);
        let range = failed.front().map(|record| record.number).zip(failed.back().map(|record| record.number));
        let steps: Vec<Undo> = failed.into_iter().flat_map(|record| record.undo).collect();
        keyspace.undo(steps);
        self.required = self.pending.back().map_or(RecordNumber::NONE, |record| record.number);
        if let Some((first, last)) = range {
            self.link.acknowledgements.fail(first, last, text);
        }
    }

    /// The journal can be written again.
    pub(crate) fn on_healed(&mut self) {
        if self.refusing.take().is_some() {
            tracing::info!("the journal can be written again: writes go on");
        }
        let mut waiting = std::mem::take(&mut self.pending);
        for record in waiting.iter_mut().filter(|record| !record.is_sent) {
            match self.send(record) {
                Ok(()) => record.is_sent = true,
                Err(error) => {
                    self.refuse(&error);
                    break;
                }
            }
        }
        self.pending = waiting;
    }

    /// Marks a snapshot's place in the journal; nothing may be executed until the keyspace's changes were taken.
    pub(crate) fn begin_snapshot(&mut self) -> Result<PendingSnapshot, SaveError> {
        // What is in the keyspace and not in the journal must not get into a snapshot: it would be there twice.
        if self.refusing.is_some() || self.pending.iter().any(|record| !record.is_sent) {
            return Err(SaveError::Refusing);
        }
        let begun = self.journal.begin_snapshot()?;
        self.saving = true;
        self.since_snapshot = 0;
        self.snapshot_at = Some(self.last);
        Ok(begun)
    }

    /// Whether a snapshot on disk has everything.
    pub(crate) fn is_saved(&self) -> bool {
        self.refusing.is_none() && self.saved_at == Some(self.last)
    }

    pub(crate) fn on_saved(&mut self, error: Option<String>) {
        if let Some(at) = self.snapshot_at.take().filter(|_| error.is_none()) {
            self.saved_at = Some(at);
        }
        self.saving = false;
        self.save_error = error;
    }

    pub(crate) fn facts(&self) -> PersistFacts {
        let status = self.journal.status();
        PersistFacts {
            durability: durability_name(self.durability),
            journal_bytes: status.journal_bytes,
            snapshot_bytes: status.snapshot_bytes,
            value_bytes: status.value_bytes,
            value_file_bytes: status.value_file_bytes,
            waiting_bytes: status.in_flight_bytes,
            records_since_snapshot: self.since_snapshot,
            saving: self.saving,
            save_error: self.save_error.clone(),
            refused: self.refusing.as_ref().map(|text| text.to_string()),
        }
    }
}

/// Says why writes are refused, without names of files: clients may be on other hosts.
fn refusal_text(error: &AppendError) -> String {
    let reason = match error.source() {
        Some(source) => source.to_string(),
        None => error.to_string(),
    };
    let reason = reason.replace(['\r', '\n'], " ");
    format!("MISCONF the store cannot record writes ({reason}); nothing was changed, reads go on")
}

fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::EveryWrite => "every-write",
        Durability::EverySecond => "every-second",
        Durability::Never => "never",
    }
}
