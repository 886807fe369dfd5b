use crate::StoreError;
use crate::address::StoreAddress;
use crate::backend::{Backend, words};
use crate::cluster::Servers;
use crate::connection::{Command, checked};
use crate::keys::Keys;
use crate::memory::{Mapped, Memory};
use bytes::Bytes;
use phalanx_resp::{Reply, slot};
use phalanx_shared::WORTH_SHARING;
use phalanx_types::Tensor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest single wait that the server is asked for; a lost server is noticed after at most this time more.
const ONE_WAIT: Duration = Duration::from_secs(5);
/// How much later than asked a reply to a wait may come.
const GRACE: Duration = Duration::from_secs(5);
/// Pauses between looks at a server that cannot wake a client.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// How a store is used.
#[derive(Debug, Clone, Default)]
pub struct StoreOptions {
    pub password: Option<String>,
    pub keys: Keys,
    /// Send large values over the socket, also on one host.
    pub no_shared_memory: bool,
}

/// A client of a store. Clones share its connection.
///
/// ```no_run
/// use phalanx_store_client::{Store, StoreOptions};
/// use phalanx_types::Tensor;
///
/// let store = Store::connect("127.0.0.1:6780", StoreOptions::default())?;
/// store.put("velocity", &Tensor::from_f32(vec![2], &[1.0, 2.0]).unwrap())?;
/// let velocity = store.get("velocity")?;
/// # Ok::<(), phalanx_store_client::StoreError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Store {
    link: Arc<StoreLink>,
    keys: Keys,
}

#[derive(Debug)]
struct StoreLink {
    address: StoreAddress,
    options: StoreOptions,
    backend: Backend,
    used: Mutex<Used>,
    /// Connections that no caller waits on at the moment.
    waiters: Mutex<Vec<Servers>>,
}

/// What one caller uses at a time.
#[derive(Debug)]
struct Used {
    servers: Servers,
    memory: Memory,
    /// Large values go through memory that is shared with the server.
    is_sharing: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Connects to a store.
    ///
    /// # Errors
    /// The address is none, or no store answers there.
    pub fn connect(address: &str, options: StoreOptions) -> Result<Self, StoreError> {
        let address: StoreAddress = address.parse()?;
        let (keys, no_shared_memory) = (options.keys.clone(), options.no_shared_memory);
        let mut servers = Servers::connect(address.clone(), options.password.clone())?;
        let backend = backend(&mut servers)?;
        let is_sharing = backend == Backend::Tensors && !no_shared_memory;
        let used = Mutex::new(Used { servers, memory: Memory::default(), is_sharing });
        let link = StoreLink { address, options, backend, used, waiters: Mutex::default() };
        Ok(Self { link: Arc::new(link), keys })
    }

    /// Connects to the store that a launcher named: `SSDB`, or `PHALANX_STORE`, with the prefixes of the environment.
    ///
    /// # Errors
    /// No store is named, or it does not answer.
    pub fn from_environment() -> Result<Self, StoreError> {
        let keys = Keys::from_environment("");
        let name = ["SSDB", "PHALANX_STORE"].into_iter().find_map(|name| std::env::var(name).ok());
        let address = name.unwrap_or_else(|| "127.0.0.1:6780".to_owned());
        Self::connect(&address, StoreOptions { keys, ..StoreOptions::default() })
    }

    /// A client of the same store with a connection of its own: for calls that wait, and to be missed when it ends.
    pub(crate) fn another(&self) -> Result<Self, StoreError> {
        let options = StoreOptions { keys: self.keys.clone(), ..self.link.options.clone() };
        Self::connect(&self.address(), options)
    }

    /// Whether large values are mapped, not sent.
    pub(crate) fn is_sharing(&self) -> bool {
        lock(&self.link.used).is_sharing
    }

