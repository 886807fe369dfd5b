use super::clock::Clock;
use super::config::ServerConfig;
use super::error::StartError;
use super::handle::StoreClient;
use super::hub::{Disk, Hub};
use super::io_thread;
use super::listen::{Threads, accept_tcp, accept_unix, bind_unix};
use super::persist::{self, Keeper, Opened, Persistence, Recorder};
use super::shards::datasets;
use super::spill::SpillLink;
use super::tls::Entrance;
use crate::core::{AdmissionRules, Keyspace, Origin, ServerFacts, Settings, ShardMap, ShardMember};
use bytes::Bytes;
use phalanx_own_files::make_dir;
use phalanx_segments::{Spill, SpillSettings};
use phalanx_types::ByteSize;
use ring::rand::{SecureRandom, SystemRandom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;

/// A store that is served. Dropping it asks it to end.
///
/// ```
/// # async fn example() -> Result<(), phalanx_store::StartError> {
/// use phalanx_store::{Server, ServerConfig};
///
/// let bind = Some(([127, 0, 0, 1], 0).into());
/// let server = Server::start(ServerConfig { bind, ..Default::default() }).await?;
/// let mut client = server.client();
/// client.execute(["SET", "a", "1"]).await;
/// assert_eq!(client.execute(["GET", "a"]).await, phalanx_resp::Reply::bulk("1"));
/// server.shutdown().await;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Debug)]
pub struct Server {
    hub: Arc<Hub>,
    address: Option<SocketAddr>,
    unix: Option<PathBuf>,
    threads: Vec<JoinHandle<()>>,
    /// They look after what is on disk.
    keepers: Vec<JoinHandle<()>>,
}

/// The hub, with what the directory of `persist` holds, and the threads that look after what is on disk.
async fn open_hub(
    config: &ServerConfig,
    settings: Settings,
) -> Result<(Arc<Hub>, Vec<JoinHandle<()>>), StartError> {
    let clock = Clock::new();
    let mut keyspace = Keyspace::new(clock.now(), settings);
    if let Some(shard) = &config.shard {
        keyspace.set_shards(ShardMap::new(shard.place, shard.node.clone()));
    }
    let unsent = usize::try_from(config.unsent.0).unwrap_or(usize::MAX);
    let (runner, max_clients) = (config.runner.clone(), config.max_clients);
    let files =
        config.spill.as_deref().map(|directory| open_spill(directory, config.spill_limit)).transpose()?;
    let Some(directory) = config.persist.clone() else {
        let spill = files.map(|files| Arc::new(SpillLink::new(Some(files), Arc::default(), None)));
        let disk = Disk { persistence: None, spill: spill.clone() };
        let hub = Arc::new(Hub::new((keyspace, clock), disk, runner, max_clients, unsent));
        let threads = spill.map(|spill| spill.start(hub.clone())).transpose()?;
        return Ok((hub, threads.into_iter().collect()));
    };
    let durability = config.durability;
    let reading = tokio::task::spawn_blocking(move || {
        let opened = persist::open(&directory, durability, &mut keyspace)?;
        match keyspace.place_without_key() {
            Some(place) => Err(StartError::PersistedPart { place, directory }),
            None => Ok((opened, keyspace)),
        }
    });
    let (opened, keyspace) = reading.await.map_err(|error| StartError::Thread(error.into()))??;
    let Opened { journal, index } = opened;
    let (events, heard) = std::sync::mpsc::channel();
    let journal = Arc::new(journal);
    let spill = Arc::new(SpillLink::new(files, index.clone(), Some(Arc::downgrade(&journal))));
    let link = Arc::new(Persistence::new(index, &journal, events));
    let recorder = Recorder::new(journal.clone(), link.clone(), durability);
    let disk = Disk { persistence: Some((link.clone(), recorder)), spill: Some(spill.clone()) };
    let hub = Arc::new(Hub::new((keyspace, clock), disk, runner, max_clients, unsent));
    let keeper = Keeper::start(hub.clone(), link, journal, heard)?;
    let spiller = spill.start(hub.clone())?;
    Ok((hub, vec![keeper, spiller]))
}

fn open_spill(directory: &Path, limit: ByteSize) -> Result<(Spill, u64), StartError> {
    let made = make_dir(directory);
    made.map_err(|source| StartError::SpillDirectory { directory: directory.to_owned(), source })?;
    let limit_bytes = if limit.0 == 0 { u64::MAX } else { limit.0 };
    let settings = SpillSettings { limit_bytes, ..SpillSettings::default() };
    let opened = Spill::open(directory, &settings);
    let spill = opened
        .map_err(|source| StartError::Spill { directory: directory.to_owned(), source: Box::new(source) })?;
    Ok((spill, limit_bytes))
}

fn seed() -> Result<u64, StartError> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).ok().ok_or(StartError::Random)?;
    Ok(u64::from_le_bytes(bytes))
}

