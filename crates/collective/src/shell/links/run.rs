//! Runs one program over the links.

use super::aborter::Aborter;
use super::frame::{self, Frame};
use super::join::note_join;
use super::link::Link;
use super::{BLOCK, OnWait};
use crate::core::joined::joining;
use crate::core::schedule::{Memory, Progress, Span, Step, Then};
use crate::core::words::Signature;
use crate::error::CollectiveError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// The most bytes of a data frame. A longer frame saves a system call at both ends, but an abort has to wait for its
/// end.
const FRAME: usize = 4 << 20;

pub(super) struct CallRun<'a> {
    pub(super) rank: usize,
    pub(super) epoch: u64,
    pub(super) signature: &'a Signature,
    /// This rank's call frame.
    pub(super) call: Vec<u8>,
    pub(super) links: &'a mut [Option<Link>],
    pub(super) aborter: &'a Aborter,
    pub(super) on_wait: &'a mut Option<(Duration, OnWait)>,
    pub(super) progress: Progress<'a>,
    pub(super) memory: Memory<'a>,
    pub(super) block: &'a mut [u8],
    /// Bytes of the current receive that have arrived and are not combined yet.
    pub(super) held: usize,
}

/// The result of an attempt to proceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Went,
    /// It has to wait for a link or another step.
    Stuck,
}

