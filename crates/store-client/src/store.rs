use crate::StoreError;
use crate::backend::{Backend, words};
use crate::cluster::{Keyed, Sending, Servers};
use crate::connection::{Command, checked};
use crate::dial::Dial;
use crate::keys::Keys;
use crate::patience::{Interrupt, is_full, size};
use crate::url;
use bytes::Bytes;
use phalanx_resp::{Reply, slot};
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
/// The largest value that a plain Redis takes.
const LARGEST_PLAIN: usize = 512 << 20;

/// How a store is used.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub password: Option<String>,
    pub keys: Keys,
    /// Send large values over the socket, also on one host.
    pub no_shared_memory: bool,
    /// How long a replica may take to step in for a lost node of a Redis cluster before that is an error.
    pub takeover: Duration,
    /// How long to wait for room when the store is full before that is an error.
    pub patience: Duration,
    /// What is asked again and again while a call waits for room; `None` to wait undisturbed.
    pub interrupt: Option<Interrupt>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            password: None,
            keys: Keys::default(),
            no_shared_memory: false,
            takeover: Duration::from_secs(20),
            patience: Duration::from_secs(30),
            interrupt: None,
        }
    }
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
    patience: Duration,
}

#[derive(Debug)]
struct StoreLink {
    address: String,
    /// How the servers are reached, as it turned out when the first connection was there.
    dial: Dial,
    options: StoreOptions,
    backend: Backend,
    /// What one caller uses at a time.
    servers: Mutex<Servers>,
    /// Connections that no caller waits on at the moment.
    waiters: Mutex<Vec<Servers>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Connects to a store.
    ///
    /// # Errors
    /// The address is none, or no store answers there.
    pub fn connect(address: &str, options: StoreOptions) -> Result<Self, StoreError> {
        let dial = Dial::new(address.parse()?, &options)?;
        Self::dialed(url::hidden(address), dial, options)
    }

    fn dialed(address: String, dial: Dial, options: StoreOptions) -> Result<Self, StoreError> {
        let mut servers = Servers::connect(dial, false)?;
        let description = describe(&mut servers)?;
        if description.is_cluster {
            servers.become_cluster()?;
        }
        let backend = description.backend;
        servers.set_sharing(backend == Backend::Tensors && !options.no_shared_memory);
        let (dial, keys, patience) = (servers.dial().clone(), options.keys.clone(), options.patience);
        let (servers, waiters) = (Mutex::new(servers), Mutex::default());
        let link = StoreLink { address, dial, options, backend, servers, waiters };
        Ok(Self { link: Arc::new(link), keys, patience })
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
        Self::dialed(self.address(), self.link.dial.clone(), self.options())
    }

