//! The commands, a file for each family.

mod client;
mod cluster;
mod config;
mod connection;
mod counters;
mod expiry;
mod hashes;
mod keys;
mod lists;
mod lists_blocking;
mod models;
mod pubsub;
mod room;
mod scan;
mod scripts;
mod server;
mod streams;
mod streams_produce;
mod streams_read;
mod strings;
mod tensors;
mod waits;

use super::effects::Effects;
use super::error::CommandError;
use super::keyspace::Keyspace;
use super::outcome::Outcome;
use super::session::ClientId;
use super::value::Value;
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_types::Time;

/// What is special about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    pub(crate) const READ: Flags = Flags(1);
    pub(crate) const WRITE: Flags = Flags(2);
    /// Refused when the store is full.
    pub(crate) const DENY_OOM: Flags = Flags(4);
    /// Allowed before the password.
    pub(crate) const NO_AUTH: Flags = Flags(8);
    /// Allowed to clients that listen to channels.
    pub(crate) const LISTENING: Flags = Flags(16);
    pub(crate) const BLOCKING: Flags = Flags(32);
    pub(crate) const ADMIN: Flags = Flags(64);
    /// Neither reads nor writes keys.
    pub(crate) const OTHER: Flags = Flags(0);
    /// Writes, and makes the store larger.
    pub(crate) const GROW: Flags = Flags::WRITE.and(Flags::DENY_OOM);

    pub(crate) const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    pub(crate) fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names that `COMMAND` gives.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let names = [
            (Flags::READ, "readonly"),
            (Flags::WRITE, "write"),
            (Flags::DENY_OOM, "denyoom"),
            (Flags::NO_AUTH, "no_auth"),
            (Flags::LISTENING, "pubsub"),
            (Flags::BLOCKING, "blocking"),
            (Flags::ADMIN, "admin"),
        ];
        names.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }
}

/// The function of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Handler {
    /// Always answers at once.
    Reply(fn(&mut Call<'_>) -> Result<Reply, CommandError>),
    /// May wait, close, or answer several times.
    Outcome(fn(&mut Call<'_>) -> Result<Outcome, CommandError>),
}

/// Where the keys are among the arguments: first, last (negative from the end), step. All 0 without keys.
pub(crate) type KeyPlaces = (i8, i8, i8);

const NO_KEYS: KeyPlaces = (0, 0, 0);
const ONE_KEY: KeyPlaces = (1, 1, 1);
const TWO_KEYS: KeyPlaces = (1, 2, 1);
const ALL_KEYS: KeyPlaces = (1, -1, 1);

/// A command.
#[derive(Debug)]
pub(crate) struct Command {
    /// In lower case.
    pub(crate) name: &'static str,
    /// The number of arguments with the name; negative for a least number.
    pub(crate) arity: i8,
    pub(crate) flags: Flags,
    pub(crate) keys: KeyPlaces,
    pub(crate) handler: Handler,
}

impl Command {
    const fn new(
        name: &'static str,
        arity: i8,
        flags: Flags,
        keys: KeyPlaces,
        handler: fn(&mut Call<'_>) -> Result<Reply, CommandError>,
    ) -> Self {
        Self { name, arity, flags, keys, handler: Handler::Reply(handler) }
    }

    const fn with_outcome(
        name: &'static str,
        arity: i8,
        flags: Flags,
        keys: KeyPlaces,
        handler: fn(&mut Call<'_>) -> Result<Outcome, CommandError>,
    ) -> Self {
        Self { name, arity, flags, keys, handler: Handler::Outcome(handler) }
    }

    /// The keys among the arguments.
    pub(crate) fn keys_of<'a>(&self, args: &'a [Bytes]) -> impl Iterator<Item = &'a Bytes> {
        let (first, last, step) = self.keys;
        let end = if last < 0 {
            args.len().saturating_sub(usize::from(last.unsigned_abs()) - 1)
        } else {
            last as usize + 1
        };
        let keys = if first > 0 { args.get(first as usize..end.min(args.len())) } else { None };
        keys.unwrap_or_default().iter().step_by((step as usize).max(1))
    }

    /// The keys among the arguments, each with what belongs to it.
    pub(crate) fn key_groups(&self, args: &[Bytes]) -> Vec<Vec<Bytes>> {
        let (first, step) = (self.keys.0.max(0) as usize, (self.keys.2 as usize).max(1));
        let count = self.keys_of(args).count();
        let group = |number: usize| args.get(first + number * step..first + (number + 1) * step);
        (0..count).map(|number| group(number).unwrap_or_default().to_vec()).collect()
    }

    /// Whether it may wait.
    pub(crate) fn is_blocking(&self) -> bool {
        self.flags.contains(Flags::BLOCKING)
    }

    pub(crate) fn takes(&self, args: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { args >= wanted } else { args == wanted }
    }
}

/// All commands.
fn all() -> impl Iterator<Item = &'static Command> {
    let families: [&'static [Command]; 20] = [
        client::COMMANDS,
        cluster::COMMANDS,
        config::COMMANDS,
        connection::COMMANDS,
        counters::COMMANDS,
        expiry::COMMANDS,
        hashes::COMMANDS,
        keys::COMMANDS,
        lists::COMMANDS,
        lists_blocking::COMMANDS,
        models::COMMANDS,
        pubsub::COMMANDS,
        room::COMMANDS,
        scan::COMMANDS,
        scripts::COMMANDS,
        server::COMMANDS,
        streams::COMMANDS,
        strings::COMMANDS,
        tensors::COMMANDS,
        waits::COMMANDS,
    ];
    families.into_iter().flatten()
}

/// All commands by name.
pub(crate) fn sorted() -> Vec<&'static Command> {
    let mut all: Vec<_> = all().collect();
    all.sort_unstable_by_key(|command| command.name);
    all
}

/// Whether the command with these arguments makes the store larger, and is refused when there is no room.
pub fn grows(args: &[Bytes]) -> bool {
    let Some(name) = args.first() else { return false };
    let found = all().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name));
    found.is_some_and(|command| command.flags.contains(Flags::DENY_OOM))
}

