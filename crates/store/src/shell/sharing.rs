//! Large values without a socket, for clients on this host.
//!
//! ```text
//! client                                       server
//!   | -- PHALANX.TAKE len -------------------> |   [ticket, pid, fd, token, len]: memory to fill
//!   |    maps it, writes the value             |
//!   | -- PHALANX.WITH ticket COMMAND args… --> |   the command, with the memory as its last argument
//!   | -- PHALANX.LEND COMMAND args… ---------> |   its reply, with large values as [SHARED, lease, pid, fd, …]
//!   |    maps them, reads                      |   keeps them as they are
//!   | -- PHALANX.RETURN lease… --------------> |   may use the memory again
//!   | -- PHALANX.VERSIONS -------------------> |   [pid, fd, token, count]: numbers that count up when keys change
//! ```
//! Any command works with both, so the keyspace knows nothing of it. What a client has taken or been lent ends with its
//! connection; that memory is not used again, since the client may still have it mapped.

use super::executed::Executed;
use super::hub::Hub;
use crate::core::{ClientId, Effects, Outcome};
use bytes::Bytes;
use phalanx_resp::{AHEAD, BulkMemory, Reply};
use phalanx_shared::{Region, WORTH_SHARING, copy_together, locate, retire, take, take_kept};
use std::collections::BTreeMap;

/// Memory that a client may have taken and not yet used.
const MOST_TAKEN: usize = 64;
const MOST_TAKEN_BYTES: usize = 1 << 30;
/// A longer value goes over the socket: making room for it would keep other clients waiting.
const LONGEST_TAKEN: usize = 512 << 20;
/// Values that a client may have been lent at a time; more are sent.
const MOST_LENT: usize = 4096;
/// A value that lies elsewhere is copied to be lent, unless that would keep other clients waiting.
const MOST_COPIED: usize = 32 << 20;
/// The most bytes of such copies that one client may hold.
const MOST_COPIES: usize = 256 << 20;

/// Making more memory than this for a value that arrives would keep other clients waiting.
const LONGEST_MADE: usize = 4 << 20;
/// No more is kept ready for a value of which nothing has arrived.
const LONGEST_KEPT: usize = AHEAD;

/// Commands whose replies can be lent: they only read, and answer at once.
const READERS: [&str; 8] =
    ["ai.tensorget", "ai.modelget", "get", "hget", "hgetall", "hmget", "lrange", "mget"];

/// What one client shares with the server.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// The client is on this host.
    possible: bool,
    next: i64,
    taken: BTreeMap<i64, Region>,
    lent: BTreeMap<i64, Lent>,
    /// The bytes of copies that were made to be lent.
    copies: usize,
}

#[derive(Debug)]
struct Lent {
    bytes: Bytes,
    is_copy: bool,
}

/// A command of this module, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharingCommand {
    Take,
    With,
    Lend,
    Return,
    Versions,
}

impl SharingCommand {
    pub(crate) fn find(name: &[u8]) -> Option<Self> {
        let (family, verb) = name.split_at_checked(8)?;
        if !family.eq_ignore_ascii_case(b"phalanx.") {
            return None;
        }
        let all = [
            (&b"take"[..], Self::Take),
            (b"with", Self::With),
            (b"lend", Self::Lend),
            (b"return", Self::Return),
            (b"versions", Self::Versions),
        ];
        all.into_iter().find(|(known, _)| verb.eq_ignore_ascii_case(known)).map(|(_, command)| command)
    }
}

impl SharingCommand {
    /// The command inside of it.
    pub(crate) fn inner(self, args: &[Bytes]) -> &[Bytes] {
        match self {
            Self::With => args.get(2..).unwrap_or_default(),
            Self::Lend => args.get(1..).unwrap_or_default(),
            Self::Take | Self::Return | Self::Versions => &[],
        }
    }
}

impl Sharing {
    pub(crate) fn new(same_host: bool) -> Self {
        let mut sharing = Self::default();
        sharing.possible = same_host;
        sharing
    }