    /// Makes [`Store::another`] later, without keeping the connection of this client.
    pub(crate) fn dialer(&self) -> impl Fn() -> Result<Self, StoreError> + Send + 'static {
        let (address, dial, options) = (self.address(), self.link.dial.clone(), self.options());
        move || Self::dialed(address.clone(), dial.clone(), options.clone())
    }

    /// The options of this handle.
    fn options(&self) -> StoreOptions {
        StoreOptions { keys: self.keys.clone(), patience: self.patience, ..self.link.options.clone() }
    }

    /// Whether large values are mapped, not sent.
    pub(crate) fn is_sharing(&self) -> bool {
        lock(&self.link.servers).is_sharing()
    }

    /// The same client with other prefixes.
    #[must_use]
    pub fn with_keys(&self, keys: Keys) -> Self {
        Self { keys, ..self.clone() }
    }

    /// The same client with another patience: how long calls wait for room when the store is full.
    #[must_use]
    pub fn with_patience(&self, patience: Duration) -> Self {
        Self { patience, ..self.clone() }
    }

    /// How long calls wait for room when the store is full.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    pub fn address(&self) -> String {
        self.link.address.clone()
    }

    /// Whether one command may name both keys.
    pub(crate) fn same_slot(&self, a: &str, b: &str) -> bool {
        !lock(&self.link.servers).is_cluster() || slot(a.as_bytes()) == slot(b.as_bytes())
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
        let key = key_of(&command);
        checked(self.call(vec![Keyed { key, command }])?.pop())
    }

    /// Sends one command to every node that has keys; gives their addresses and replies.
    ///
    /// # Errors
    /// A node cannot be reached or refuses it.
    pub fn command_everywhere(&self, words: &[&[u8]]) -> Result<Vec<(String, Reply)>, StoreError> {
        let command: Command = words.iter().map(|word| Bytes::copy_from_slice(word)).collect();
        let mut servers = lock(&self.link.servers);
        let nodes = servers.masters();
        let ask = |node: String| servers.call_at(&node, command.clone()).map(|reply| (node, reply));
        nodes.into_iter().map(ask).collect()
    }

    /// All keys that match a pattern with `*` and `?`, sorted.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn keys_like(&self, pattern: &str) -> Result<Vec<Bytes>, StoreError> {
        let mut servers = lock(&self.link.servers);
        let mut keys = Vec::new();
        for node in servers.masters() {
            let mut cursor = Bytes::from_static(b"0");
            loop {
                let scan = words([b"SCAN", &cursor, b"MATCH", pattern.as_bytes(), b"COUNT", b"1000"]);
                let wrong = StoreError::Unexpected { what: "keys" };
                let Reply::Array(reply) = servers.call_at(&node, scan)? else { return Err(wrong) };
                let [Reply::Bulk(next), Reply::Array(found)] = &reply[..] else { return Err(wrong) };
                keys.extend(found.iter().filter_map(|key| match key {
                    Reply::Bulk(key) => Some(key.clone()),
                    _ => None,
                }));
                cursor = next.clone();
                if &cursor[..] == b"0" {
                    break;
                }
            }
        }
        keys.sort();
        keys.dedup();
        Ok(keys)
    }

    /// Sends commands that belong to one key; the replies must not be errors.
    pub(crate) fn run(&self, key: &str, commands: Vec<Command>) -> Result<Vec<Reply>, StoreError> {
        let key = Bytes::copy_from_slice(key.as_bytes());
        let keyed = commands.into_iter().map(|command| Keyed { key: key.clone(), command }).collect();
        self.call(keyed)?.into_iter().map(|reply| checked(Some(reply))).collect()
    }

    pub(crate) fn run_one(&self, key: &str, command: Command) -> Result<Reply, StoreError> {
        self.run(key, vec![command])?.pop().ok_or(StoreError::Unexpected { what: "no reply" })
    }

    /// Sends commands, each to the node of its key. What a full store refuses is sent again when it has room.
    pub(crate) fn call(&self, commands: Vec<Keyed>) -> Result<Vec<Reply>, StoreError> {
        let sent = self.can_wait_for_room().then(|| commands.clone());
        let mut replies = lock(&self.link.servers).call(commands, Sending::Plain(None))?;
        for (reply, keyed) in replies.iter_mut().zip(sent.iter().flatten()) {
            if is_full(reply) {
                *reply = self.when_room(&keyed.key, size(&keyed.command), || {
                    let again =
                        lock(&self.link.servers).call(vec![keyed.clone()], Sending::Plain(None))?.pop();
                    checked(again)
                })?;
            }
        }
        Ok(replies)
    }

    /// Whether the store can be waited for when it is full.
    pub(crate) fn can_wait_for_room(&self) -> bool {
        self.link.backend == Backend::Tensors && !self.patience.is_zero()
    }

    pub(crate) fn interrupt(&self) -> Option<&Interrupt> {
        self.link.options.interrupt.as_ref()
    }

    pub(crate) fn waiters(&self) -> &Mutex<Vec<Servers>> {
        &self.link.waiters
    }

    pub(crate) fn dial(&self) -> &Dial {
        &self.link.dial
    }

    /// Sends commands to the node of one key, with a bound for how long a reply may take.
    pub(crate) fn call_within(
        &self,
        key: &[u8],
        commands: Vec<Command>,
        patience: Option<Duration>,
    ) -> Result<Vec<Reply>, StoreError> {
        let key = Bytes::copy_from_slice(key);
        let keyed = commands.into_iter().map(|command| Keyed { key: key.clone(), command }).collect();
        lock(&self.link.servers).call(keyed, Sending::Plain(patience))
    }

    /// The nodes that have keys.
    pub(crate) fn nodes(&self) -> Vec<String> {
        lock(&self.link.servers).masters()
    }

    /// Sends a command to one node.
    pub(crate) fn call_node(
        &self,
        node: &str,
        command: Command,
        patience: Option<Duration>,
    ) -> Result<Reply, StoreError> {
        lock(&self.link.servers).call_node(node, command, patience)
    }

    /// Stores a value of one key under a command to which its bytes are appended.
    pub(crate) fn store_bytes(&self, key: &str, command: Command, value: &Bytes) -> Result<(), StoreError> {
        if self.link.backend == Backend::Plain && value.len() > LARGEST_PLAIN {
            let len = value.len();
            return Err(StoreError::TooLarge { name: key.to_owned(), len, most: LARGEST_PLAIN });
        }
        let key = Bytes::copy_from_slice(key.as_bytes());
        self.when_room(&key, size(&command) + value.len() as u64, || {
            lock(&self.link.servers).store_bytes(key.clone(), command.clone(), value)
        })
    }

    /// Reads tensors. Large ones are mapped where that is possible.
    pub(crate) fn tensors_at(&self, keys: &[String]) -> Result<Vec<Option<Tensor>>, StoreError> {
        lock(&self.link.servers).read_tensors(self.link.backend, keys)
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
            None => Servers::connect(self.link.dial.clone(), false)?,
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

/// What a server says of itself.
struct Description {
    backend: Backend,
    /// Other nodes have a part of the keys.
    is_cluster: bool,
}

fn describe(servers: &mut Servers) -> Result<Description, StoreError> {
    let command = words([b"INFO", b"server"]);
    let keyed = Keyed { key: Bytes::new(), command };
    let reply = checked(servers.call(vec![keyed], Sending::Plain(None))?.pop())?;
    let (Reply::Bulk(text) | Reply::Verbatim(text)) = reply else {
        return Err(StoreError::Unexpected { what: "no description of the server" });
    };
    let text = String::from_utf8_lossy(&text);
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(match field("phalanx_version") {
        // Our store calls itself a cluster also when it is the only node.
        Some(_) => Description {
            backend: Backend::Tensors,
            is_cluster: field("phalanx_shards").is_some_and(|count| count.trim() != "1"),
        },
        None => Description {
            backend: Backend::Plain,
            is_cluster: field("redis_mode").is_some_and(|mode| mode.trim() == "cluster"),
        },
    })
}

/// The key of a command that is sent as it is.
fn key_of(command: &Command) -> Bytes {
    let name = command.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
    let at = match &name[..] {
        b"MEMORY" | b"OBJECT" | b"PHALANX.STREAM" => 2,
        b"PHALANX.WAIT" => 3,
        _ => 1,
    };
    command.get(at).cloned().unwrap_or_default()
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
    let key = Bytes::copy_from_slice(key.as_bytes());
    let reply = servers.call(vec![Keyed { key, command }], Sending::Plain(Some(within + GRACE)))?.pop();
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
    let key = Bytes::copy_from_slice(key.as_bytes());
    let reply = checked(servers.call(vec![Keyed { key, command }], Sending::Plain(None))?.pop())?;
    Ok(matches!(reply, Reply::Integer(n) if n >= least))
}
