//! Large values through memory that the server shares, if it is ours and on this host.
//!
//! The server owns all of it. A value to store is written into memory that the server gave out; a value to read is
//! mapped, and the server is told with the next command when it is not needed any more.

use crate::StoreError;
use crate::connection::{Command, checked};
use crate::views::Views;
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_shared::{KeptSegments, Segment, Slot, Token};
use phalanx_wire::bulk::SharedPlace;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Mapped memory that is kept for the next value to store.
const SLOTS: usize = 16;
const SLOT_BYTES: usize = 512 << 20;

/// What one connection shares with its server.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The one used last at the end.
    slots: VecDeque<Slot>,
    kept: KeptSegments,
    leases: Leases,
    pub(crate) views: Views,
}

/// A reply whose large values were mapped.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) reply: Reply,
    /// It has values of the server's memory, and may be kept while their keys do not change.
    pub(crate) may_keep: bool,
}

/// Leases that the server has to be told of.
type Leases = Arc<Mutex<Vec<i64>>>;

/// Memory that the server gave out to be filled.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) ticket: i64,
    place: SharedPlace,
}

impl Memory {
    /// The command that returns what this program has let go of.
    pub(crate) fn returns(&mut self) -> Option<Command> {
        self.views.sweep();
        let leases = std::mem::take(&mut *self.leases.lock().unwrap_or_else(PoisonError::into_inner));
        let numbers = leases.iter().map(|lease| Bytes::from(lease.to_string()));
        (!leases.is_empty())
            .then(|| std::iter::once(Bytes::from_static(b"PHALANX.RETURN")).chain(numbers).collect())
    }

    /// The command that asks for memory.
    pub(crate) fn take(len: usize) -> Command {
        vec![Bytes::from_static(b"PHALANX.TAKE"), Bytes::from(len.to_string())]
    }

    /// Reads what the server said to that.
    pub(crate) fn taken(reply: Option<Reply>) -> Result<Taken, StoreError> {
        let wrong = StoreError::Unexpected { what: "a place in shared memory" };
        let Reply::Array(fields) = checked(reply)? else { return Err(wrong) };
        let [Reply::Integer(ticket), place @ .., Reply::Integer(len)] = &fields[..] else {
            return Err(wrong);
        };
        let place = place_of(place, 0, *len).ok_or(wrong)?;
        Ok(Taken { ticket: *ticket, place })
    }

    /// Writes a value into memory that the server gave out.
    ///
    /// # Errors
    /// This process cannot map it.
    pub(crate) fn fill(&mut self, taken: &Taken, parts: &[&[u8]]) -> io::Result<()> {
        let token = Token(taken.place.token);
        let known = self.slots.iter().position(|slot| slot.token() == token);
        let mut slot = match known.and_then(|at| self.slots.remove(at)) {
            Some(slot) => slot,
            None => Slot::open(&taken.place)?,
        };
        let mut rest = slot.bytes_mut();
        for part in parts {
            let (here, after) = rest
                .split_at_mut_checked(part.len())
                .ok_or_else(|| io::Error::other("the server gave out too little memory"))?;
            here.copy_from_slice(part);
            rest = after;
        }
        self.slots.push_back(slot);
        let mut bytes: usize = self.slots.iter().map(Slot::len).sum();
        while (self.slots.len() > SLOTS || bytes > SLOT_BYTES)
            && let Some(oldest) = self.slots.pop_front()
        {
            bytes -= oldest.len();
        }
        Ok(())
    }

    /// The reply, with the values that were lent in their places.
    ///
    /// # Errors
    /// This process cannot map them.
    pub(crate) fn mapped(&mut self, reply: Reply) -> io::Result<Mapped> {
        let mut marks = Marks::default();
        let reply = self.map_values(reply, &mut marks)?;
        Ok(Mapped { reply, may_keep: marks.lent && !marks.once })
    }

    fn map_values(&mut self, reply: Reply, marks: &mut Marks) -> io::Result<Reply> {
        let Reply::Array(items) = reply else { return Ok(reply) };
        if let [
            Reply::Simple(mark),
            Reply::Integer(lease),
            place @ ..,
            Reply::Integer(offset),
            Reply::Integer(len),
        ] = &items[..]
            && (&mark[..] == b"SHARED" || &mark[..] == b"SHARED-ONCE")
        {
            marks.lent = true;
            marks.once |= &mark[..] == b"SHARED-ONCE";
            let guard = Lease { lease: *lease, leases: self.leases.clone() };
            let place = place_of(place, *offset, *len).ok_or_else(|| io::Error::other("no place"))?;
            let segment = Segment::open(&place)?;
            self.kept.keep(&segment);
            let range = usize::try_from(place.offset).ok().zip(usize::try_from(place.len).ok());
            let view = range.and_then(|(offset, len)| segment.view(offset, len, guard));
            return view.map(Reply::Bulk).ok_or_else(|| io::Error::other("the segment is too short"));
        }
        let items = items.into_iter().map(|item| self.map_values(item, marks));
        Ok(Reply::Array(items.collect::<io::Result<_>>()?))
    }

    /// The command that asks where the server counts changes of keys.
    pub(crate) fn ask_versions() -> Command {
        vec![Bytes::from_static(b"PHALANX.VERSIONS")]
    }

    /// Reads what the server said to that.
    pub(crate) fn learn_versions(&mut self, reply: Option<Reply>) {
        let place = match reply {
            Some(Reply::Array(fields)) => match &fields[..] {
                [place @ .., Reply::Integer(len)] => place_of(place, 0, *len),
                _ => None,
            },
            _ => None,
        };
        self.views.learn(place.ok_or_else(|| io::Error::other("the server does not count changes")));
    }
}

/// What a reply says of the values in it.
#[derive(Debug, Default)]
struct Marks {
    lent: bool,
    /// They end by time, which is not counted as a change when it should be.
    once: bool,
}

/// A place from pid, descriptor and token as the server says them.
fn place_of(fields: &[Reply], offset: i64, len: i64) -> Option<SharedPlace> {
    let [Reply::Integer(pid), Reply::Integer(fd), Reply::Bulk(token)] = fields else { return None };
    Some(SharedPlace {
        pid: u32::try_from(*pid).ok()?,
        fd: u32::try_from(*fd).ok()?,
        token: token[..].try_into().ok()?,
        offset: u64::try_from(offset).ok()?,
        len: u64::try_from(len).ok()?,
    })
}

impl Memory {
    /// Memory that was taken is not going to be filled.
    pub(crate) fn give_back(&mut self, taken: &Taken) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).push(taken.ticket);
    }
}

/// Notes that a value is not needed any more.
struct Lease {
    lease: i64,
    leases: Leases,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).push(self.lease);
    }
}
