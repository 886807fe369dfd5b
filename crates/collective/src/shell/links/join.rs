//! Ranks that have no more values.
//!
//! A rank that joins says so on every link. Then it waits for the call of any other rank, makes the same one and takes
//! part in it with zeros, so the others need not know. Nobody finishes a call without it, and so nobody's word that it
//! joins overtakes a call. Joining itself counts as one call: whoever still waits can tell a call that others make
//! after it from one that it has to follow.

use super::frame::{self, Frame};
use super::link::Link;
use super::{Call, Links};
use crate::core::schedule::{Arithmetic, Program};
use crate::core::words::{Algorithm, Kind, Reduction, Signature};
use crate::error::CollectiveError;
use phalanx_types::DType;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::time::Instant;

/// What a rank that has joined waits for.
enum Heard {
    /// A rank's call.
    Call(usize, frame::Call),
    /// All have joined.
    All,
}

impl Links {
    /// Takes part with zeros in what the others sum or average until all have joined; `sequence` is the number of the
    /// call to come, `ranks` are those that an average is of, and `program` makes the program of a call.
    ///
    /// Gives the rank that joined last, of those between the same two calls the highest, and the number of the next
    /// call.
    ///
    /// # Errors
    /// As [`Links::run`], or a rank calls what zeros cannot take part in.
    #[cfg_attr(not(test), expect(dead_code, reason = "groups of several hosts join by it"))]
    pub(crate) fn join(
        &mut self,
        mut sequence: u64,
        ranks: usize,
        program: impl Fn(&Signature, Algorithm) -> Program,
    ) -> Result<(usize, u64), CollectiveError> {
        if let Some(reason) = &self.over {
            return Err(CollectiveError::Aborted { epoch: self.epoch, reason: reason.clone() });
        }
        let own = Signature {
            sequence,
            kind: Kind::Join,
            reduction: None,
            dtype: DType::U8,
            count: 0,
            name: String::new(),
        };
        let word = frame::Call { epoch: self.epoch, algorithm: Algorithm::Direct, signature: own.clone() };
        for link in self.links.iter_mut().flatten() {
            link.notes.extend(word.encode());
        }
        loop {
            let heard = self.hear(sequence).and_then(|heard| match heard {
                Heard::Call(rank, call) if !call.signature.takes_zeros() => Err(CollectiveError::Mismatch {
                    own_rank: self.rank,
                    rank,
                    ours: Box::new(own.clone()),
                    theirs: Box::new(call.signature),
                }),
                other => Ok(other),
            });
            match heard {
                Ok(Heard::Call(_, call)) => self.follow(&call, ranks, &program)?,
                Ok(Heard::All) => break,
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
        let mut last = (own.sequence, self.rank);
        for (rank, link) in self.links.iter_mut().enumerate() {
            if let Some(since) = link.as_mut().and_then(|link| link.joined.take()) {
                last = last.max((since, rank));
            }
        }
        Ok((last.1, sequence + 1))
    }

    /// Takes part in a call with zeros.
    fn follow(
        &mut self,
        call: &frame::Call,
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
    fn hear(&mut self, sequence: u64) -> Result<Heard, CollectiveError> {
        let start = Instant::now();
        loop {
            if let Some(reason) = self.aborter.reason() {
                return Err(self.ended(reason.to_owned()));
            }
            for rank in 0..self.links.len() {
                if let Some(call) = self.heard_from(rank, sequence)? {
                    return Ok(Heard::Call(rank, call));
                }
            }
            if self.links.iter().flatten().all(|link| link.joined.is_some() && link.notes.is_empty()) {
                return Ok(Heard::All);
            }
            self.wait_for_word(start)?;
        }
    }

    /// Sends what is left to say on a link, and gives the call that has come on it.
    fn heard_from(&mut self, rank: usize, sequence: u64) -> Result<Option<frame::Call>, CollectiveError> {
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
                    let call = frame::Call::decode(body).ok().filter(|call| call.epoch == epoch);
                    return match call {
                        Some(call)
                            if call.signature.sequence == sequence && call.signature.kind != Kind::Join =>
                        {
                            Ok(Some(call))
                        }
                        // It is past this join already.
                        Some(call) if call.signature.sequence > sequence && link.joined.is_some() => Ok(None),
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
        for link in self.links.iter().flatten() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::OUT, !link.notes.is_empty());
            flags.set(PollFlags::IN, !link.closed && matches!(link.next(), Ok(None)));
            if !flags.is_empty() {
                waits.push(PollFd::new(&link.stream, flags));
            }
        }
        let timeout = self.on_wait.as_ref().and_then(|(after, _)| Timespec::try_from(*after).ok());
        match poll(&mut waits, timeout.as_ref()) {
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

/// Notes that a peer has joined, if that is the next that it says. A second time belongs to a later join.
pub(super) fn note_join(link: &mut Link, epoch: u64) {
    if link.joined.is_some() || link.data_in > 0 {
        return;
    }
    if let Ok(Some(Frame::Call(body))) = link.next()
        && let Some(since) = frame::joined(body, epoch)
    {
        let note = body.len();
        link.skip(note);
        link.joined = Some(since);
    }
}
