mod room;

use super::clock::Clock;
use super::executed::Executed;
use super::key_versions::KeyVersions;
use super::long_replies::LongReplies;
use super::mailbox::{MailReader, Mailbox, mailbox};
use super::model_run::ModelRunner;
use super::persist::{Event, Persistence, RecordNumber, Recorder};
use super::shards::{ShardConfig, Shards};
use super::spill::SpillLink;
use crate::core::{
    ClientId, CommandKind, Effects, Ending, FoundTensor, Keyspace, ModelCall, NodeRequest, Origin, Outcome,
    Save, ShardMember, StorageFacts,
};
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_streams::StreamWait;
use phalanx_types::{Tensor, Time};
use phalanx_wire::bulk::SharedPlace;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, watch};

pub(super) struct Shared {
    pub(super) keyspace: Keyspace,
    pub(super) mailboxes: BTreeMap<ClientId, Mailbox>,
    /// Counts up with every change of a key, once a client wants to see it.
    versions: Option<KeyVersions>,
    /// With persistence, until the server has ended.
    pub(super) recorder: Option<Recorder>,
    /// There was a journal, and it is closed.
    pub(super) is_closed: bool,
    /// When the housekeeping will look next.
    armed: Time,
}

/// What of a store is on disk.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) persistence: Option<(Arc<Persistence>, Recorder)>,
    pub(crate) spill: Option<Arc<SpillLink>>,
}

/// What all threads of a server share: the keyspace under its lock, and ways to its clients.
pub(crate) struct Hub {
    shared: Mutex<Shared>,
    pub(super) clock: Clock,
    persistence: Option<Arc<Persistence>>,
    spill: Option<Arc<SpillLink>>,
    runner: Option<Arc<dyn ModelRunner>>,
    next_client: AtomicU64,
    clients: AtomicUsize,
    max_clients: usize,
    unsent: usize,
    /// Copies of numbers of the keyspace, for looking without the lock.
    used: AtomicU64,
    limit: AtomicU64,
    /// Bytes of large arguments that have been announced and are not yet in the keyspace.
    arriving: AtomicU64,
    /// Bytes of copies that are lent to clients.
    copies: AtomicU64,
    /// Clients wait until there is room in memory.
    waits_for_room: AtomicBool,
    warned_of_save: AtomicBool,
    /// Other nodes that share the store, if any.
    shards: OnceLock<Shards>,
    /// Carries out what streams want of the other nodes.
    requests: OnceLock<UnboundedSender<NodeRequest>>,
    /// Where clients of this host take turns at long replies.
    long_replies: OnceLock<Arc<LongReplies>>,
    housekeeping: Notify,
    stop: watch::Sender<bool>,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("used", &self.used)
            .field("clients", &self.clients)
            .finish_non_exhaustive()
    }
}

impl Hub {
    pub(crate) fn new(
        (keyspace, clock): (Keyspace, Clock),
        disk: Disk,
        runner: Option<Arc<dyn ModelRunner>>,
        max_clients: usize,
        unsent: usize,
    ) -> Self {
        let limit = AtomicU64::new(keyspace.max_memory());
        let used = AtomicU64::new(keyspace.resident());
        let Disk { persistence, spill } = disk;
        let (persistence, recorder) = persistence.unzip();
        Self {
            shared: Mutex::new(Shared {
                keyspace,
                mailboxes: BTreeMap::new(),
                versions: None,
                recorder,
                is_closed: false,
                armed: Time::NEVER,
            }),
            clock,
            persistence,
            spill,
            runner,
            next_client: AtomicU64::new(1),
            clients: AtomicUsize::new(0),
            max_clients,
            unsent,
            used,
            limit,
            arriving: AtomicU64::new(0),
            copies: AtomicU64::new(0),
            waits_for_room: AtomicBool::new(false),
            warned_of_save: AtomicBool::new(false),
            shards: OnceLock::new(),
            requests: OnceLock::new(),
            long_replies: OnceLock::new(),
            housekeeping: Notify::new(),
            stop: watch::Sender::new(false),
        }
    }

