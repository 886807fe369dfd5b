//! What neighbours keep of each other, so that a stage that is lost can be made up for.
//!
//! ```text
//!   after every few steps:   stage s: a copy of its state ──► kept here, and sent to stage s+1 while both go on
//!   stage s is lost:         stage s+1 has its copy, everybody has a copy of its own of the same step
//! ```
//! A generation of copies is let go when the next one has arrived everywhere.

use super::super::lanes::{Connector, broken};
use crate::core::layout::Post;
use crate::error::TrainError;
use crate::state::{ModelState, take_in};
use bytes::Bytes;
use phalanx_collective::Socket;
use phalanx_types::Epoch;
use phalanx_wire::train::{HoldRef, Ops};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// From a lower rank to a higher, and back.
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
    /// Those of a large one lie in a file.
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

    /// The states of a step.
    pub(super) fn of_step(&self, step: u64) -> Result<Vec<ModelState>, TrainError> {
        let all = self.lock();
        let states = all.iter().filter(|held| held.step == step);
        states.map(|held| ModelState::from_bytes(held.bytes.clone())).collect()
    }

    /// Lets go of what is older than a step.
    pub(super) fn forget_before(&self, step: u64) {
        self.lock().retain(|held| held.step >= step);
    }

    /// Lets go of what is newer than a step: it was not whole, and those steps are done again.
    pub(super) fn forget_after(&self, step: u64) {
        self.lock().retain(|held| held.step <= step);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Held>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// This stage's part in keeping copies, in one group.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Steps between copies; none are made when 0.
    every: u64,
    to_send: Option<Sender<(u64, Ops, Bytes)>>,
    copying: Arc<AtomicBool>,
    /// The step of the last copy.
    last: Option<u64>,
    sockets: Vec<Socket>,
    threads: Vec<JoinHandle<()>>,
}

