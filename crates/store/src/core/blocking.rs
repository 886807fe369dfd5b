//! Clients that wait for an element of a list.

use super::change::Change;
use super::effects::Effects;
use super::error::CommandError;
use super::keyspace::Keyspace;
use super::session::ClientId;
use super::table::owned;
use super::value::{Side, Value};
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_types::Time;
use std::collections::{BTreeMap, BTreeSet};

/// What a waiting client wants to happen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wanted {
    /// Take an element.
    Pop(Side),
    /// Take an element and put it into another list.
    Move { from: Side, to: Side, destination: Bytes },
    /// Be told when the key is so.
    Told(Condition),
    /// Be told when there is memory for this many bytes.
    Room(u64),
}

/// What a client waits for without taking anything.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Condition {
    /// The key exists.
    Exists,
    /// The key is a hash with this field.
    Field(Bytes),
    /// The key is a list of at least this length.
    Length(u64),
}

impl Condition {
    pub(crate) fn holds(&self, value: Option<&Value>) -> bool {
        match (self, value) {
            (_, None) => false,
            (Condition::Exists, Some(_)) => true,
            (Condition::Field(field), Some(Value::Hash(hash))) => hash.get(field).is_some(),
            (Condition::Length(wanted), Some(Value::List(list))) => list.items().len() as u64 >= *wanted,
            (Condition::Field(_) | Condition::Length(_), Some(_)) => false,
        }
    }
}

impl Wanted {
    /// The reply when the time is up.
    pub(crate) fn nothing(&self) -> Reply {
        match self {
            Wanted::Pop(_) => Reply::NullArray,
            Wanted::Move { .. } | Wanted::Told(_) | Wanted::Room(_) => Reply::Null,
        }
    }
}

/// Why a client waits.
#[derive(Debug)]
pub(crate) struct Blocked {
    ticket: u64,
    keys: Vec<Bytes>,
    wanted: Wanted,
    until: Option<Time>,
}

/// The clients that wait, for each key in the order in which they began to.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    next_ticket: u64,
    by_key: BTreeMap<Bytes, BTreeMap<u64, ClientId>>,
    deadlines: BTreeSet<(Time, ClientId)>,
    /// The clients that wait for memory, in the order in which they began to.
    rooms: BTreeMap<u64, (ClientId, u64)>,
    /// Lists that got elements while clients wait for them.
    ready: Vec<Bytes>,
}