    /// Carries out a command of a client that may use the store.
    pub(crate) fn execute(
        &mut self,
        hub: &Hub,
        client: ClientId,
        (command, args): (SharingCommand, &[Bytes]),
        effects: &mut Effects,
    ) -> Executed {
        effects.clear();
        if !self.possible {
            return Reply::error("ERR memory can be shared only by clients on the server's host").into();
        }
        match (command, args) {
            (SharingCommand::Take, [_, len]) => self.take(hub, len).into(),
            (SharingCommand::With, [_, ticket, rest @ ..]) if !rest.is_empty() => {
                self.with(hub, client, (ticket, rest), effects)
            }
            (SharingCommand::Lend, [_, inner @ ..]) if !inner.is_empty() => {
                self.lend(hub, client, inner, effects)
            }
            (SharingCommand::Return, [_, leases @ ..]) => {
                let back =
                    leases.iter().filter_map(number).filter(|lease| self.take_back(hub, *lease)).count();
                Reply::count(back).into()
            }
            (SharingCommand::Versions, [_]) => versions(hub).into(),
            _ => Reply::error("ERR wrong number of arguments for a command of shared memory").into(),
        }
    }

    /// Ends a lease, or gives up memory that was taken; says whether there was any.
    fn take_back(&mut self, hub: &Hub, number: i64) -> bool {
        if let Some(region) = self.taken.remove(&number) {
            hub.arrived(region.len() as u64);
            // The client may have mapped it.
            retire(&region);
            return true;
        }
        let Some(lent) = self.lent.remove(&number) else { return false };
        if let Some(spill) = hub.spill().filter(|_| !lent.is_copy) {
            spill.on_returned(&lent.bytes);
        }
        if lent.is_copy {
            self.copies -= lent.bytes.len();
            hub.copy_returned(lent.bytes.len() as u64);
        }
        true
    }

    fn take(&mut self, hub: &Hub, len: &Bytes) -> Reply {
        let Some(len) = number(len).and_then(|len| usize::try_from(len).ok()).filter(|len| *len > 0) else {
            return Reply::error("ERR value is not an integer or out of range");
        };
        if len > LONGEST_TAKEN {
            return Reply::error("TOOLONG the value is too long to be shared");
        }
        let taken: usize = self.taken.values().map(|region| region.len()).sum();
        if self.taken.len() >= MOST_TAKEN || taken + len > MOST_TAKEN_BYTES {
            return Reply::error("ERR too much memory was taken and not used");
        }
        if !hub.admit(len as u64) {
            return hub.refuse(&[Bytes::from_static(b"set")]);
        }
        hub.trim_kept_memory();
        let region = match take(len) {
            Ok(region) => region,
            Err(error) => {
                hub.arrived(len as u64);
                return Reply::error(format!("ERR there is no memory to share: {error}"));
            }
        };
        self.next += 1;
        let place = region.place();
        self.taken.insert(self.next, region);
        Reply::Array(vec![
            Reply::Integer(self.next),
            Reply::Integer(place.pid.into()),
            Reply::Integer(place.fd.into()),
            Reply::Bulk(Bytes::copy_from_slice(&place.token)),
            Reply::count(len),
        ])
    }

    fn with(
        &mut self,
        hub: &Hub,
        client: ClientId,
        (ticket, rest): (&Bytes, &[Bytes]),
        effects: &mut Effects,
    ) -> Executed {
        let Some(region) = number(ticket).and_then(|ticket| self.taken.remove(&ticket)) else {
            return Reply::error("ERR no such memory was taken").into();
        };
        let len = region.len() as u64;
        let args: Vec<Bytes> = rest.iter().cloned().chain([region.freeze()]).collect();
        let outcome = hub.execute(client, &args, effects);
        hub.arrived(len);
        outcome
    }

    fn lend(&mut self, hub: &Hub, client: ClientId, inner: &[Bytes], effects: &mut Effects) -> Executed {
        let known = |name: &Bytes| READERS.iter().any(|reader| name.eq_ignore_ascii_case(reader.as_bytes()));
        if !inner.first().is_some_and(known) {
            return Reply::error("ERR replies of this command cannot be lent").into();
        }
        let executed = hub.execute(client, inner, effects);
        // Keys end by time a little later than they should: a client must not go by their versions.
        let mark = if effects.read_ending { "SHARED-ONCE" } else { "SHARED" };
        executed.map(|outcome| match outcome {
            Outcome::Reply(reply) => Outcome::Reply(self.lent(hub, reply, mark)),
            other => other,
        })
    }

