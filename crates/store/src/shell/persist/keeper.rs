//! The thread that looks after the journal: failures, probes, snapshots.

use super::recorder::SaveError;
use super::value_index::ValueIndex;
use super::{Event, Persistence};
use crate::core::{Change, ClientId, ENCODED_KIND, EncodedChanges, encode_changes};
use crate::shell::error::StartError;
use crate::shell::hub::Hub;
use phalanx_resp::Reply;
use phalanx_segments::{Journal, PendingSnapshot, Record, SnapshotReport};
use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it looks whether a snapshot is due, and what need not be kept any more.
const LOOK: Duration = Duration::from_secs(1);
/// How often a journal that could not be written is tried.
const PROBE: Duration = Duration::from_millis(250);

/// See the module.
#[derive(Debug)]
pub(crate) struct Keeper {
    hub: Arc<Hub>,
    link: Arc<Persistence>,
    journal: Arc<Journal>,
    events: Receiver<Event>,
    snapshot: Option<JoinHandle<()>>,
    /// Clients that wait for the snapshot that is being written.
    waiting: Vec<ClientId>,
    /// Clients that asked meanwhile: they wait for the next one.
    next_waiting: Vec<Option<ClientId>>,
}

impl Keeper {
    pub(crate) fn start(
        hub: Arc<Hub>,
        link: Arc<Persistence>,
        journal: Arc<Journal>,
        events: Receiver<Event>,
    ) -> Result<JoinHandle<()>, StartError> {
        let keeper = Self {
            hub,
            link,
            journal,
            events,
            snapshot: None,
            waiting: Vec::new(),
            next_waiting: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("store-keeper".to_owned());
        thread.spawn(move || keeper.run()).map_err(StartError::Thread)
    }

    fn run(mut self) {
        loop {
            let pause = if self.hub.is_refusing() { PROBE } else { LOOK };
            match self.events.recv_timeout(pause) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(Event::Failed { epoch, error }) => self.hub.on_failed(epoch, &error),
                Ok(Event::Save(client)) => self.save_if_changed(client),
                Ok(Event::Saved(result)) => self.on_saved(result),
                Err(RecvTimeoutError::Timeout) => self.look(),
            }
        }
        if self.snapshot.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!("the thread that writes a snapshot panicked");
        }
    }

    fn look(&mut self) {
        self.hub.prune();
        if self.hub.is_refusing() {
            match self.journal.probe() {
                Ok(()) => self.hub.on_healed(),
                Err(error) => tracing::debug!(%error, "the journal cannot be written still"),
            }
        } else if self.snapshot.is_none()
            && let Some(reason) = self.journal.snapshot_due()
        {
            tracing::debug!(?reason, "a snapshot is due");
            self.save(None);
        }
    }

    /// What clients ask for: it is done already when nothing has changed since the newest snapshot.
    fn save_if_changed(&mut self, client: Option<ClientId>) {
        if self.snapshot.is_none() && self.hub.is_saved() {
            self.waiting.extend(client);
            let clients = std::mem::take(&mut self.waiting);
            self.hub.on_saved(None, &clients, &Reply::OK);
        } else {
            self.save(client);
        }
    }

    fn save(&mut self, client: Option<ClientId>) {
        if self.snapshot.is_some() {
            self.next_waiting.push(client);
            return;
        }
        self.waiting.extend(client);
        match self.hub.begin_snapshot() {
            Ok((pending, changes)) => {
                let link = self.link.clone();
                let journal = self.journal.clone();
                let write = move || {
                    let written = write_snapshot(pending, changes, &link.index, &journal);
                    // Before the event: who hears of it may end the journal.
                    drop(journal);
                    link.tell(Event::Saved(written));
                };
                match std::thread::Builder::new().name("store-snapshot".to_owned()).spawn(write) {
                    Ok(thread) => self.snapshot = Some(thread),
                    Err(error) => {
                        tracing::error!(%error, "could not start a thread for a snapshot");
                        self.on_saved(Err(SaveError::Closed));
                    }
                }
            }
            Err(error) => self.on_saved(Err(error)),
        }
    }

    fn on_saved(&mut self, result: Result<SnapshotReport, SaveError>) {
        if self.snapshot.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!("the thread that writes a snapshot panicked");
        }
        let reply = match &result {
            Ok(report) => {
                let SnapshotReport { records, bytes, freed_bytes } = report;
                tracing::info!(records, bytes, freed_bytes, "wrote a snapshot");
                Reply::OK
            }
            Err(error) => {
                tracing::error!(%error, cause = ?error.source(), "could not write a snapshot");
                Reply::error(format!("ERR could not save: {}", chain(error)))
            }
        };
        let clients = std::mem::take(&mut self.waiting);
        self.hub.on_saved(result.err().map(|error| chain(&error)), &clients, &reply);
        let next = std::mem::take(&mut self.next_waiting);
        if !next.is_empty() {
            self.waiting.extend(next.into_iter().flatten());
            self.save_if_changed(None);
        }
    }
}

/// An error with its causes in one line, without names of files.
fn chain(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string().replace(['\r', '\n'], " ")
}

fn write_snapshot(
    pending: PendingSnapshot,
    changes: Vec<Change>,
    index: &ValueIndex,
    journal: &Journal,
) -> Result<SnapshotReport, SaveError> {
    let records = changes.into_iter().map(|change| {
        let EncodedChanges { body, values } = encode_changes([&change]);
        let values =
            values.iter().map(|bytes| index.find(bytes).unwrap_or_else(|| journal.value([bytes.clone()])));
        Record { kind: ENCODED_KIND, values: values.collect(), parts: vec![body] }
    });
    Ok(pending.write(records)?)
}
