//! Joining over links: ranks that have no more values.
//!
//! A rank that joins announces it on every link. Then it waits for the call of any other rank and takes part in it with
//! zeros, so the others need not know. A sum cannot complete without it. In a call without elements another rank may be
//! one call ahead; its frames stay unread until this rank catches up. Joining counts as a call, so a rank that still
//! waits can tell a call made after the join from one that it has to follow.

use super::frame::{self, Frame};
use super::link::Link;
use super::{Call, Links};
use crate::core::joined;
use crate::core::schedule::{Arithmetic, Program};
use crate::core::words::{Algorithm, Kind, Reduction, Signature};
use crate::error::CollectiveError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::time::Instant;

/// The event that a joined rank waits for.
enum JoinMessage {
    /// A rank and its call.
    Call(usize, frame::CallFrame),
    /// All have joined.
    All,
}

/// What a rank announces when it joins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joining {
    /// The number of the next call.
    pub(crate) sequence: u64,
    /// The number of ranks that an average is over; more than there are links if a rank speaks for several.
    pub(crate) ranks: usize,
    /// The last rank to join among those that this rank speaks for.
    pub(crate) last: usize,
}

impl Links {
    /// Takes part with zeros in the sums and averages of the others until all have joined; `program` makes the program
    /// of a call.
    ///
    /// Returns the rank that joined last (the highest of those that joined between the same two calls) and the number
    /// of the next call.
    ///
    /// # Errors
    /// As [`Links::run`], or a rank makes a call that zeros cannot take part in.
    pub(crate) fn join(
        &mut self,
        joining: Joining,
        program: impl Fn(&Signature, Algorithm) -> Program,
    ) -> Result<(usize, u64), CollectiveError> {
        let Joining { mut sequence, ranks, last } = joining;
        if let Some(reason) = &self.over {
            return Err(CollectiveError::Aborted { epoch: self.epoch, reason: reason.clone() });
        }
        let own = joined::joining(sequence);
        let signature = Signature { count: last as u64, ..own.clone() };
        let word = frame::CallFrame { epoch: self.epoch, algorithm: Algorithm::Direct, signature };
        for link in self.links.iter_mut().flatten() {
            link.notes.extend(word.encode());
        }
        loop {
            let heard = self.hear(sequence).and_then(|heard| match heard {
                JoinMessage::Call(rank, call) if !call.signature.takes_zeros() => {
                    Err(CollectiveError::Mismatch {
                        own_rank: self.rank,
                        rank,
                        ours: Box::new(own.clone()),
                        theirs: Box::new(call.signature),
                    })
                }
                other => Ok(other),
            });
            match heard {
                Ok(JoinMessage::Call(_, call)) => self.follow(&call, ranks, &program)?,
                Ok(JoinMessage::All) => break,
                Err(error) => {
                    self.close(match &error {
                        CollectiveError::Aborted { reason, .. } => reason.clone(),
                        other => other.to_string(),
                    });
                    return Err(error);
                }
            }
            sequence += 1;
        }
        let others = self.links.iter_mut().flatten().filter_map(|link| link.joined.take());
        let (_, last) = others.fold((own.sequence, last as u64), Ord::max);
        Ok((usize::try_from(last).unwrap_or(usize::MAX), sequence + 1))
    }

    /// Takes part in a call with zeros.
    fn follow(
        &mut self,
        call: &frame::CallFrame,
        ranks: usize,
        program: impl Fn(&Signature, Algorithm) -> Program,
    ) -> Result<(), CollectiveError> {
        let signature = &call.signature;
        let bytes = usize::try_from(signature.count)
            .ok()
            .and_then(|count| count.checked_mul(signature.dtype.size()))
            .unwrap_or(usize::MAX);
        let mut zeros: Vec<u64> = Vec::new();
        if let Err(error) = zeros.try_reserve_exact(bytes.div_ceil(8)) {
            self.close(format!("rank {} has no room for {signature}", self.rank));
            return Err(CollectiveError::System { what: "join", problem: error.to_string() });
        }
        zeros.resize(bytes.div_ceil(8), 0);
        let reduction = signature.reduction.unwrap_or(Reduction::Sum);
        self.run(Call {
            signature,
            program: &program(signature, call.algorithm),
            arithmetic: Arithmetic { dtype: signature.dtype, reduction, ranks },
            input: &[],
            output: &mut bytemuck::cast_slice_mut(&mut zeros)[..bytes],
        })
    }

    /// Waits until a rank calls something or all have joined.
    fn hear(&mut self, sequence: u64) -> Result<JoinMessage, CollectiveError> {
        let start = Instant::now();
        loop {
            if let Some(reason) = self.aborter.reason() {
                return Err(self.ended(reason.to_owned()));
            }
            for rank in 0..self.links.len() {
                if let Some(call) = self.heard_from(rank, sequence)? {
                    return Ok(JoinMessage::Call(rank, call));
                }
            }
            self.check_last_call()?;
            // A rank that joined later has made a call that this rank has not seen yet.
            let joined = |link: &Link| link.joined.is_some_and(|(since, _)| since <= sequence);
            if self.links.iter().flatten().all(|link| joined(link) && link.notes.is_empty()) {
                return Ok(JoinMessage::All);
            }
            self.wait_for_word(start)?;
        }
    }