impl Server {
    /// Opens the sockets and serves clients on threads of its own. Needs a tokio runtime for accepting them.
    ///
    /// # Errors
    /// The configuration is not safe, or an address cannot be used.
    pub async fn start(config: ServerConfig) -> Result<Self, StartError> {
        config.validate()?;
        let tcp = match config.bind {
            Some(bind) => {
                let failed = |source| StartError::Bind { bind, source };
                let listener = TcpListener::bind(bind).await.map_err(failed)?;
                Some((listener.local_addr().map_err(failed)?, listener))
            }
            None => None,
        };
        let unix = config.unix.as_deref().map(bind_unix).transpose()?;
        let address = tcp.as_ref().map(|(address, _)| *address);
        if let Some(bind) = address.filter(|address| config.is_exposed(*address)) {
            tracing::warn!(%bind, "every host that reaches this store can read and change it: it has no password");
        } else if let Some(bind) = address.filter(|bind| !bind.ip().is_loopback() && config.tls.is_none()) {
            tracing::warn!(%bind, "passwords and values cross the network unencrypted: this store has no TLS");
        }
        let threads = config.threads();
        let settings = settings(&config, address, threads)?;
        let (hub, keepers) = open_hub(&config, settings).await?;
        if let Some(shard) = &config.shard {
            hub.share_out(shard.clone());
            tokio::spawn(datasets::run(hub.clone(), hub.node_requests()));
        }
        // On one processor a thread that looks again and again would keep its client from running.
        if std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
            hub.send_in_turn(threads);
        }
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::unbounded_channel()).unzip();
        let entrance =
            config.tls.clone().map(|tls| Arc::new(Entrance::new(tls, rules(&config), config.max_clients)));
        let start = |(number, receiver)| io_thread::start(number, hub.clone(), entrance.clone(), receiver);
        let handles = receivers.into_iter().enumerate().map(start).collect::<Result<Vec<_>, _>>()?;
        if let Some((_, listener)) = tcp {
            let threads = Threads { senders: senders.clone(), next: 0 };
            tokio::spawn(accept_tcp(listener, hub.clone(), threads));
        }
        if let (Some(listener), Some(path)) = (unix, &config.unix) {
            let listener = UnixListener::from_std(listener)
                .map_err(|source| StartError::BindUnix { path: path.clone(), source })?;
            let threads = Threads { senders, next: 0 };
            tokio::spawn(accept_unix(listener, hub.clone(), threads, unix_origin(path, address)));
        }
        Ok(Self { hub, address, unix: config.unix, threads: handles, keepers })
    }

    /// The address that clients connect to.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The path of the Unix socket.
    pub fn unix_path(&self) -> Option<&Path> {
        self.unix.as_deref()
    }

    /// Tells this server which nodes share the store.
    pub fn shard_members(&self) -> ShardMembers {
        ShardMembers { hub: self.hub.clone() }
    }

    /// A client inside this process. Of a store that several nodes share it sees this server's part.
    pub fn client(&self) -> StoreClient {
        StoreClient::new(self.hub.clone())
    }

    /// Returns when a client has ended the server with `SHUTDOWN`.
    pub async fn stopped(&self) {
        self.hub.stopped().await;
    }

    /// Closes all connections, ends the threads, and writes what is not on disk yet.
    pub async fn shutdown(mut self) {
        self.hub.stop();
        let threads: Vec<_> =
            std::mem::take(&mut self.threads).into_iter().chain(std::mem::take(&mut self.keepers)).collect();
        let hub = self.hub.clone();
        let join = move || {
            // A thread that panicked has said so.
            threads.into_iter().for_each(|thread| drop(thread.join()));
            hub.close_journal();
        };
        let _joined = tokio::task::spawn_blocking(join).await;
    }
}

/// Tells a server which nodes share its store.
#[derive(Debug, Clone)]
pub struct ShardMembers {
    hub: Arc<Hub>,
}

impl ShardMembers {
    /// Takes note of the nodes that serve parts now, this one included.
    pub fn set(&self, members: Vec<ShardMember>) {
        self.hub.set_members(members);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.hub.stop();
        if let Some(path) = &self.unix {
            // The next server takes over what stays behind.
            let _removed = std::fs::remove_file(path);
        }
    }
}

fn rules(config: &ServerConfig) -> AdmissionRules {
    AdmissionRules { has_password: config.password.is_some(), is_open: config.expose_without_password }
}

fn settings(
    config: &ServerConfig,
    address: Option<SocketAddr>,
    threads: usize,
) -> Result<Settings, StartError> {
    Ok(Settings {
        seed: seed()?,
        password: config.password.clone().map(Bytes::from),
        max_memory: config.memory.0,
        record_changes: config.persist.is_some(),
        spill: config.persist.is_some() || config.spill.is_some(),
        facts: ServerFacts {
            process: std::process::id(),
            port: address.map_or(0, |address| address.port()),
            bind: config.bind.map(|bind| bind.ip().to_string()).unwrap_or_default(),
            announced_host: config.announced_host.clone(),
            io_threads: threads,
            runs_models: config.runner.is_some(),
        },
    })
}

/// A client on the Unix socket that asks for the cluster's addresses gets the TCP address.
fn unix_origin(path: &Path, address: Option<SocketAddr>) -> Origin {
    let host =
        address.filter(|address| !address.ip().is_unspecified()).map(|address| address.ip().to_string());
    Origin {
        peer: format!("{}:0", path.display()),
        host: host.unwrap_or_else(|| "127.0.0.1".to_owned()),
        port: address.map_or(0, |address| address.port()),
        trusted: false,
    }
}
