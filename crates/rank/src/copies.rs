//! Copies of a stage's state on the node of the next stage, so that a lost stage can be restored.
//!
//! ```text
//!   after every few steps:   stage s: a copy of its state ──► kept here, and sent to stage s+1 while both go on
//!   stage s is lost:         stage s+1 has its copy, every other stage has its own copy of the same step
//! ```
//! Copies of one step are a generation. A generation is complete when every stage has made its copy and every guardian
//! has stored it. The last complete generation is dropped when the next one is complete.

mod sending;

use self::sending::{Sent, receive, send};
use super::connector::{Connector, broken};
use super::part::Part;
use super::worker::with_causes;
use crate::error::RankError;
use bytes::Bytes;
use phalanx_collective::Socket;
use phalanx_protocol::layout::Post;
use phalanx_records::{ModelState, read_exactly};
use phalanx_types::Epoch;
use phalanx_wire::train::{HoldRef, Ops};
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Lanes for copies to a higher rank and to a lower rank.
const UP: usize = 3;
const DOWN: usize = 4;

/// Copies that this node holds.
#[derive(Debug, Clone, Default)]
pub(super) struct Copies {
    all: Arc<Mutex<Vec<Held>>>,
}

#[derive(Debug)]
struct Held {
    step: u64,
    ops: Ops,
    /// The packed state; a large one is mapped from a file.
    bytes: Bytes,
}

impl Copies {
    pub(super) fn add(&self, step: u64, ops: Ops, bytes: Bytes) {
        let held = Held { step, ops, bytes };
        let mut all = self.lock();
        all.retain(|other| (other.step, other.ops) != (step, ops));
        all.push(held);
    }

    pub(super) fn holds(&self) -> Vec<HoldRef> {
        let hold = |held: &Held| HoldRef { ops: held.ops, step: held.step, norm: None, pending: false };
        self.lock().iter().map(hold).collect()
    }

    /// The copies of a step, as states.
    pub(super) fn of_step(&self, step: u64) -> Result<Vec<ModelState>, RankError> {
        let all = self.lock();
        let states = all.iter().filter(|held| held.step == step);
        states.map(|held| Ok(ModelState::from_bytes(held.bytes.clone())?)).collect()
    }

    /// Drops copies that are older than a step.
    pub(super) fn forget_before(&self, step: u64) {
        self.lock().retain(|held| held.step >= step);
    }

    /// Drops copies between two steps.
    fn forget_between(&self, after: u64, before: u64) {
        self.lock().retain(|held| held.step <= after || held.step >= before);
    }

    /// Drops copies that are newer than a step: their generation is incomplete, and those steps are done again.
    pub(super) fn forget_after(&self, step: u64) {
        self.lock().retain(|held| held.step <= step);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Held>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How copies are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeping {
    /// Steps between them; none are made when 0.
    pub(super) every: u64,
    /// The largest size of a copy, in bytes.
    pub(super) most: u64,
}

/// Makes the copies of this stage and stores the copies of the stage before it, for one group.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Steps between copies; none are made when 0.
    every: u64,
    to_send: Option<Sender<(u64, Ops, Bytes)>>,
    sent: Arc<Sent>,
    /// The step of the last copy.
    last: Option<u64>,
    /// The step of the last complete generation; at first the step that the group began with.
    whole: u64,
    sockets: Vec<Socket>,
    threads: Vec<JoinHandle<()>>,
}

impl Guard {
    /// Connects a stage with its guardian, which stores its copies, and with its ward, whose copies it stores.
    ///
    /// # Errors
    /// The guardian or the ward cannot be reached.
    pub(super) fn new(
        keeping: Keeping,
        post: Post,
        rank: usize,
        copies: &Copies,
        epoch: Epoch,
        connector: &dyn Connector,
    ) -> Result<Self, RankError> {
        let Keeping { every, most } = keeping;
        if every == 0 || post.stages < 2 {
            return Ok(Self::default());
        }
        let first = rank - post.stage;
        let at = |stage: usize| first + stage % post.stages;
        let (guardian, ward) = (at(post.stage + 1), at(post.stage + post.stages - 1));
        let lane = |from: usize, to: usize| if from < to { UP } else { DOWN };
        let out = connector.stream(epoch, lane(rank, guardian), guardian)?;
        let into = connector.stream(epoch, lane(ward, rank), ward)?;
        let failed = |error: std::io::Error| broken(format!("could not begin to keep copies: {error}"));
        let sockets = vec![out.try_clone().map_err(failed)?, into.try_clone().map_err(failed)?];
        let sent = Arc::new(Sent::default());
        let (to_send, waiting) = channel();
        let (flag, copies) = (sent.clone(), copies.clone());
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(failed)
        };
        let threads = vec![
            spawn("copies-out", Box::new(move || send(&out, &waiting, &flag)))?,
            spawn(
                "copies-in",
                Box::new(move || receive(&into, &copies, most, &|from, len| read_exactly(from, len))),
            )?,
        ];
        Ok(Self { every, to_send: Some(to_send), sent, last: None, whole: 0, sockets, threads })
    }

    /// Whether the last copy is still being sent.
    pub(super) fn is_copying(&self) -> bool {
        self.sent.copying.load(Ordering::Acquire)
    }

    /// Whether the last copy was not made or not stored. Meaningful when no copy is being sent.
    pub(super) fn has_missed(&self) -> bool {
        self.sent.missed.load(Ordering::Acquire)
    }

    /// Whether a copy is due after `step`, if the next chance comes `next` steps later. The first copy is due at once.
    pub(super) fn is_due(&self, step: u64, next: u64) -> bool {
        self.every > 0 && self.last.is_none_or(|last| step + next > last + self.every)
    }

    pub(super) fn is_on(&self) -> bool {
        self.every > 0
    }

    /// Begins a generation. The one before is complete, unless a stage has `missed` its copy; no copy is being sent.
    fn begin(&mut self, copies: &Copies, step: u64, missed: bool) {
        match self.last.replace(step) {
            None => self.whole = step,
            Some(last) if !missed => {
                self.whole = last;
                copies.forget_before(last);
            }
            Some(_) => copies.forget_between(self.whole, step),
        }
    }

    /// Stores a copy here and sends it to the guardian.
    fn copy(&self, copies: &Copies, step: u64, ops: Ops, bytes: Bytes) {
        copies.add(step, ops, bytes.clone());
        self.sent.begin();
        let sent = self.to_send.as_ref().map(|to_send| to_send.send((step, ops, bytes)));
        if !matches!(sent, Some(Ok(()))) {
            self.sent.end(false);
        }
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = Socket> {
        self.sockets.iter().filter_map(|socket| socket.try_clone().ok())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.to_send = None;
        for socket in &self.sockets {
            // A socket that is closed already returns an error.
            let _ended = socket.shutdown(Shutdown::Both);
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Guard {
    /// Copies a part of the model if a copy is due; the next chance comes `next` steps later. A run goes on when a copy
    /// fails: the next loss of a node then costs more steps.
    pub(super) fn copy_if_due(&mut self, copies: &Copies, part: &Part, next: u64, missed: bool) {
        let (step, ops) = (part.step, part.ops);
        if !self.is_due(step, next) {
            return;
        }
        let told = self.has_missed();
        self.begin(copies, step, missed);
        match part.packed() {
            Ok(packed) => self.copy(copies, step, ops, packed),
            Err(error) => {
                if !told {
                    tracing::warn!(error = with_causes(&error), step, "could not make a copy of this stage");
                }
                self.sent.end(false);
            }
        }
    }
}

#[cfg(test)]
mod tests;