impl Waiting {
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// How many keys clients wait for.
    pub(crate) fn count_keys(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn count(&self) -> usize {
        self.by_key.values().flat_map(BTreeMap::values).collect::<BTreeSet<_>>().len() + self.rooms.len()
    }

    /// Whether clients wait for memory.
    pub(crate) fn has_rooms(&self) -> bool {
        !self.rooms.is_empty()
    }

    fn forget(&mut self, client: ClientId, blocked: &Blocked) {
        self.rooms.remove(&blocked.ticket);
        for key in &blocked.keys {
            if let Some(queue) = self.by_key.get_mut(key) {
                queue.remove(&blocked.ticket);
                if queue.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        if let Some(until) = blocked.until {
            self.deadlines.remove(&(until, client));
        }
    }
}

impl Keyspace {
    /// Makes a client wait until one of the lists has an element.
    pub(crate) fn block(&mut self, client: ClientId, keys: &[Bytes], wanted: Wanted, until: Option<Time>) {
        let ticket = self.waiting.next_ticket;
        self.waiting.next_ticket += 1;
        let keys: Vec<_> = keys.iter().map(owned).collect();
        for key in &keys {
            self.waiting.by_key.entry(key.clone()).or_default().insert(ticket, client);
        }
        if let Some(until) = until {
            self.waiting.deadlines.insert((until, client));
        }
        if let Wanted::Room(bytes) = wanted {
            self.waiting.rooms.insert(ticket, (client, bytes));
        }
        if let Some(session) = self.sessions.get_mut(&client) {
            session.blocked = Some(Blocked { ticket, keys, wanted, until });
        }
    }

    /// Ends a wait; says what was wanted.
    pub(crate) fn unblock(&mut self, client: ClientId) -> Option<Wanted> {
        let blocked = self.sessions.get_mut(&client)?.blocked.take()?;
        self.waiting.forget(client, &blocked);
        Some(blocked.wanted)
    }

    /// Notes that a key was written, for clients that wait.
    pub(crate) fn written(&mut self, key: &Bytes) {
        if self.waiting.by_key.contains_key(key) {
            self.waiting.ready.push(key.clone());
        }
    }

    /// Gives elements to the clients that wait for them, the longest waiting first.
    pub(crate) fn serve_waiting(&mut self, now: Time, out: &mut Effects) {
        while let Some(key) = self.waiting.ready.pop() {
            while let Some(client) = self.next_served(now, &key) {
                let Some(wanted) = self.unblock(client) else { break };
                let reply = self.take_element(now, &key, &wanted);
                out.messages.push((client, reply));
            }
        }
    }

    /// The client that has waited longest for what the key now has.
    fn next_served(&mut self, now: Time, key: &Bytes) -> Option<ClientId> {
        let value = self.database.get(now, key);
        let queue = self.waiting.by_key.get(key)?;
        let is_served = |client: &ClientId| {
            let blocked = self.sessions.get(client).and_then(|session| session.blocked.as_ref());
            blocked.is_some_and(|blocked| match &blocked.wanted {
                Wanted::Told(condition) => condition.holds(value),
                Wanted::Pop(_) | Wanted::Move { .. } => matches!(value, Some(Value::List(_))),
                Wanted::Room(_) => false,
            })
        };
        queue.values().find(|client| is_served(client)).copied()
    }

    /// Does what a client waited for. The list has an element.
    pub(crate) fn take_element(&mut self, now: Time, key: &Bytes, wanted: &Wanted) -> Reply {
        match wanted {
            Wanted::Told(_) | Wanted::Room(_) => Reply::Integer(1),
            Wanted::Pop(side) => {
                let item = self.pop(key, *side);
                Reply::Array(vec![Reply::Bulk(owned(key)), Reply::optional(item)])
            }
            Wanted::Move { from, to, destination } => {
                match self.move_element(now, key, destination, *from, *to) {
                    Ok(item) => Reply::optional(item),
                    Err(error) => error.into(),
                }
            }
        }
    }

    pub(crate) fn pop(&mut self, key: &Bytes, side: Side) -> Option<Bytes> {
        let change = || Change::Pop { key: owned(key), side, count: 1 };
        self.database.edit_list(key, change, |list| list.pop(side))
    }

    /// Answers the clients whose time is up.
    pub(crate) fn expire_waits(&mut self, now: Time, out: &mut Effects) {
        while let Some((_, client)) = self.waiting.deadlines.first().filter(|(at, _)| *at <= now).copied() {
            let Some(wanted) = self.unblock(client) else {
                self.waiting.deadlines.pop_first();
                continue;
            };
            let reply = match wanted {
                Wanted::Room(bytes) => self.why_full(bytes).into(),
                wanted => wanted.nothing(),
            };
            out.messages.push((client, reply));
        }
    }

    /// Whether the store may grow by this many bytes.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.room().is_none_or(|room| bytes <= room)
    }

    /// The bytes by which the store may grow; none without a limit.
    fn room(&self) -> Option<u64> {
        let limit = self.settings.max_memory;
        (limit > 0).then(|| limit.saturating_sub(self.resident().saturating_add(self.arriving)))
    }

    /// Says what holds the memory.
    pub(crate) fn why_full(&self, bytes: u64) -> CommandError {
        let (resident, limit, keys) = (self.resident(), self.settings.max_memory, self.keys_held());
        let mut text = format!(
            "there is no room for {bytes} bytes: {keys} keys hold {resident} of {limit} bytes in memory, {} arrive",
            self.arriving
        );
        if self.settings.spill {
            let spilled = self.database.away();
            text.push_str(&format!(", {spilled} are on disk"));
        }
        if let Some(spill) = &self.storage.spill {
            text.push_str(&format!(", the spill holds {} of {}", spill.file_bytes, spill.limit_bytes));
            if let Some(error) = &spill.error {
                text.push_str(&format!(" and takes no more: {error}"));
            }
        }
        CommandError::NoRoom(text)
    }

    /// This many bytes are on their way into the store. Says whether clients wait for memory.
    pub fn set_arriving(&mut self, bytes: u64) -> bool {
        self.arriving = bytes;
        self.waiting.has_rooms()
    }

    /// Tells clients that wait for memory that there is some, the longest waiting first.
    pub fn serve_room(&mut self, out: &mut Effects) {
        if !self.waiting.has_rooms() {
            return;
        }
        let Some(mut room) = self.room() else { return };
        while let Some((_, (client, bytes))) = self.waiting.rooms.first_key_value() {
            let (client, bytes) = (*client, *bytes);
            if bytes > room {
                return;
            }
            room -= bytes;
            if self.unblock(client).is_none() {
                self.waiting.rooms.pop_first();
                continue;
            }
            out.messages.push((client, Reply::Integer(1)));
        }
    }
}