    /// The same client with other prefixes.
    #[must_use]
    pub fn with_keys(&self, keys: Keys) -> Self {
        Self { link: self.link.clone(), keys }
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    pub fn address(&self) -> String {
        self.link.address.to_string()
    }

    /// Whether commands of both keys can be sent together.
    pub(crate) fn same_node(&self, a: &str, b: &str) -> bool {
        let used = lock(&self.link.used);
        !used.servers.is_cluster() || used.servers.node_of(a.as_bytes()) == used.servers.node_of(b.as_bytes())
    }

    /// Whether one command may name both keys.
    pub(crate) fn same_slot(&self, a: &str, b: &str) -> bool {
        !lock(&self.link.used).servers.is_cluster() || slot(a.as_bytes()) == slot(b.as_bytes())
    }

    pub(crate) fn backend(&self) -> Backend {
        self.link.backend
    }

    /// Sends one command as it is, and gives the reply.
    ///
    /// # Errors
    /// The store cannot be reached or refuses it.
    pub fn command(&self, words: &[&[u8]]) -> Result<Reply, StoreError> {
        let command: Command = words.iter().map(|word| Bytes::copy_from_slice(word)).collect();
        let key = command.get(1).cloned().unwrap_or_default();
        checked(self.call(&key, vec![command])?.pop())
    }

    /// Sends commands that belong to one key; the replies must not be errors.
    pub(crate) fn run(&self, key: &str, commands: Vec<Command>) -> Result<Vec<Reply>, StoreError> {
        let replies = self.call(key.as_bytes(), commands)?;
        replies.into_iter().map(|reply| checked(Some(reply))).collect()
    }

    pub(crate) fn run_one(&self, key: &str, command: Command) -> Result<Reply, StoreError> {
        self.run(key, vec![command])?.pop().ok_or(StoreError::Unexpected { what: "no reply" })
    }

    /// Sends commands that belong to one key. If the connection was lost since the last call, it is opened again.
    pub(crate) fn call(&self, key: &[u8], commands: Vec<Command>) -> Result<Vec<Reply>, StoreError> {
        let mut used = lock(&self.link.used);
        used.call(key, commands)
    }

    /// The same, with a bound for how long a reply may take.
    pub(crate) fn call_within(
        &self,
        key: &[u8],
        commands: Vec<Command>,
        patience: Option<Duration>,
    ) -> Result<Vec<Reply>, StoreError> {
        lock(&self.link.used).call_within(key, commands, patience)
    }

    /// Stores a value of one key under a command to which its bytes are appended.
    pub(crate) fn store_bytes(&self, key: &str, command: Command, value: &Bytes) -> Result<(), StoreError> {
        let mut used = lock(&self.link.used);
        if value.len() >= WORTH_SHARING && used.store_shared(key, &command, value)? {
            return Ok(());
        }
        let command = command.into_iter().chain([value.clone()]).collect();
        checked(used.call(key.as_bytes(), vec![command])?.pop()).map(|_stored| ())
    }

    /// Reads tensors that one server has. Large ones are mapped where that is possible.
    pub(crate) fn read_tensors(&self, keys: &[String]) -> Result<Vec<Option<Tensor>>, StoreError> {
        lock(&self.link.used).read_tensors(self.link.backend, keys)
    }

    /// Waits until a key is as wanted; false when the time is up.
    pub(crate) fn wait_until(
        &self,
        key: &str,
        condition: &[&[u8]],
        within: Duration,
    ) -> Result<bool, StoreError> {
        let until = Instant::now() + within;
        let idle = lock(&self.link.waiters).pop();
        let mut servers = match idle {
            Some(servers) => servers,
            None => Servers::connect(self.link.address.clone(), self.link.options.password.clone())?,
        };
        let mut pause = FIRST_PAUSE;
        let found = loop {
            let left = until.saturating_duration_since(Instant::now());
            let found = match self.link.backend {
                Backend::Tensors => woken(&mut servers, key, condition, left.min(ONE_WAIT))?,
                Backend::Plain => looked(&mut servers, key, condition)?,
            };
            if found || left.is_zero() {
                break found;
            }
            if self.link.backend == Backend::Plain {
                // A plain Redis cannot wake a client that waits for a key.
                std::thread::sleep(pause.min(left));
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        lock(&self.link.waiters).push(servers);
        Ok(found)
    }
}

impl Used {
    fn call(&mut self, key: &[u8], commands: Vec<Command>) -> Result<Vec<Reply>, StoreError> {
        self.call_within(key, commands, None)
    }

    fn call_within(
        &mut self,
        key: &[u8],
        mut commands: Vec<Command>,
        patience: Option<Duration>,
    ) -> Result<Vec<Reply>, StoreError> {
        if !self.servers.is_open(key) {
            // What was shared over the connection before ended with it.
            self.memory = Memory::default();
        }
        let returns = self.memory.returns();
        let skip = usize::from(returns.is_some());
        if let Some(returns) = returns {
            commands.insert(0, returns);
        }
        let mut replies = self.servers.call(key, commands, patience)?;
        replies.drain(..skip.min(replies.len()));
        Ok(replies)
    }

    /// Stores a value through shared memory; false if that is impossible.
    fn store_shared(&mut self, key: &str, command: &Command, value: &Bytes) -> Result<bool, StoreError> {
        if !self.is_sharing {
            return Ok(false);
        }
        let taken = match Memory::taken(self.call(key.as_bytes(), vec![Memory::take(value.len())])?.pop()) {
            Ok(taken) => taken,
            Err(full @ StoreError::Full { .. }) => return Err(full),
            Err(StoreError::Refused { text }) if text.starts_with("TOOLONG") => return Ok(false),
            Err(error) => return Ok(self.give_up_sharing(&error)),
        };
        if let Err(error) = self.memory.fill(&taken, &[value]) {
            self.memory.give_back(&taken);
            return Ok(self.give_up_sharing(&error));
        }
        let ticket = taken.ticket.to_string();
        let with = [Bytes::from_static(b"PHALANX.WITH"), Bytes::from(ticket)];
        let command = with.into_iter().chain(command.iter().cloned()).collect();
        checked(self.call(key.as_bytes(), vec![command])?.pop()).map(|_stored| true)
    }

    /// Tensors of keys, those that have not changed without asking the server.
    fn read_tensors(&mut self, backend: Backend, keys: &[String]) -> Result<Vec<Option<Tensor>>, StoreError> {
        let keeps = self.is_sharing && !self.servers.is_cluster();
        let mut found: Vec<Option<Tensor>> = match keeps {
            true => keys.iter().map(|key| self.memory.views.unchanged(key)).collect(),
            false => vec![None; keys.len()],
        };
        // Numbers of a server that is gone do not change any more: that it is there is looked at after them.
        if found.iter().any(Option::is_some) && !self.servers.is_quiet() {
            found.fill(None);
        }
        let due: Vec<(usize, &String)> =
            keys.iter().enumerate().filter(|(at, _)| found.get(*at).is_some_and(Option::is_none)).collect();
        let Some((_, first)) = due.first() else { return Ok(found) };
        let versions: Vec<_> = due.iter().map(|(_, key)| self.memory.views.version(key)).collect();
        let replies = self.read(first, due.iter().map(|(_, key)| backend.get(key)).collect())?;
        let mut lent = false;
        for (((at, key), version), Mapped { reply, may_keep }) in due.into_iter().zip(versions).zip(replies) {
            let tensor = backend.tensor(key, reply)?;
            lent |= may_keep;
            if let (Some(tensor), Some(version), true) = (&tensor, version, keeps && may_keep) {
                self.memory.views.keep(key, version, tensor);
            }
            found.get_mut(at).into_iter().for_each(|place| *place = tensor.clone());
        }
        if keeps && lent && self.memory.views.is_unasked() {
            let reply = self.call(b"", vec![Memory::ask_versions()])?.pop();
            self.memory.learn_versions(reply);
        }
        Ok(found)
    }

    fn read(&mut self, key: &str, commands: Vec<Command>) -> Result<Vec<Mapped>, StoreError> {
        let sent = |replies: Vec<Reply>| {
            replies.into_iter().map(|reply| Mapped { reply, may_keep: false }).collect::<Vec<_>>()
        };
        if !self.is_sharing {
            return self.call(key.as_bytes(), commands).map(sent);
        }
        let lend = |command: &Command| {
            std::iter::once(Bytes::from_static(b"PHALANX.LEND")).chain(command.iter().cloned()).collect()
        };
        let replies = self.call(key.as_bytes(), commands.iter().map(lend).collect())?;
        let refused =
            |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with(b"ERR memory can"));
        let mapped = match replies.iter().any(refused) {
            true => Err(std::io::Error::other("the server is on another host")),
            false => replies
                .into_iter()
                .map(|reply| self.memory.mapped(reply))
                .collect::<std::io::Result<Vec<_>>>(),
        };
        match mapped {
            Ok(replies) => Ok(replies),
            Err(error) => {
                self.give_up_sharing(&error);
                self.call(key.as_bytes(), commands).map(sent)
            }
        }
    }

    fn give_up_sharing(&mut self, error: &dyn std::error::Error) -> bool {
        tracing::debug!(%error, "large values go over the socket");
        self.is_sharing = false;
        false
    }
}

fn backend(servers: &mut Servers) -> Result<Backend, StoreError> {
    let reply = checked(servers.call(b"", vec![words([b"INFO", b"server"])], None)?.pop())?;
    let (Reply::Bulk(text) | Reply::Verbatim(text)) = reply else {
        return Err(StoreError::Unexpected { what: "no description of the server" });
    };
    let ours = text.windows(16).any(|part| part == b"phalanx_version:");
    Ok(if ours { Backend::Tensors } else { Backend::Plain })
}

/// Has the server wait.
fn woken(
    servers: &mut Servers,
    key: &str,
    condition: &[&[u8]],
    within: Duration,
) -> Result<bool, StoreError> {
    let ms = within.as_millis().to_string();
    let mut command = words([b"PHALANX.WAIT", ms.as_bytes()]);
    command.extend(condition.iter().map(|word| Bytes::copy_from_slice(word)));
    let reply = servers.call(key.as_bytes(), vec![command], Some(within + GRACE))?.pop();
    Ok(checked(reply)? == Reply::Integer(1))
}

/// Looks whether a key is as wanted, on a server that cannot wait for it.
fn looked(servers: &mut Servers, key: &str, condition: &[&[u8]]) -> Result<bool, StoreError> {
    let (command, least): (Command, i64) = match condition {
        [b"FIELD", key, field] => (words([b"HEXISTS", key, field]), 1),
        [b"LENGTH", key, length] => {
            let least = std::str::from_utf8(length).ok().and_then(|length| length.parse().ok());
            (words([b"LLEN", key]), least.unwrap_or(i64::MAX))
        }
        _ => (words([b"EXISTS", key.as_bytes()]), 1),
    };
    let reply = checked(servers.call(key.as_bytes(), vec![command], None)?.pop())?;
    Ok(matches!(reply, Reply::Integer(n) if n >= least))
}
