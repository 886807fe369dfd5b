use super::blocking::Waiting;
use super::change::Change;
use super::commands::{self, Call, Command, Flags, Handler};
use super::database::Database;
use super::effects::Effects;
use super::error::CommandError;
use super::model_call::{ModelCall, RunStatistics};
use super::outcome::Outcome;
use super::pubsub::{Listeners, leave};
use super::repeats::Repeats;
use super::session::{ClientId, Ending, Origin, ReplyMode, Session};
use super::settings::{Parameters, Settings};
use super::shards::{ShardMap, ShardPlace};
use super::storage::StorageFacts;
use super::streams::{StreamRecordError, Streams};
use super::undo::Undo;
use super::value::Value;
use bytes::Bytes;
use phalanx_resp::{Reply, Version};
use phalanx_types::{Tensor, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many keys that have ended are removed in one go.
const EXPIRE_AT_ONCE: usize = 1000;

/// Counts of what happened, for `INFO`.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) commands: u64,
    pub(crate) connections: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) errors: u64,
    pub(crate) out_of_memory: u64,
    pub(crate) repeated_appends: u64,
    /// Values that were on disk when clients read them, and the bytes that were read.
    pub(crate) read_back: u64,
    pub(crate) read_back_bytes: u64,
}

/// What a command does with keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// It may change them.
    Write,
    /// Its reply or its messages may tell of them.
    Read,
    /// It has nothing to do with them.
    Other,
}

/// The whole store: keys and values, and everything known of its clients.
#[derive(Debug)]
pub struct Keyspace {
    pub(crate) settings: Settings,
    pub(crate) parameters: Parameters,
    pub(crate) commands: Vec<&'static Command>,
    /// The command that was found last.
    recent: Option<&'static Command>,
    pub(crate) database: Database,
    pub(crate) sessions: BTreeMap<ClientId, Session>,
    pub(crate) waiting: Waiting,
    pub(crate) listeners: Listeners,
    pub(crate) repeats: Repeats,
    pub(crate) streams: Streams,
    pub(crate) statistics: Statistics,
    pub(crate) runs: BTreeMap<Bytes, RunStatistics>,
    /// The other nodes of a store that several share.
    pub(crate) shards: Option<ShardMap>,
    pub(crate) model_chunk_size: i64,
    pub(crate) began: Time,
    pub(crate) last_save: Time,
    pub(crate) draws: u64,
    pub(crate) storage: StorageFacts,
    /// Bytes that are on their way into the store.
    pub(crate) arriving: u64,
}

impl Keyspace {
    /// An empty store.
    pub fn new(now: Time, settings: Settings) -> Self {
        let mut database = Database::new(settings.seed, settings.record_changes);
        if settings.spill {
            database.allow_spilling();
        }
        Self {
            database,
            parameters: Parameters::default(),
            commands: commands::sorted(),
            recent: None,
            sessions: BTreeMap::new(),
            waiting: Waiting::default(),
            listeners: Listeners::default(),
            repeats: Repeats::default(),
            streams: Streams::default(),
            statistics: Statistics::default(),
            runs: BTreeMap::new(),
            shards: None,
            model_chunk_size: 511 << 20,
            began: now,
            last_save: now,
            draws: 0,
            storage: StorageFacts::default(),
            arriving: 0,
            settings,
        }
    }

    /// Takes note of the nodes that share the store.
    pub fn set_shards(&mut self, shards: ShardMap) {
        self.shards = Some(shards);
    }

    /// The part of a shared store that this one has, if there is a key that is not of it.
    pub(crate) fn place_without_key(&self) -> Option<ShardPlace> {
        let shards = self.shards.as_ref()?;
        let mut keys = self.database.table().iter();
        keys.any(|(key, _)| !shards.is_own_part(key)).then(|| shards.own())
    }

    /// A client is there.
    pub fn connect(&mut self, now: Time, client: ClientId, origin: Origin) {
        let authenticated = origin.trusted || self.settings.password.is_none();
        self.statistics.connections += 1;
        self.sessions.insert(client, Session::new(now, origin, authenticated));
    }

    /// Whether a client may do more than authenticate.
    pub fn is_authenticated(&self, client: ClientId) -> bool {
        self.sessions.get(&client).is_some_and(|session| session.authenticated)
    }