    /// A hub for tests of other modules.
    #[cfg(test)]
    pub(crate) fn in_memory(settings: crate::core::Settings) -> Self {
        let clock = Clock::new();
        Self::new((Keyspace::new(clock.now(), settings), clock), Disk::default(), None, 10, 1 << 20)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The other nodes that share the store.
    pub(crate) fn shards(&self) -> Option<&Shards> {
        self.shards.get()
    }

    pub(crate) fn long_replies(&self) -> Option<&Arc<LongReplies>> {
        self.long_replies.get()
    }

    /// Has clients of this host take turns at long replies, this many at a time.
    pub(crate) fn send_in_turn(&self, places: usize) {
        self.long_replies.get_or_init(|| Arc::new(LongReplies::new(places)));
    }

    /// Makes this a part of a store that several nodes share.
    pub(crate) fn share_out(&self, config: ShardConfig) {
        let shards = self.shards.get_or_init(|| Shards::new(config));
        self.lock().keyspace.set_shards(shards.map());
    }

    /// What streams want of the other nodes, from now on.
    pub(crate) fn node_requests(&self) -> UnboundedReceiver<NodeRequest> {
        let (sender, receiver) = mpsc::unbounded_channel();
        // A server asks for it once.
        let _first = self.requests.set(sender);
        receiver
    }

    pub(crate) fn wants_description(&self, stream: &Bytes, base: &Bytes) -> bool {
        self.lock().keyspace.wants_description(stream, base)
    }

    /// Another node has described a dataset that a stream is going to count.
    pub(crate) fn described(
        &self,
        stream: &Bytes,
        base: &Bytes,
        tensors: Vec<FoundTensor>,
        effects: &mut Effects,
    ) {
        self.feed(effects, |keyspace, now, effects| {
            keyspace.on_described(now, stream, base, tensors, effects);
        });
    }

    /// Another node has not described a dataset so far.
    pub(crate) fn undescribed(&self, stream: &Bytes, base: &Bytes, why: StreamWait, effects: &mut Effects) {
        self.feed(effects, |keyspace, now, effects| {
            keyspace.on_undescribed(now, stream, base, why, effects);
        });
    }

    /// Takes note of the nodes that share the store now.
    pub(crate) fn set_members(&self, members: Vec<ShardMember>) {
        if let Some(shards) = self.shards.get() {
            let map = shards.set_members(members);
            self.lock().keyspace.set_shards(map);
        }
    }

    pub(crate) fn runner(&self) -> Option<Arc<dyn ModelRunner>> {
        self.runner.clone()
    }

    /// Replies of a client may grow to this size before its requests wait.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent
    }

