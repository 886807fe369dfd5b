//! A command that was carried out, and when its client may know.

use super::hub::{Hub, Shared};
use super::persist::{RecordNumber, Recorder, SaveError};
use crate::core::{Change, ClientId, CommandKind, Effects, Outcome};
use phalanx_resp::Reply;
use phalanx_segments::{AppendError, PendingSnapshot};

/// What became of a command.
#[derive(Debug)]
pub(crate) struct Executed {
    pub(crate) outcome: Outcome,
    /// The client is answered when this record is recorded.
    pub(crate) after: RecordNumber,
    /// Other clients are told when this record is recorded.
    pub(crate) told: RecordNumber,
}

impl Executed {
    /// The same with another outcome.
    pub(crate) fn map(self, change: impl FnOnce(Outcome) -> Outcome) -> Self {
        Self { outcome: change(self.outcome), ..self }
    }
}

impl From<Outcome> for Executed {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, after: RecordNumber::NONE, told: RecordNumber::NONE }
    }
}

impl From<Reply> for Executed {
    fn from(reply: Reply) -> Self {
        Outcome::Reply(reply).into()
    }
}

impl Shared {
    /// Why a command is not carried out, if it is not.
    pub(super) fn refusal(&self, kind: CommandKind) -> Option<Reply> {
        if self.is_closed && kind == CommandKind::Write {
            return Some(Reply::error("ERR the store has ended"));
        }
        self.recorder.as_ref()?.refusal(kind)
    }

    /// Records what a command changed. What cannot be recorded is taken back, and the client gets the reason.
    pub(super) fn recorded(
        &mut self,
        kind: CommandKind,
        outcome: Outcome,
        effects: &mut Effects,
    ) -> Executed {
        let Some(recorder) = &mut self.recorder else { return outcome.into() };
        // A command that waits is not taken back: it has only removed keys that ended.
        let may_undo = kind == CommandKind::Write && outcome != Outcome::Blocked;
        let has_changes = !effects.changes.is_empty();
        match recorder.record(&mut self.keyspace, effects, may_undo) {
            Ok(told) => {
                let after =
                    if kind == CommandKind::Other && !has_changes { RecordNumber::NONE } else { told };
                Executed { outcome, after, told }
            }
            Err(text) => {
                let refused = || Reply::error(text.to_string());
                effects.messages.retain_mut(|(_, message)| {
                    let is_reply = !matches!(message, Reply::Push(_));
                    *message = refused();
                    is_reply
                });
                refused().into()
            }
        }
    }
}

/// What the keeper does under the hub's lock.
impl Hub {
    pub(crate) fn is_refusing(&self) -> bool {
        self.lock().recorder.as_ref().is_some_and(|recorder| recorder.is_refusing())
    }

    /// Records were not written.
    pub(crate) fn on_failed(&self, epoch: u64, error: &AppendError) {
        let mut shared = self.lock();
        let Shared { keyspace, recorder, .. } = &mut *shared;
        if let Some(recorder) = recorder {
            recorder.on_failed(keyspace, epoch, error);
        }
        drop(shared);
        // Also when it is old news: less is on its way now, for which clients may wait.
        if let Some(persistence) = self.persistence() {
            persistence.acknowledgements.wake_all();
        }
    }

    /// The journal can be written again.
    pub(crate) fn on_healed(&self) {
        let mut shared = self.lock();
        if let Some(recorder) = &mut shared.recorder {
            recorder.on_healed();
        }
        drop(shared);
        if let Some(persistence) = self.persistence() {
            persistence.acknowledgements.wake_all();
        }
    }

    /// Forgets how to take back what is recorded.
    pub(crate) fn prune(&self) {
        let mut dropped = Vec::new();
        let mut shared = self.lock();
        if let Some(recorder) = &mut shared.recorder {
            recorder.prune(&mut dropped);
        }
        drop(shared);
        // Behind the lock: old values take time to drop.
        drop(dropped);
    }

    /// Marks a snapshot's place in the journal, and takes what it will hold. Values are shared, not copied.
    pub(crate) fn begin_snapshot(&self) -> Result<(PendingSnapshot, Vec<Change>), SaveError> {
        let mut shared = self.lock();
        let Shared { keyspace, recorder, .. } = &mut *shared;
        let Some(recorder) = recorder else { return Err(SaveError::Closed) };
        Ok((recorder.begin_snapshot()?, keyspace.snapshot_changes()))
    }

    /// Whether the newest snapshot has everything.
    pub(crate) fn is_saved(&self) -> bool {
        self.lock().recorder.as_ref().is_some_and(Recorder::is_saved)
    }

    /// A snapshot has ended, or was not necessary; clients wait for it.
    pub(crate) fn on_saved(&self, error: Option<String>, clients: &[ClientId], reply: &Reply) {
        let mut shared = self.lock();
        if error.is_none() {
            let now = self.clock.now();
            shared.keyspace.saved(now);
        }
        if let Some(recorder) = &mut shared.recorder {
            recorder.on_saved(error);
        }
        for mailbox in clients.iter().filter_map(|client| shared.mailboxes.get(client)) {
            mailbox.send(RecordNumber::NONE, reply.clone());
        }
    }

    /// Writes what waits and lets go of the directory. Commands that change something are refused from now on.
    pub(crate) fn close_journal(&self) {
        let mut shared = self.lock();
        let recorder = shared.recorder.take();
        shared.is_closed = recorder.is_some();
        drop(shared);
        // Behind the lock: it waits for the disk.
        drop(recorder);
    }
}