    /// The reply, with places instead of large values.
    fn lent(&mut self, hub: &Hub, reply: Reply, mark: &'static str) -> Reply {
        match reply {
            Reply::Bulk(bytes) if bytes.len() >= WORTH_SHARING => self.lend_bytes(hub, bytes, mark),
            Reply::Array(items) => {
                Reply::Array(items.into_iter().map(|item| self.lent(hub, item, mark)).collect())
            }
            Reply::Map(pairs) => Reply::Map(
                pairs.into_iter().map(|(name, value)| (name, self.lent(hub, value, mark))).collect(),
            ),
            other => other,
        }
    }

    fn lend_bytes(&mut self, hub: &Hub, bytes: Bytes, mark: &'static str) -> Reply {
        if self.lent.len() >= MOST_LENT {
            return Reply::Bulk(bytes);
        }
        let may_copy = bytes.len() <= MOST_COPIED && self.copies + bytes.len() <= MOST_COPIES;
        let copied = || {
            let len = bytes.len() as u64;
            if !may_copy || !hub.lend_copy(len) {
                return None;
            }
            let copy = copy_together(&[&bytes]).ok().and_then(|mut copies| copies.pop());
            if copy.is_none() {
                hub.copy_returned(len);
            }
            copy
        };
        let here = locate(&bytes).map(|located| (Lent { bytes: bytes.clone(), is_copy: false }, located));
        let copy = || {
            let bytes = copied()?;
            locate(&bytes).map(|located| (Lent { bytes, is_copy: true }, located))
        };
        let Some((lent, located)) = here.or_else(copy) else { return Reply::Bulk(bytes) };
        self.next += 1;
        let place = located.place();
        if let Some(spill) = hub.spill().filter(|_| !lent.is_copy) {
            spill.on_lent(&lent.bytes);
        }
        self.copies += if lent.is_copy { lent.bytes.len() } else { 0 };
        self.lent.insert(self.next, lent);
        Reply::Array(vec![
            Reply::simple(mark),
            Reply::Integer(self.next),
            Reply::Integer(place.pid.into()),
            Reply::Integer(place.fd.into()),
            Reply::Bulk(Bytes::copy_from_slice(&place.token)),
            Reply::count(located.offset),
            Reply::count(located.len),
        ])
    }

    /// The connection is gone.
    pub(crate) fn end(&mut self, hub: &Hub) {
        let taken: u64 = self.taken.values().map(|region| region.len() as u64).sum();
        hub.arrived(taken);
        hub.copy_returned(std::mem::take(&mut self.copies) as u64);
        if let Some(spill) = hub.spill() {
            let lent = self.lent.values().filter(|lent| !lent.is_copy);
            lent.for_each(|lent| spill.on_returned(&lent.bytes));
        }
        self.retire();
    }

    fn retire(&mut self) {
        std::mem::take(&mut self.taken).values().for_each(|region| retire(region));
        std::mem::take(&mut self.lent).values().for_each(|lent| retire(&lent.bytes));
    }
}

/// However a connection ends: what its client has mapped is not written again.
impl Drop for Sharing {
    fn drop(&mut self) {
        self.retire();
    }
}

fn versions(hub: &Hub) -> Reply {
    match hub.key_versions() {
        Ok(place) => Reply::Array(vec![
            Reply::Integer(place.pid.into()),
            Reply::Integer(place.fd.into()),
            Reply::Bulk(Bytes::copy_from_slice(&place.token)),
            Reply::Integer(i64::try_from(place.len).unwrap_or(i64::MAX)),
        ]),
        Err(error) => Reply::error(format!("ERR there is no memory to share: {error}")),
    }
}

/// Memory of the pool for a large value that comes over a socket, so that it can be lent without a copy and its pages
/// are there already.
pub(crate) fn memory_for(len: usize) -> Option<Box<dyn BulkMemory>> {
    let region = if !(WORTH_SHARING..=LONGEST_KEPT).contains(&len) {
        None
    } else if len <= LONGEST_MADE {
        take(len).ok()
    } else {
        take_kept(len)
    };
    region.map(|region| Box::new(Arriving(region)) as Box<dyn BulkMemory>)
}

#[derive(Debug)]
struct Arriving(Region);

impl BulkMemory for Arriving {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn freeze(self: Box<Self>) -> Bytes {
        self.0.freeze()
    }
}

fn number(bytes: &Bytes) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