    /// Makes a client known; none when there are too many.
    pub(crate) fn connect(&self, origin: Origin) -> Option<Connected> {
        if self.clients.fetch_add(1, Ordering::Relaxed) >= self.max_clients {
            self.clients.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let client = ClientId(self.next_client.fetch_add(1, Ordering::Relaxed));
        let (mailbox, mail) = mailbox(self.unsent);
        let mut shared = self.lock();
        shared.keyspace.connect(self.clock.now(), client, origin);
        if *self.stop.borrow() {
            mailbox.close();
        }
        shared.mailboxes.insert(client, mailbox);
        let authenticated = shared.keyspace.is_authenticated(client);
        drop(shared);
        Some(Connected { client, mail, authenticated })
    }

    /// A client has closed its side.
    pub(crate) fn leave(&self, client: ClientId) {
        self.lock().keyspace.leave(client);
    }

    pub(crate) fn disconnect(&self, client: ClientId, ending: Ending) {
        let mut shared = self.lock();
        shared.keyspace.disconnect(self.clock.now(), client, ending);
        shared.mailboxes.remove(&client);
        self.rearm(&mut shared);
        drop(shared);
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }

    /// Carries out a command. Messages reach other clients in the order of the commands: they are sent under the lock.
    pub(crate) fn execute(&self, client: ClientId, args: &[Bytes], effects: &mut Effects) -> Executed {
        effects.clear();
        if self.persistence.is_some() || self.spill.is_some() {
            return self.execute_with_disk(client, args, effects);
        }
        let mut shared = self.lock();
        let outcome = shared.keyspace.execute(self.clock.now(), client, args, effects);
        self.deliver(&mut shared, effects, RecordNumber::NONE);
        self.rearm(&mut shared);
        drop(shared);
        self.after(effects);
        outcome.into()
    }

    /// The same, with a journal or a spill.
    fn execute_with_disk(&self, client: ClientId, args: &[Bytes], effects: &mut Effects) -> Executed {
        let adopted = self.persistence.as_ref().and_then(|persistence| persistence.adopt(args));
        let args = adopted.as_deref().unwrap_or(args);
        let mut shared = self.lock();
        let kind = shared.keyspace.kind_of(args);
        if let Some(refused) = shared.refusal(kind).filter(|_| shared.keyspace.is_authenticated(client)) {
            return Outcome::Reply(refused).into();
        }
        let tells =
            |name: &Bytes| [&b"info"[..], b"phalanx.room"].iter().any(|n| name.eq_ignore_ascii_case(n));
        if args.first().is_some_and(tells) {
            let persist = shared.recorder.as_ref().map(Recorder::facts);
            let spill = self.spill.as_ref().and_then(|spill| spill.facts());
            shared.keyspace.set_storage(StorageFacts { persist, spill });
        }
        let outcome = shared.keyspace.execute(self.clock.now(), client, args, effects);
        if let (Some(spill), Outcome::Reply(reply)) = (&self.spill, &outcome) {
            let read = spill.on_reply(reply);
            shared.keyspace.note_read_back(read.values, read.bytes);
        }
        let executed = shared.recorded(kind, outcome, effects);
        let told = executed.told;
        self.deliver(&mut shared, effects, told);
        self.rearm(&mut shared);
        drop(shared);
        if let Some(spill) = &self.spill {
            spill.trim_if_behind();
        }
        self.after(effects);
        executed
    }

    /// Stores what a model gave.
    pub(crate) fn finish(
        &self,
        call: &ModelCall,
        result: Result<Vec<Tensor>, String>,
        effects: &mut Effects,
    ) -> Executed {
        effects.clear();
        let result = match &self.persistence {
            Some(persistence) => result.map(|outputs| persistence.adopt_tensors(outputs)),
            None => result,
        };
        let mut shared = self.lock();
        if let Some(refused) = shared.refusal(CommandKind::Write) {
            return Outcome::Reply(refused).into();
        }
        let reply = shared.keyspace.finish(self.clock.now(), call, result, effects);
        let executed = shared.recorded(CommandKind::Write, reply.into(), effects);
        self.deliver(&mut shared, effects, executed.told);
        drop(shared);
        self.after(effects);
        executed
    }

    /// Where clients of this host can see that keys changed.
    ///
    /// # Errors
    /// There is no memory to share.
    pub(crate) fn key_versions(&self) -> io::Result<SharedPlace> {
        let mut shared = self.lock();
        if shared.versions.is_none() {
            shared.versions = Some(KeyVersions::create()?);
            shared.keyspace.note_touched();
        }
        shared.versions.as_ref().map(KeyVersions::place).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Answers a command whose large argument was refused.
    pub(crate) fn refuse(&self, args: &[Bytes]) -> Reply {
        self.lock().keyspace.refuse(args)
    }

    fn deliver(&self, shared: &mut Shared, effects: &mut Effects, told: RecordNumber) {
        for (client, reply) in effects.messages.drain(..) {
            if let Some(mailbox) = shared.mailboxes.get(&client) {
                mailbox.send(told, reply);
            }
        }
        for client in &effects.closed {
            if let Some(mailbox) = shared.mailboxes.get(client) {
                mailbox.close();
            }
        }
        if let Some(versions) = &shared.versions {
            versions.count_up(&effects.touched);
        }
        let (resident, limit) = (shared.keyspace.resident(), shared.keyspace.max_memory());
        self.used.store(resident, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        let arriving = self.arriving.load(Ordering::Relaxed);
        let waits = shared.keyspace.set_arriving(arriving);
        self.waits_for_room.store(waits, Ordering::Relaxed);
        // Before it is full, so that clients need not wait.
        if let Some(spill) = &self.spill
            && limit > 0
            && resident.saturating_add(arriving).saturating_add(self.copies()) > limit / 8 * 7
        {
            spill.request(0);
        }
    }

    /// What is lent to clients must stay in memory.
    pub(crate) fn spill(&self) -> Option<&Arc<SpillLink>> {
        self.spill.as_ref()
    }

    /// Wakes the housekeeping when it would look too late.
    fn rearm(&self, shared: &mut Shared) {
        if let Some(next) = shared.keyspace.next_deadline()
            && next < shared.armed
        {
            shared.armed = next;
            self.housekeeping.notify_one();
        }
    }

    /// What needs no lock.
    fn after(&self, effects: &mut Effects) {
        effects.garbage.clear();
        effects.undo.clear();
        for (stream, report) in effects.reports.drain(..) {
            tracing::info!(stream = %stream.escape_ascii(), "{report}");
        }
        for request in effects.requests.drain(..) {
            // Without a receiver the server is ending.
            let _ending = self.requests.get().map(|requests| requests.send(request));
        }
        if let Some(save) = effects.save.take() {
            self.save(save);
        }
        if effects.shutdown {
            self.stop();
        }
    }

    fn save(&self, save: Save) {
        let client = match save {
            Save::Wait(client) => Some(client),
            Save::Background => None,
        };
        match &self.persistence {
            Some(persistence) => persistence.tell(Event::Save(client)),
            None if !self.warned_of_save.swap(true, Ordering::Relaxed) => {
                tracing::warn!("a client asked to save, but this store keeps nothing on disk");
            }
            None => {}
        }
    }

    /// Ends keys and waits whose time is up; says how long until the next.
    pub(crate) fn tick(&self, effects: &mut Effects) -> Option<std::time::Duration> {
        effects.clear();
        let mut shared = self.lock();
        let now = self.clock.now();
        shared.keyspace.tick(now, effects);
        let next = shared.keyspace.next_deadline();
        let told = shared.recorded(CommandKind::Other, Outcome::Silent, effects).told;
        self.deliver(&mut shared, effects, told);
        shared.armed = next.unwrap_or(Time::NEVER);
        drop(shared);
        self.after(effects);
        next.map(|next| next.since(now))
    }

    /// Tells the keyspace what no client did.
    fn feed(&self, effects: &mut Effects, event: impl FnOnce(&mut Keyspace, Time, &mut Effects)) {
        effects.clear();
        let mut shared = self.lock();
        event(&mut shared.keyspace, self.clock.now(), effects);
        let told = shared.recorded(CommandKind::Other, Outcome::Silent, effects).told;
        self.deliver(&mut shared, effects, told);
        self.rearm(&mut shared);
        drop(shared);
        self.after(effects);
    }

    /// Returns when an earlier deadline appeared.
    pub(crate) async fn rearmed(&self) {
        self.housekeeping.notified().await;
    }

    /// What clients of a store with a journal wait for.
    pub(crate) fn persistence(&self) -> Option<&Arc<Persistence>> {
        self.persistence.as_ref()
    }

    /// Asks everything to end.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
        if let Some(persistence) = &self.persistence {
            persistence.tell(Event::Stop);
        }
        if let Some(spill) = &self.spill {
            spill.stop();
        }
        for mailbox in self.lock().mailboxes.values() {
            mailbox.close();
        }
    }

    /// Returns when everything is to end.
    pub(crate) async fn stopped(&self) {
        let mut stop = self.stop.subscribe();
        // The sender lives as long as this.
        let _ended = stop.wait_for(|stop| *stop).await;
    }
}

/// A client that is known to the store.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) client: ClientId,
    pub(crate) mail: MailReader,
    pub(crate) authenticated: bool,
}