impl Guard {
    /// Connects a stage with the one that keeps its copies and the one whose copies it keeps.
    ///
    /// # Errors
    /// One cannot be reached.
    pub(super) fn new(
        every: u64,
        post: Post,
        rank: usize,
        copies: &Copies,
        epoch: Epoch,
        connector: &dyn Connector,
    ) -> Result<Self, TrainError> {
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
        let copying = Arc::new(AtomicBool::new(false));
        let (to_send, waiting) = channel();
        let (flag, copies) = (copying.clone(), copies.clone());
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(failed)
        };
        let threads = vec![
            spawn("copies-out", Box::new(move || send(&out, &waiting, &flag)))?,
            spawn("copies-in", Box::new(move || receive(&into, &copies)))?,
        ];
        Ok(Self { every, to_send: Some(to_send), copying, last: None, sockets, threads })
    }

    /// Whether the last copy is still on its way.
    pub(super) fn is_copying(&self) -> bool {
        self.copying.load(Ordering::Acquire)
    }

    /// Whether a copy is due after so many steps, when the next can be made after `next` more; the first one is due at
    /// once.
    pub(super) fn is_due(&self, step: u64, next: u64) -> bool {
        self.every > 0 && self.last.is_none_or(|last| step + next > last + self.every)
    }

    pub(super) fn is_on(&self) -> bool {
        self.every > 0
    }

    /// Keeps a copy, and sends it to the guardian. Nobody is still sending the one before.
    pub(super) fn copy(&mut self, copies: &Copies, step: u64, ops: Ops, bytes: Bytes) {
        // The generation before has arrived everywhere; those before it are not needed any more.
        copies.forget_before(self.last.unwrap_or(0));
        copies.add(step, ops, bytes.clone());
        self.last = Some(step);
        if let Some(to_send) = &self.to_send {
            self.copying.store(true, Ordering::Release);
            // A guardian that is gone ends the group anyway.
            drop(to_send.send((step, ops, bytes)));
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
            // One that has ended already cannot be ended again.
            let _ended = socket.shutdown(std::net::Shutdown::Both);
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn send(mut socket: &Socket, waiting: &Receiver<(u64, Ops, Bytes)>, copying: &AtomicBool) {
    for (step, ops, bytes) in waiting {
        let mut head = [0; 24];
        head[..8].copy_from_slice(&step.to_le_bytes());
        head[8..12].copy_from_slice(&ops.start.to_le_bytes());
        head[12..16].copy_from_slice(&ops.end.to_le_bytes());
        head[16..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        let mut taken = [0; 1];
        let sent = socket.write_all(&head).and_then(|()| socket.write_all(&bytes));
        if sent.and_then(|()| socket.read_exact(&mut taken)).is_err() {
            return;
        }
        copying.store(false, Ordering::Release);
    }
}

fn receive(mut socket: &Socket, copies: &Copies) {
    let mut head = [0; 24];
    while socket.read_exact(&mut head).is_ok() {
        let long = |at: usize| head[at..].first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        let short = |at: usize| head[at..].first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b));
        let (step, ops) = (long(0), Ops { start: short(8), end: short(12) });
        match take_in(socket, long(16)) {
            Ok(bytes) => copies.add(step, ops, bytes),
            Err(error) => return tracing::debug!(%error, "a copy did not come"),
        }
        if socket.write_all(&[1]).is_err() {
            return;
        }
    }
}

impl super::session::Session<'_> {
    /// Keeps a copy when one is due and everybody has sent the one before: all stages decide alike.
    pub(super) fn copy_if_due(&mut self, words: &super::word::Words) -> Result<(), TrainError> {
        if words.words.iter().any(|word| word.copying) {
            return Ok(());
        }
        self.copy_now()
    }

    pub(super) fn copy_now(&mut self) -> Result<(), TrainError> {
        let next = if self.flows() { self.length() } else { 1 };
        if self.guard.is_due(self.part.step, next) {
            let packed = self.part.packed()?;
            self.guard.copy(&self.worker.copies, self.part.step, self.part.ops, packed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_graph::Weights;
    use phalanx_types::Tensor;
    use std::os::unix::net::UnixStream;

    fn state(step: u64, elements: usize) -> ModelState {
        let tensor = Tensor::from_f32(vec![elements as u64], &vec![step as f32; elements]).unwrap();
        let weights = Weights::from_iter([("w".to_owned(), tensor)]);
        ModelState { optimizer_steps: step, weights, ..ModelState::default() }
    }

    #[test]
    fn copies_large_and_small_arrive_and_old_ones_go() {
        let (a, b) = UnixStream::pair().unwrap();
        let (a, b): (Socket, Socket) = (a.into(), b.into());
        let (own, other) = (Copies::default(), Copies::default());
        let (to_send, waiting) = channel();
        let copying = Arc::new(AtomicBool::new(false));
        let flag = copying.clone();
        let sender = std::thread::spawn(move || send(&a, &waiting, &flag));
        let keeper = other.clone();
        let receiver = std::thread::spawn(move || receive(&b, &keeper));
        let mut guard = Guard::default();
        (guard.every, guard.to_send, guard.copying) = (10, Some(to_send), copying);
        let ops = Ops { start: 2, end: 5 };
        for (step, elements) in [(0, 4), (10, 1 << 20), (20, 4)] {
            assert!(guard.is_due(step, 1) && !guard.is_due(step.saturating_sub(1), 1) || step == 0);
            // The next can be made two steps late, or now.
            assert!(guard.is_due(step.saturating_sub(8), 10));
            guard.copy(&own, step, ops, state(step, elements).to_bytes().unwrap().into());
            while guard.is_copying() {
                std::thread::yield_now();
            }
            assert_eq!(other.of_step(step).unwrap(), [state(step, elements)]);
        }
        let steps = |copies: &Copies| copies.holds().iter().map(|hold| hold.step).collect::<Vec<_>>();
        assert_eq!(steps(&own), [10, 20]);
        drop(guard);
        sender.join().unwrap();
        receiver.join().unwrap();
        other.forget_before(20);
        assert_eq!(steps(&other), [20]);
        own.forget_after(10);
        assert_eq!(steps(&own), [10]);
    }
}
