//! From bytes to requests: what a client sends, as long as memory and the journal have room for it.

use super::{Connection, GATHER, HELD, LARGEST_READ, RoomWait, SMALLEST_READ};
use crate::shell::hang_up::HangUp;
use crate::shell::shards::Transit;
use crate::shell::sharing::memory_for;
use crate::shell::spill::SpillPass;
use bytes::{Buf, BufMut};
use phalanx_resp::{ProtocolError, RequestProgress};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

impl<S: AsyncRead + AsyncWrite + HangUp + Unpin> Connection<S> {
    /// Reads what has arrived. A client that has left is noticed before its last commands are carried out.
    pub(super) fn read(&mut self, context: &mut Context<'_>, left: &mut usize) -> io::Result<bool> {
        let mut any = false;
        self.is_drained = false;
        loop {
            let full = self.input.len() >= LARGEST_READ || self.output.remaining() >= GATHER;
            // An argument that waits for room has no memory yet.
            if self.end_of_input || self.closing || full || self.room.is_some() || *left == 0 {
                return Ok(any);
            }
            let (polled, room) = self.read_once(context, *left);
            let Poll::Ready(n) = polled? else {
                self.is_drained = true;
                return Ok(any);
            };
            any = true;
            *left = left.saturating_sub(n);
            if n == 0 {
                self.end_of_input = true;
                self.hub.leave(self.client);
            }
            // A full buffer is looked at first: what follows may belong to a large argument.
            if n == room {
                return Ok(any);
            }
        }
    }

    /// Reads into the read buffer, or a large argument straight into its own. Says how much room there was.
    fn read_once(&mut self, context: &mut Context<'_>, left: usize) -> (Poll<io::Result<usize>>, usize) {
        if let Some(bulk) = self.parser.large() {
            if let Some(room) = bulk.given_room() {
                let len = room.len().min(left);
                let mut buffer = ReadBuf::new(room.get_mut(..len).unwrap_or_default());
                let polled = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
                let n = buffer.filled().len();
                bulk.arrived(n);
                self.transfer.on_arrived(n);
                return (polled.map_ok(|()| n), len);
            }
            let mut room = bulk.room().limit(left);
            let len = room.remaining_mut();
            let polled = pin!(self.stream.read_buf(&mut room)).poll(context);
            if let Poll::Ready(Ok(n)) = polled {
                self.transfer.on_arrived(n);
            }
            return (polled, len);
        }
        let len = self.read_size;
        self.input.reserve(len);
        let mut room = (&mut self.input).limit(len);
        let polled = pin!(self.stream.read_buf(&mut room)).poll(context);
        if let Poll::Ready(Ok(n)) = polled
            && n == len
        {
            self.read_size = (2 * n).min(LARGEST_READ);
        }
        (polled, len)
    }

    /// Executes requests that have arrived whole.
    pub(super) fn execute_buffered(
        &mut self,
        context: &mut Context<'_>,
        left: &mut usize,
    ) -> Result<bool, ProtocolError> {
        let mut any = false;
        self.is_starved = false;
        self.stalled = false;
        let had_waited = self.room.is_some();
        while *left > 0 && !self.closing && !self.aborted && !self.waits() && self.output.remaining() < GATHER
        {
            self.stalled = self.waits_for_journal(context) || !self.next_request(context)?;
            if self.stalled {
                break;
            }
            match self.progress {
                RequestProgress::Request => self.execute(),
                RequestProgress::Announced { .. } => continue,
                RequestProgress::More | RequestProgress::Large => {
                    self.is_starved = true;
                    break;
                }
            }
            *left -= 1;
            any = true;
        }
        // Nothing was read while it waited, so nothing would wake this for what is to be read now.
        Ok(any || (had_waited && self.room.is_none()))
    }

    /// Takes the next step of parsing, unless it waits for room in memory; false if it does.
    fn next_request(&mut self, context: &mut Context<'_>) -> Result<bool, ProtocolError> {
        let waited = match self.room.take() {
            None => {
                self.progress = self.parser.parse(&mut self.input)?;
                None
            }
            Some(RoomWait::Argument(pass) | RoomWait::Request(pass)) => Some(pass),
        };
        match self.progress {
            RequestProgress::Announced { len } => Ok(self.admit(len as u64, waited, context)),
            RequestProgress::Request if self.is_uncounted() => {
                let needed = self.hub.lacks_room(self.parser.args());
                let pass =
                    needed.and_then(|needed| self.hub.wait_for_spill(needed, waited, self.client, context));
                self.room = pass.map(RoomWait::Request);
                Ok(pass.is_none())
            }
            RequestProgress::Request | RequestProgress::More | RequestProgress::Large => Ok(true),
        }
    }

    /// Whether the request that has arrived had no large argument, so that no room was asked for.
    fn is_uncounted(&self) -> bool {
        self.announced == 0 && self.arriving_transit.is_none() && !self.parser.refused()
    }

    /// Takes or refuses a large argument that is announced; false if it waits for room.
    fn admit(&mut self, len: u64, waited: Option<SpillPass>, context: &mut Context<'_>) -> bool {
        if self.hub.admit(len) {
            self.announced += len;
            self.hub.trim_kept_memory();
            // What follows is read into its own memory; a longer read would bring some of it here.
            self.read_size = SMALLEST_READ;
            self.transfer.on_moved();
            if let Some(memory) = usize::try_from(len).ok().and_then(memory_for) {
                self.parser.give(memory);
            }
            return true;
        }
        let shards = self.hub.shards().filter(|_| self.authenticated && !self.is_peer);
        if shards.is_some_and(|shards| shards.is_elsewhere(self.parser.args())) {
            let transit = self.arriving_transit.get_or_insert_with(|| Transit::new(self.hub.clone()));
            if transit.take(len) {
                return true;
            }
        }
        let pass = self.hub.wait_for_spill(len, waited, self.client, context);
        self.room = pass.map(RoomWait::Argument);
        if pass.is_none() {
            self.parser.refuse();
        }
        pass.is_none()
    }

    /// Whether more has to be recorded before more is executed.
    fn waits_for_journal(&self, context: &mut Context<'_>) -> bool {
        let Some(persistence) = self.hub.persistence() else { return false };
        if self.held.weight() >= HELD {
            return true;
        }
        if !persistence.is_congested() {
            return false;
        }
        persistence.acknowledgements.wake_at_next(self.client, context);
        // It may have passed before the connection was to be woken.
        persistence.is_congested()
    }
}