impl CallRun<'_> {
    pub(super) fn run(&mut self) -> Result<(), CollectiveError> {
        for rank in 0..self.links.len() {
            let Some(link) = self.links[rank].as_mut() else { continue };
            (link.called, link.heard) = (false, false);
            if link.closed && self.progress.needs(rank) {
                return Err(self.gone(rank, "it closed the connection"));
            }
            self.check_join(rank)?;
        }
        while !self.progress.finished() {
            self.check_abort()?;
            let mut attempt = self.turn()?;
            for target in 0..self.progress.targets() {
                if self.send(target)? == Attempt::Went {
                    attempt = Attempt::Went;
                }
            }
            if attempt == Attempt::Stuck {
                self.wait()?;
            }
        }
        Ok(())
    }

    /// Sends the rest of the outgoing data frames, so that an abort can follow.
    pub(super) fn leave(&mut self) {
        for target in 0..self.progress.targets() {
            let Some((to, step)) = self.progress.send(target) else { continue };
            let Some(link) = self.links[to].as_mut() else { continue };
            let start = self.progress.left(step).start;
            link.notes.extend(self.memory.read(self.progress.area(step), start..start + link.data_out));
            link.data_out = 0;
        }
    }

    fn check_abort(&self) -> Result<(), CollectiveError> {
        self.aborter.reason().map_or(Ok(()), |reason| Err(self.aborted(reason.to_owned())))
    }

    /// A joined rank never takes part in a call that takes no zeros, and may never learn of this one.
    fn check_join(&self, rank: usize) -> Result<(), CollectiveError> {
        let Some((since, _)) = self.links[rank].as_ref().and_then(|link| link.joined) else { return Ok(()) };
        if since > self.signature.sequence || self.signature.takes_zeros() {
            return Ok(());
        }
        Err(CollectiveError::Mismatch {
            own_rank: self.rank,
            rank,
            ours: Box::new(self.signature.clone()),
            theirs: Box::new(joining(since)),
        })
    }

    fn aborted(&self, reason: String) -> CollectiveError {
        CollectiveError::Aborted { epoch: self.epoch, reason }
    }

    /// A peer is lost; if it sent an abort, that is the reason.
    fn gone(&mut self, rank: usize, problem: &str) -> CollectiveError {
        let word = self.links[rank].as_mut().and_then(Link::last_word);
        self.aborted(word.unwrap_or_else(|| format!("rank {rank} is gone: {problem}")))
    }

    fn link(&mut self, rank: usize) -> &mut Link {
        self.links[rank].as_mut().expect("the program was checked against the links")
    }

    /// Sends what can be sent of the first send to a target.
    fn send(&mut self, target: usize) -> Result<Attempt, CollectiveError> {
        let Some((to, step)) = self.progress.send(target) else { return Ok(Attempt::Stuck) };
        let Some(link) = self.links[to].as_mut() else { return Ok(Attempt::Stuck) };
        if !link.called {
            link.notes.extend(&self.call);
            link.called = true;
        }
        let left = self.progress.left(step);
        if link.data_out == 0 && !left.is_empty() {
            // Only the last frame may be short: many small ones would cost more than they gain.
            let take = self.progress.sendable(step).len().min(FRAME);
            if take >= BLOCK || take == left.len() {
                link.start_data(take);
            }
        }
        if !link.notes.is_empty() || link.data_out > 0 {
            let data = self.memory.read(self.progress.area(step), left.start..left.start + link.data_out);
            match link.send(data) {
                Ok(Some(sent)) => self.progress.did(step, sent),
                Ok(None) => return Ok(Attempt::Stuck),
                Err(error) => return Err(self.gone(to, &error.to_string())),
            }
        } else if !left.is_empty() {
            return Ok(Attempt::Stuck);
        }
        if self.progress.left(step).is_empty() && self.link(to).notes.is_empty() {
            self.progress.complete_send(target);
        }
        Ok(Attempt::Went)
    }

    /// Proceeds with the current step.
    fn turn(&mut self) -> Result<Attempt, CollectiveError> {
        let Some((index, step)) = self.progress.turn() else { return Ok(Attempt::Stuck) };
        if let Step::Receive { from, into, then } = step {
            return self.receive(index, *from, into, then);
        }
        let room = self.progress.writable();
        if room != self.progress.left(index) {
            return Ok(Attempt::Stuck);
        }
        match step {
            Step::Copy { from, into } => self.memory.copy(from, into),
            Step::Combine { into, other, last } => {
                let other = (other.area, self.memory.bytes(&other.range).start);
                self.memory.combine((into.area, room.clone()), other, *last);
            }
            Step::Send { .. } | Step::Receive { .. } => {}
        }
        self.progress.did(index, room.len());
        self.progress.complete_turn();
        Ok(Attempt::Went)
    }

    fn receive(
        &mut self,
        index: usize,
        from: usize,
        into: &Span,
        then: &Then,
    ) -> Result<Attempt, CollectiveError> {
        if !self.at_data(index, from)? {
            return Ok(Attempt::Stuck);
        }
        if !self.progress.left(index).is_empty() {
            let room = self.progress.writable();
            let start = room.start + self.held;
            let end = room.end.min(room.start + BLOCK);
            if start >= end {
                return Ok(Attempt::Stuck);
            }
            let in_place = matches!(then, Then::Combine { own, .. } if own == into);
            let target = if in_place {
                &mut self.block[self.held..end - room.start]
            } else {
                self.memory.write(into.area, start..end)
            };
            let link = self.links[from].as_mut().expect("the program was checked against the links");
            match link.read(target) {
                Ok(None) => return Ok(Attempt::Stuck),
                Ok(Some(0)) => return Err(self.gone(from, "it closed the connection")),
                Ok(Some(got)) => self.arrived(index, room.start, got, into, then),
                Err(error) => return Err(self.gone(from, &error.to_string())),
            }
        }
        if self.progress.left(index).is_empty() {
            self.progress.complete_turn();
        }
        Ok(Attempt::Went)
    }

    /// Combines the whole elements among the bytes that have arrived; `start` is their destination.
    fn arrived(&mut self, index: usize, start: usize, got: usize, into: &Span, then: &Then) {
        let Then::Combine { own, last } = then else {
            self.progress.did(index, got);
            return;
        };
        let held = self.held + got;
        self.held = held % self.memory.arithmetic.dtype.size();
        let whole = held - self.held;
        let place = (into.area, start..start + whole);
        if own == into {
            self.memory.combine_block(place, &self.block[..whole], *last);
            self.block.copy_within(whole..held, 0);
        } else {
            let offset = start - self.memory.bytes(&into.range).start;
            let other = (own.area, self.memory.bytes(&own.range).start + offset);
            self.memory.combine(place, other, *last);
        }
        self.progress.did(index, whole);
    }

    /// Reads frames until data of this collective comes. Returns whether it does, or none is needed.
    fn at_data(&mut self, index: usize, from: usize) -> Result<bool, CollectiveError> {
        loop {
            let left = self.progress.left(index).len() - self.held;
            let epoch = self.epoch;
            let link = self.link(from);
            if !link.heard && note_join(link, epoch) {
                self.check_join(from)?;
                continue;
            }
            if link.data_in > 0 || link.heard && left == 0 {
                return Ok(true);
            }
            match link.next() {
                Ok(None) => match link.fill() {
                    Ok(None) => return Ok(false),
                    Ok(Some(0)) => return Err(self.gone(from, "it closed the connection")),
                    Ok(Some(_)) => {}
                    Err(error) => return Err(self.gone(from, &error.to_string())),
                },
                Ok(Some(Frame::Call(theirs))) => {
                    let (theirs, again) = (theirs.to_vec(), link.heard);
                    link.skip(theirs.len());
                    link.heard = true;
                    self.compare(from, &theirs, again)?;
                }
                Ok(Some(Frame::Data(length))) if link.heard && length <= left => {
                    link.skip(0);
                    link.data_in = length;
                }
                Ok(Some(Frame::Data(_))) => {
                    return Err(self.aborted(format!("rank {from} sends more than was agreed")));
                }
                Ok(Some(Frame::Abort(reason))) => {
                    let reason = String::from_utf8_lossy(reason).into_owned();
                    return Err(self.aborted(reason));
                }
                Err(frame::Malformed) => {
                    return Err(self.aborted(format!("rank {from} sends what is no frame")));
                }
            }
        }
    }

    /// Compares a peer's call with this rank's; a second call within this collective never fits.
    fn compare(&self, from: usize, theirs: &[u8], again: bool) -> Result<(), CollectiveError> {
        let ours = &self.call[frame::HEAD..];
        if ours == theirs && !again {
            return Ok(());
        }
        let (Ok(ours), Ok(theirs)) = (frame::CallFrame::decode(ours), frame::CallFrame::decode(theirs))
        else {
            return Err(self.aborted(format!("rank {from} sends what is no call")));
        };
        if theirs.epoch != ours.epoch {
            return Err(self.aborted(format!("rank {from} is of epoch {}", theirs.epoch)));
        }
        if theirs.signature != ours.signature {
            return Err(CollectiveError::Mismatch {
                own_rank: self.rank,
                rank: from,
                ours: Box::new(ours.signature),
                theirs: Box::new(theirs.signature),
            });
        }
        let (ours, theirs) = (ours.algorithm.word(), theirs.algorithm.word());
        Err(self.aborted(format!("rank {from} computes by {theirs}, rank {} by {ours}", self.rank)))
    }

    /// Waits until a link, an abort or a peer's loss lets something go on.
    fn wait(&mut self) -> Result<(), CollectiveError> {
        let start = Instant::now();
        let ready = loop {
            let (ranks, mut waits) = self.waits();
            let timeout =
                self.on_wait.as_ref().map(|(after, _)| Timespec::try_from(*after).unwrap_or_default());
            match poll(&mut waits, timeout.as_ref()) {
                Ok(0) => {}
                Ok(_) => {
                    let ready = ranks.into_iter().zip(&waits[1..]);
                    break ready
                        .map(|(rank, wait)| (rank, wait.revents() - PollFlags::OUT))
                        .filter(|(_, ready)| !ready.is_empty())
                        .collect::<Vec<_>>();
                }
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    let problem = io::Error::from(errno).to_string();
                    return Err(CollectiveError::System { what: "wait for other ranks", problem });
                }
            }
            let waited_for = self.waited_for();
            if let Some((_, call)) = self.on_wait {
                call(waited_for, start.elapsed());
            }
        };
        self.check_abort()?;
        for (rank, ready) in ready {
            self.listen(rank, ready)?;
        }
        Ok(())
    }

    /// The ranks to wait for, and the descriptors to poll: first the aborter, then one for each rank.
    fn waits(&self) -> (Vec<usize>, Vec<PollFd<'_>>) {
        let receiving = self.receiving().filter(|_| !self.progress.writable().is_empty());
        let mut ranks = Vec::new();
        let mut waits = vec![PollFd::from_borrowed_fd(self.aborter.event(), PollFlags::IN)];
        for (rank, link) in self.links.iter().enumerate() {
            let Some(link) = link else { continue };
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::OUT, link.data_out > 0 || !link.notes.is_empty());
            // Early frames stay unread, but an abort is detected on every link: it is the peer's last message.
            let silent = link.data_in == 0 && matches!(link.next(), Ok(None));
            flags.set(PollFlags::IN, !link.closed && (silent || receiving == Some(rank)));
            flags.set(PollFlags::RDHUP, !link.ended);
            if !flags.is_empty() {
                ranks.push(rank);
                waits.push(PollFd::new(&link.stream, flags));
            }
        }
        (ranks, waits)
    }

    /// Handles what has arrived on a link that is not receiving at the moment, and an abort on any link.
    fn listen(&mut self, rank: usize, ready: PollFlags) -> Result<(), CollectiveError> {
        if let Some(reason) = self.link(rank).hear_end(ready) {
            return Err(self.aborted(reason));
        }
        if self.receiving() == Some(rank) {
            return Ok(());
        }
        let (needed, epoch) = (self.progress.needs(rank), self.epoch);
        let link = self.link(rank);
        if link.closed || link.data_in > 0 || !matches!(link.next(), Ok(None)) {
            return Ok(());
        }
        match link.fill() {
            Ok(Some(0)) if needed => return Err(self.gone(rank, "it closed the connection")),
            Err(error) if needed => return Err(self.gone(rank, &error.to_string())),
            Ok(Some(0)) | Err(_) => link.closed = true,
            Ok(_) => {}
        }
        if note_join(link, epoch) {
            self.check_join(rank)?;
        }
        if let Ok(Some(Frame::Abort(reason))) = self.link(rank).next() {
            let reason = String::from_utf8_lossy(reason).into_owned();
            return Err(self.aborted(reason));
        }
        Ok(())
    }

    fn receiving(&self) -> Option<usize> {
        match self.progress.turn() {
            Some((_, Step::Receive { from, .. })) => Some(*from),
            _ => None,
        }
    }

    fn waited_for(&self) -> usize {
        let sending = || (0..self.progress.targets()).find_map(|target| self.progress.send(target));
        self.receiving().or_else(|| sending().map(|(to, _)| to)).unwrap_or(self.rank)
    }
}
