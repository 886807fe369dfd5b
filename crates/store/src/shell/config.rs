use super::error::StartError;
use super::model_run::ModelRunner;
use super::shards::ShardConfig;
use super::tls::ServerTls;
use phalanx_segments::Durability;
use phalanx_types::ByteSize;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// How a store is served.
#[derive(Clone)]
pub struct ServerConfig {
    /// The address to listen at; port 0 takes any that is free. None for no TCP.
    pub bind: Option<SocketAddr>,
    /// The path of a Unix socket to listen at.
    pub unix: Option<PathBuf>,
    /// The most that keys and values may take; 0 for no limit.
    pub memory: ByteSize,
    /// What clients must give before anything else.
    pub password: Option<String>,
    /// Also speak TLS on the same port. Clients of other hosts must use it then.
    pub tls: Option<ServerTls>,
    /// The part that this server has of a store that several nodes share.
    pub shard: Option<ShardConfig>,
    /// Allows every host to use the store without a password.
    pub expose_without_password: bool,
    /// The host that clients of a cluster are told, when it is not the one they connected to.
    pub announced_host: Option<String>,
    /// How many threads serve clients; 0 for one for every two cores, at most four.
    pub io_threads: usize,
    /// The most clients at a time.
    pub max_clients: usize,
    /// Replies and messages that a client has not taken may grow to this size; beyond it, its requests wait and
    /// its subscriptions are closed.
    pub unsent: ByteSize,
    /// A directory in which keys and values are kept across restarts.
    pub persist: Option<PathBuf>,
    /// When a write is acknowledged, with `persist`.
    pub durability: Durability,
    /// A directory for large values that memory has no room for. They end with the process.
    pub spill: Option<PathBuf>,
    /// The most that these may take; 0 for no limit.
    pub spill_limit: ByteSize,
    /// What runs models; without it they are only kept.
    pub runner: Option<Arc<dyn ModelRunner>>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            bind: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6780)),
            unix: None,
            memory: ByteSize(0),
            password: None,
            tls: None,
            shard: None,
            expose_without_password: false,
            announced_host: None,
            io_threads: 0,
            max_clients: 10_000,
            unsent: ByteSize::mib(32),
            persist: None,
            durability: Durability::default(),
            spill: None,
            spill_limit: ByteSize(0),
            runner: None,
        }
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the password.
        f.debug_struct("ServerConfig")
            .field("bind", &self.bind)
            .field("unix", &self.unix)
            .field("memory", &self.memory)
            .field("io_threads", &self.io_threads)
            .field("persist", &self.persist)
            .field("durability", &self.durability)
            .field("spill", &self.spill)
            .finish_non_exhaustive()
    }
}

impl ServerConfig {
    /// Checks what can be checked before anything is opened.
    ///
    /// # Errors
    /// Clients could not reach the store, or every host could.
    pub fn validate(&self) -> Result<(), StartError> {
        if self.bind.is_none() && self.unix.is_none() {
            return Err(StartError::NoAddress);
        }
        if self.password.as_ref().is_some_and(String::is_empty) {
            return Err(StartError::EmptyPassword);
        }
        match self.bind {
            Some(bind) if self.is_exposed(bind) && !self.expose_without_password => {
                Err(StartError::Exposed { bind })
            }
            _ => Ok(()),
        }
    }

    /// Whether other hosts can use the store without a password or a key.
    pub(crate) fn is_exposed(&self, bind: SocketAddr) -> bool {
        let knows_members = self.tls.as_ref().is_some_and(ServerTls::knows_members);
        !bind.ip().is_loopback()
            && self.password.is_none()
            && (self.expose_without_password || !knows_members)
    }

    pub(crate) fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Clients of this host need cores, too, and one thread serves many clients with fewer changes of threads.
        if self.io_threads == 0 { (cores / 2).clamp(1, 4) } else { self.io_threads.min(64) }
    }
}
