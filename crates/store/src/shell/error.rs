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
    /// Everyone on the network could read and write.
    #[error("a store without a password listens on loopback only, not on {bind}")]
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
    /// There is no source of random numbers.
    #[error("the system gave no random numbers")]
    Random,
}

impl StartError {
    /// How to handle it.
    pub fn class(&self) -> Class {
        match self {
            StartError::Random | StartError::Thread(_) => Class::Retry,
            _ => Class::Fatal,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            StartError::Exposed { .. } => Some(
                "give --password-file, or --expose-without-password if every host that reaches it may use it",
            ),
            StartError::Bind { .. } => Some("give another --bind; port 0 takes any that is free"),
            StartError::BindUnix { .. } | StartError::SocketInUse { .. } => Some("give another --unix"),
            _ => None,
        }
    }
}
