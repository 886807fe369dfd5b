use crate::core::{ChangeError, ShardPlace, StreamRecordError};
use phalanx_segments::{OpenError, ReadError, SpillError};
use phalanx_types::Class;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a store could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Neither TCP nor a Unix socket was asked for.
    #[error("a store needs an address or the path of a socket to listen at")]
    NoAddress,
    /// The password has no characters.
    #[error("the password of a store must not be empty")]
    EmptyPassword,
    /// Every host of the network could read and write.
    #[error("a store without a password or a domain key listens on loopback only, not on {bind}")]
    Exposed {
        /// The address that was asked for.
        bind: SocketAddr,
    },
    /// The address cannot be used.
    #[error("could not listen on {bind}")]
    Bind {
        /// The address that was asked for.
        bind: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The path cannot be used.
    #[error("could not listen on the socket {path}")]
    BindUnix {
        /// The path that was asked for.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another server listens at the path.
    #[error("another server listens on the socket {path}")]
    SocketInUse {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// A thread could not be started.
    #[error("could not start a thread of the store")]
    Thread(#[source] io::Error),
    /// The directory of `persist` cannot be used.
    #[error("could not open what is kept in {}", directory.display())]
    Persist {
        /// The directory.
        directory: PathBuf,
        /// Why.
        #[source]
        source: Box<OpenError>,
    },
    /// The directory of `spill` cannot be used.
    #[error("could not open {} for values that memory has no room for", directory.display())]
    Spill {
        /// The directory.
        directory: PathBuf,
        /// Why.
        #[source]
        source: Box<SpillError>,
    },
    /// The directory of `spill` cannot be made.
    #[error("could not make {}", directory.display())]
    SpillDirectory {
        /// The directory.
        directory: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A record is not one of this version.
    #[error("record {record} cannot be read in {}", directory.display())]
    PersistedRecord {
        /// Which one, counted from 0.
        record: u64,
        /// The directory.
        directory: PathBuf,
        /// Why.
        #[source]
        source: ChangeError,
    },
    /// A record of a stream does not follow those before it.
    #[error("record {record} cannot be applied in {}", directory.display())]
    PersistedStream {
        /// Which one, counted from 0.
        record: u64,
        /// The directory.
        directory: PathBuf,
        /// Why.
        #[source]
        source: StreamRecordError,
    },
    /// It has keys of another part of a shared store.
    #[error("keys that are not of part {place} are kept in {}", directory.display())]
    PersistedPart {
        /// The part of this server.
        place: ShardPlace,
        /// The directory.
        directory: PathBuf,
    },
    /// A large value is damaged.
    #[error("a value on disk cannot be read")]
    PersistedValue {
        /// Why, and in which file.
        #[source]
        source: Box<ReadError>,
    },
    /// There is no source of random numbers.
    #[error("the system gave no random numbers")]
    Random,
}

impl StartError {
    /// How to handle it.
    pub fn class(&self) -> Class {
        match self {
            StartError::Random | StartError::Thread(_) => Class::Retry,
            StartError::Persist { source, .. } => source.class(),
            _ => Class::Fatal,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            StartError::Exposed { .. } => Some(
                "give --password-file, --domain for clients with the domain key, or --expose-without-password if every host that reaches it may use it",
            ),
            StartError::Bind { .. } => Some("give another --bind; port 0 takes any that is free"),
            StartError::BindUnix { .. } | StartError::SocketInUse { .. } => Some("give another --unix"),
            StartError::Persist { source, .. } => source.hint(),
            StartError::Spill { source, .. } => source.hint(),
            StartError::PersistedRecord { .. } | StartError::PersistedStream { .. } => {
                Some("use the version of Phalanx that wrote it, or begin with an empty directory")
            }
            StartError::PersistedPart { .. } => Some(
                "every part of a shared store has a directory of its own, and the number of parts is fixed",
            ),
            StartError::PersistedValue { .. } => {
                Some("restore the directory from a copy, or begin with an empty one")
            }
            _ => None,
        }
    }
}