/// The error for a command that is not known, with the first of its arguments as Redis shows them.
pub(crate) fn unknown(args: &[Bytes]) -> CommandError {
    let shown = |bytes: &Bytes, most: usize| bytes.get(..most).unwrap_or(bytes).escape_ascii().to_string();
    let mut rest = String::new();
    for arg in args.iter().skip(1) {
        // All of them together are cut, the last one where the others have left room.
        match 128usize.saturating_sub(rest.len()) {
            0 => break,
            left => rest.push_str(&format!("'{}' ", shown(arg, left))),
        }
    }
    let name = args.first().map(|name| shown(name, 128)).unwrap_or_default();
    CommandError::UnknownCommand { name, args: rest }
}

/// One command on its way through the store.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) store: &'a mut Keyspace,
    pub(crate) now: Time,
    pub(crate) client: ClientId,
    /// The name of the command and its arguments; at least as many as its arity says.
    pub(crate) args: &'a [Bytes],
    pub(crate) out: &'a mut Effects,
}

static EMPTY: Bytes = Bytes::new();

impl<'a> Call<'a> {
    /// An argument; empty when there is none.
    pub(crate) fn arg(&self, n: usize) -> &'a Bytes {
        self.args.get(n).unwrap_or(&EMPTY)
    }

    /// The arguments from the `n`-th on.
    pub(crate) fn rest(&self, n: usize) -> &'a [Bytes] {
        self.args.get(n..).unwrap_or_default()
    }

    /// The value of a key, counted as a hit or a miss.
    pub(crate) fn read(&mut self, key: &Bytes) -> Option<&Value> {
        let found = self.store.database.get(self.now, key);
        match found {
            Some(_) => self.store.statistics.hits += 1,
            None => self.store.statistics.misses += 1,
        }
        found
    }

    /// The value of a key that is a string.
    pub(crate) fn string(&mut self, key: &Bytes) -> Result<Option<Bytes>, CommandError> {
        match self.read(key) {
            None => Ok(None),
            Some(Value::String(bytes)) => Ok(Some(bytes.clone())),
            Some(_) => Err(CommandError::WrongType),
        }
    }

    pub(crate) fn unknown_subcommand(&self) -> CommandError {
        let shown = |bytes: &Bytes| bytes.get(..128).unwrap_or(bytes).escape_ascii().to_string();
        CommandError::UnknownSubcommand(shown(self.arg(1)), shown(self.arg(0)).to_uppercase())
    }

    /// The error for a subcommand with a wrong number of arguments.
    pub(crate) fn subcommand_arity(&self) -> CommandError {
        let shown = |bytes: &Bytes| bytes.escape_ascii().to_string().to_lowercase();
        CommandError::Arity(format!("{}|{}", shown(self.arg(0)), shown(self.arg(1))))
    }
}