    /// A client has left, though commands of it may still have to be carried out: it will not see their replies.
    pub fn leave(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.left = true;
        }
    }

    /// A client is gone.
    pub fn disconnect(&mut self, now: Time, client: ClientId, ending: Ending) {
        self.unblock(client);
        self.streams.depart(client);
        let Some(session) = self.sessions.remove(&client) else { return };
        for channel in &session.channels {
            leave(&mut self.listeners.channels, channel, client);
        }
        for pattern in &session.patterns {
            leave(&mut self.listeners.patterns, pattern, client);
        }
        if let Some(append) = session.appended.filter(|_| ending == Ending::Unanswered) {
            self.repeats.remember(now, append);
        }
    }

    /// The bytes that all keys and values take.
    pub fn used(&self) -> u64 {
        self.database.used()
    }

    /// How many keys there are.
    pub fn keys_held(&self) -> usize {
        self.database.table().len()
    }

    /// What orders keys and fields.
    pub fn seed(&self) -> u64 {
        self.settings.seed
    }

    /// The most that they may take; 0 for no limit.
    pub fn max_memory(&self) -> u64 {
        self.settings.max_memory
    }

    /// When [`Self::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        let streams = self.streams.next_deadline();
        [self.database.next_expiry(), self.waiting.next_deadline(), streams].into_iter().flatten().min()
    }

    /// Removes keys that have ended, and answers clients that waited long enough.
    pub fn tick(&mut self, now: Time, out: &mut Effects) {
        self.database.expire(now, EXPIRE_AT_ONCE);
        self.expire_waits(now, out);
        self.serve_room(out);
        self.tick_streams(now, out);
        self.database.drain(out);
    }

    /// From now on every command says which keys it changed.
    pub fn note_touched(&mut self) {
        self.database.note_touched();
    }

    /// Does what a recorded change says, to rebuild what was there.
    ///
    /// # Errors
    /// It is a record of a stream that does not follow those before it.
    pub fn apply(&mut self, change: &Change) -> Result<(), StreamRecordError> {
        match change {
            Change::Stream { name, record } => self.streams.apply(name, record)?,
            Change::Clear => self.streams = Streams::default(),
            _ => {}
        }
        self.database.apply(change);
        self.database.drain(&mut Effects::default());
        Ok(())
    }

    /// Takes back what [`Effects::undo`] says of commands that could not be recorded, the last one first.
    ///
    /// A client that repeats an append that was taken back must find it carried out then.
    pub fn undo(&mut self, steps: Vec<Undo>) {
        self.database.undo(steps);
        self.database.drain(&mut Effects::default());
        self.repeats = Repeats::default();
        self.sessions.values_mut().for_each(|session| session.appended = None);
    }

    /// Changes that rebuild everything that is held now. Values are shared, not copied.
    pub fn snapshot_changes(&self) -> Vec<Change> {
        let put = |(key, entry): (&Bytes, &super::database::Entry)| Change::Put {
            key: key.clone(),
            value: entry.value.clone(),
            expires: entry.expires,
        };
        self.database.table().iter().map(put).chain(self.streams.snapshot()).collect()
    }

    /// What the command with these arguments does with keys and values.
    pub fn kind_of(&self, args: &[Bytes]) -> CommandKind {
        let command = args.first().and_then(|name| self.find(name));
        match command {
            Some(command) if command.flags.contains(Flags::WRITE) => CommandKind::Write,
            Some(command) if command.flags.contains(Flags::READ) || command.name == "publish" => {
                CommandKind::Read
            }
            Some(_) | None => CommandKind::Other,
        }
    }

    /// Everything held is on disk as of this time.
    pub fn saved(&mut self, at: Time) {
        self.last_save = at;
    }

    /// What is on disk, for `INFO`.
    pub fn set_storage(&mut self, storage: StorageFacts) {
        self.storage = storage;
    }

    /// Whether both hold the same keys with the same values and ends.
    pub fn same_data(&self, other: &Keyspace) -> bool {
        self.database.table() == other.database.table()
    }

    /// Carries out a command of a client.
    pub fn execute(&mut self, now: Time, client: ClientId, args: &[Bytes], out: &mut Effects) -> Outcome {
        self.statistics.commands += 1;
        let result = self.dispatch(now, client, args, out);
        self.settle_streams(now, out);
        self.serve_waiting(now, out);
        self.serve_room(out);
        self.database.drain(out);
        let outcome = result.unwrap_or_else(|error| {
            self.statistics.errors += 1;
            Outcome::Reply(error.into())
        });
        self.muted(client, outcome)
    }

    fn dispatch(
        &mut self,
        now: Time,
        client: ClientId,
        args: &[Bytes],
        out: &mut Effects,
    ) -> Result<Outcome, CommandError> {
        let Some(name) = args.first() else { return Err(CommandError::Syntax) };
        // Clients often send the same command again and again.
        let known = self.recent.filter(|command| command.name.as_bytes().eq_ignore_ascii_case(name));
        let Some(command) = known.or_else(|| self.find(name)) else { return Err(commands::unknown(args)) };
        self.recent = Some(command);
        if !command.takes(args.len()) {
            return Err(CommandError::Arity(command.name.to_owned()));
        }
        let Some(session) = self.sessions.get_mut(&client) else { return Err(CommandError::NoClient) };
        session.active = now;
        session.command = command.name;
        session.appended = None;
        if !session.authenticated && !command.flags.contains(Flags::NO_AUTH) {
            return Err(CommandError::NoAuth);
        }
        let listening = session.version == Version::Resp2 && session.subscriptions() > 0;
        if listening && !command.flags.contains(Flags::LISTENING) {
            return Err(CommandError::Subscribed(command.name));
        }
        if command.flags.contains(Flags::DENY_OOM) {
            self.admit(args)?;
        }
        let mut call = Call { store: self, now, client, args, out };
        let outcome = match command.handler {
            Handler::Reply(handler) => handler(&mut call).map(Outcome::Reply),
            Handler::Outcome(handler) => handler(&mut call),
        };
        if command.flags.contains(Flags::WRITE) && self.waiting.count_keys() > 0 {
            command.keys_of(args).for_each(|key| self.written(key));
        }
        outcome
    }

    /// Whether the store may grow by what a command brings.
    fn admit(&mut self, args: &[Bytes]) -> Result<(), CommandError> {
        let brought: u64 = args.iter().map(|arg| arg.len() as u64).sum();
        self.admit_bytes(brought)
    }

    pub(crate) fn admit_bytes(&mut self, brought: u64) -> Result<(), CommandError> {
        let limit = self.settings.max_memory;
        if limit == 0 || self.resident().saturating_add(brought) <= limit {
            return Ok(());
        }
        self.statistics.out_of_memory += 1;
        Err(CommandError::OutOfMemory)
    }

    /// Finds a command by its name in any case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let mut lower = [0u8; 24];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let at = self.commands.binary_search_by(|command| command.name.as_bytes().cmp(lower)).ok()?;
        self.commands.get(at).copied()
    }

    /// Leaves out the reply when the client wants none.
    fn muted(&mut self, client: ClientId, outcome: Outcome) -> Outcome {
        let Some(session) = self.sessions.get_mut(&client) else { return outcome };
        match session.replies {
            ReplyMode::On => outcome,
            ReplyMode::SkipNext => {
                session.replies = ReplyMode::Skip;
                Outcome::Silent
            }
            ReplyMode::Skip => {
                session.replies = ReplyMode::On;
                silent(outcome)
            }
            ReplyMode::Off => silent(outcome),
        }
    }

    /// Takes the result of a model that was run.
    pub fn finish(
        &mut self,
        now: Time,
        call: &ModelCall,
        result: Result<Vec<Tensor>, String>,
        out: &mut Effects,
    ) -> Reply {
        let samples = call.inputs.first().and_then(|input| input.shape().first().copied()).unwrap_or(1);
        let stored = result.map_err(CommandError::Run).and_then(|outputs| self.store_outputs(call, outputs));
        if let Some(run) = self.runs.get_mut(&call.key) {
            run.calls += 1;
            run.duration += now.since(call.began);
            match stored {
                Ok(()) => run.samples += samples,
                Err(_) => run.errors += 1,
            }
        }
        self.serve_waiting(now, out);
        self.database.drain(out);
        match stored {
            Ok(()) => Reply::OK,
            Err(error) => error.into(),
        }
    }

    fn store_outputs(&mut self, call: &ModelCall, outputs: Vec<Tensor>) -> Result<(), CommandError> {
        if outputs.len() != call.outputs.len() {
            return Err(CommandError::OutputCount);
        }
        self.admit_bytes(outputs.iter().map(|output| output.data().len() as u64).sum())?;
        for (key, output) in call.outputs.iter().zip(outputs) {
            self.database.put(key, Value::Tensor(Arc::new(output)), None);
            self.written(key);
        }
        Ok(())
    }

    /// The next number of a seeded sequence.
    pub(crate) fn draw(&mut self) -> u64 {
        self.draws += 1;
        phalanx_types::Seed(self.settings.seed ^ self.draws).derive("draw").0
    }

    /// Answers a command whose large argument was refused before it arrived.
    pub fn refuse(&mut self, args: &[Bytes]) -> Reply {
        self.statistics.commands += 1;
        self.statistics.out_of_memory += 1;
        let known = args.first().is_some_and(|name| self.find(name).is_some());
        if known { CommandError::OutOfMemory.into() } else { commands::unknown(args).into() }
    }
}

/// Waiting and closing happen for clients without replies, too.
fn silent(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Reply(_) | Outcome::Replies(_) => Outcome::Silent,
        other => other,
    }
}