    /// A rank that had joined before the last call that takes no zeros had no part in that call. A rank that only sent
    /// in it may not have known.
    fn check_last_call(&self) -> Result<(), CollectiveError> {
        let Some(call) = &self.without_zeros else { return Ok(()) };
        for (rank, link) in self.links.iter().enumerate() {
            let Some((since, _)) = link.as_ref().and_then(|link| link.joined) else { continue };
            if since <= call.sequence {
                return Err(CollectiveError::Mismatch {
                    own_rank: self.rank,
                    rank,
                    ours: Box::new(call.clone()),
                    theirs: Box::new(joined::joining(since)),
                });
            }
        }
        Ok(())
    }

    /// Sends what is left to send on a link, and returns the call that has arrived on it.
    fn heard_from(
        &mut self,
        rank: usize,
        sequence: u64,
    ) -> Result<Option<frame::CallFrame>, CollectiveError> {
        let epoch = self.epoch;
        let ended = |reason| CollectiveError::Aborted { epoch, reason };
        let Some(link) = self.links[rank].as_mut() else { return Ok(None) };
        if !link.notes.is_empty()
            && let Err(error) = link.send(&[])
        {
            let word = link.last_word();
            return Err(ended(word.unwrap_or_else(|| format!("rank {rank} is gone: {error}"))));
        }
        loop {
            note_join(link, epoch);
            match link.next() {
                Ok(None) if link.closed => return Ok(None),
                Ok(None) => match link.fill() {
                    Ok(None) => return Ok(None),
                    Ok(Some(0)) | Err(_) if link.joined.is_some() => link.closed = true,
                    Ok(Some(0)) => {
                        return Err(ended(format!("rank {rank} is gone: it closed the connection")));
                    }
                    Err(error) => return Err(ended(format!("rank {rank} is gone: {error}"))),
                    Ok(Some(_)) => {}
                },
                Ok(Some(Frame::Call(body))) => {
                    let call = frame::CallFrame::decode(body).ok().filter(|call| call.epoch == epoch);
                    return match call {
                        Some(call)
                            if call.signature.sequence == sequence && call.signature.kind != Kind::Join =>
                        {
                            Ok(Some(call))
                        }
                        // It is past this join already, or past a call in which it needed nothing from this rank (a sum
                        // of no elements); another rank announces that call.
                        Some(call) if call.signature.sequence > sequence => Ok(None),
                        _ => Err(ended(format!("rank {rank} calls out of turn"))),
                    };
                }
                Ok(Some(Frame::Abort(reason))) => {
                    return Err(ended(String::from_utf8_lossy(reason).into_owned()));
                }
                Ok(Some(Frame::Data(_))) | Err(frame::Malformed) => {
                    return Err(ended(format!("rank {rank} sends what was not agreed")));
                }
            }
        }
    }

    fn wait_for_word(&mut self, start: Instant) -> Result<(), CollectiveError> {
        let mut waits = vec![PollFd::from_borrowed_fd(self.aborter.event(), PollFlags::IN)];
        let mut waited = Vec::new();
        for (rank, link) in self.links.iter().enumerate() {
            let Some(link) = link else { continue };
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::OUT, !link.notes.is_empty());
            flags.set(PollFlags::IN, !link.closed && matches!(link.next(), Ok(None)));
            flags.set(PollFlags::RDHUP, !link.ended);
            if !flags.is_empty() {
                waited.push(rank);
                waits.push(PollFd::new(&link.stream, flags));
            }
        }
        let timeout = self.on_wait.as_ref().and_then(|(after, _)| Timespec::try_from(*after).ok());
        let polled = poll(&mut waits, timeout.as_ref());
        let ready: Vec<_> = waits[1..].iter().map(PollFd::revents).collect();
        for (rank, ready) in waited.into_iter().zip(ready) {
            if let Some(reason) = self.links[rank].as_mut().and_then(|link| link.hear_end(ready)) {
                return Err(self.ended(reason));
            }
        }
        match polled {
            Ok(0) => {
                let late = |link: &Option<Link>| link.as_ref().is_some_and(|link| link.joined.is_none());
                let behind = self.links.iter().position(late).unwrap_or(self.rank);
                if let Some((_, call)) = &mut self.on_wait {
                    call(behind, start.elapsed());
                }
                Ok(())
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => {
                let problem = io::Error::from(errno).to_string();
                Err(CollectiveError::System { what: "wait for other ranks", problem })
            }
        }
    }

    fn ended(&self, reason: String) -> CollectiveError {
        CollectiveError::Aborted { epoch: self.epoch, reason }
    }
}

/// Records that a peer has joined, if that is its next frame, and returns whether it is. A second join frame belongs to
/// a later join.
pub(super) fn note_join(link: &mut Link, epoch: u64) -> bool {
    if link.joined.is_some() || link.data_in > 0 {
        return false;
    }
    if let Ok(Some(Frame::Call(body))) = link.next()
        && let Some(joined) = frame::joined(body, epoch)
    {
        let note = body.len();
        link.skip(note);
        link.joined = Some(joined);
        return true;
    }
    false
}
