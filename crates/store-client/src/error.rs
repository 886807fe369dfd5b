use crate::address::AddressError;
use crate::metadata::MetaError;
use crate::patience::Interruption;
use phalanx_fabric::{KeyError, StartError};
use phalanx_resp::ProtocolError;
use phalanx_types::{Class, DomainName, TensorError};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("could not connect to the store at {address}")]
    Connect {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("no encrypted connection with the store at {address}")]
    Tls {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("could not use {path} for TLS")]
    TlsFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not use the key of the store's domain")]
    DomainKey(#[source] KeyError),
    #[error("this is the key of domain {found}, not of {wanted}")]
    OtherDomain { wanted: DomainName, found: DomainName },
    #[error("could not look for stores of domain {domain}")]
    Discovery {
        domain: DomainName,
        #[source]
        source: Box<StartError>,
    },
    #[error("no node of domain {domain} serves a store")]
    NoStore { domain: DomainName },
    #[error("there is no key of domain {domain} on this host")]
    NoKey { domain: DomainName },
    #[error("lost the store at {address}")]
    Lost {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("the server at {address} broke the protocol")]
    Protocol {
        address: String,
        #[source]
        source: ProtocolError,
    },
    /// The server's own words.
    #[error("the store refused: {text}")]
    Refused { text: String },
    #[error("the store is full ({text})")]
    Full { text: String },
    /// The program ended a wait for room: see `StoreOptions::interrupt`.
    #[error("the wait for room in the store was ended")]
    Interrupted {
        #[source]
        source: Interruption,
    },
    #[error("no node of the cluster has slot {slot}")]
    NoNode { slot: u16 },
    /// The cluster's own words.
    #[error("the cluster cannot do this now: {text}")]
    Down { text: String },
    #[error("{name:?} has {len} bytes, and this server takes {most} at most")]
    TooLarge { name: String, len: usize, most: usize },
    #[error("there is no {what} {name:?} in the store")]
    Missing { what: &'static str, name: String },
    #[error("{what} {name:?} was not there within {within:?}")]
    TimedOut { what: &'static str, name: String, within: Duration },
    #[error("the store's answer means nothing to this client ({what})")]
    Unexpected { what: &'static str },
    #[error("the value at {name:?} is no tensor")]
    Tensor {
        name: String,
        #[source]
        source: TensorError,
    },
    #[error("metadata of dataset {name:?} cannot be read")]
    Metadata {
        name: String,
        #[source]
        source: MetaError,
    },
    #[error("tensor {name:?} has {len} bytes, the memory for it {room}")]
    Room { name: String, len: usize, room: usize },
}

impl StoreError {
    pub fn class(&self) -> Class {
        match self {
            Self::Connect { .. }
            | Self::NoStore { .. }
            | Self::Discovery { .. }
            | Self::Lost { .. }
            | Self::NoNode { .. }
            | Self::Down { .. }
            | Self::TimedOut { .. }
            | Self::Full { .. } => Class::Retry,
            Self::Protocol { .. } | Self::Unexpected { .. } => Class::Peer,
            Self::Address(_)
            | Self::Refused { .. }
            | Self::Interrupted { .. }
            | Self::Tls { .. }
            | Self::TlsFile { .. }
            | Self::DomainKey(_)
            | Self::OtherDomain { .. }
            | Self::NoKey { .. }
            | Self::TooLarge { .. }
            | Self::Missing { .. }
            | Self::Tensor { .. }
            | Self::Metadata { .. }
            | Self::Room { .. } => Class::Fatal,
        }
    }

    /// What a user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Connect { .. } => {
                Some("`phalanx store serve` starts a store; SSDB or PHALANX_STORE names one")
            }
            Self::Full { .. } => Some("delete what is not needed, or give the store more with `--memory`"),
            Self::Tls { source, .. } if is_unknown_issuer(source) => Some(
                "the server's certificate is of another authority: rediss://HOST:PORT?ca=FILE names it, and \
                 phalanx://DOMAIN uses the key of the store's domain",
            ),
            Self::Tls { .. } => {
                Some("redis:// is for servers without TLS; a store has TLS with --domain or --tls-cert")
            }
            Self::NoStore { .. } => Some(
                "`phalanx node --store` starts one; PHALANX_CONNECT names a member of the domain on another network",
            ),
            Self::OtherDomain { .. } | Self::NoKey { .. } | Self::DomainKey(_) => Some(
                "copy the domain's key file to this host, or name it: phalanx://DOMAIN?key=FILE or PHALANX_KEY",
            ),
            Self::NoNode { .. } | Self::Down { .. } => {
                Some("start the nodes that are missing; `redis-cli cluster nodes` lists them")
            }
            Self::TooLarge { .. } => Some("a store of `phalanx store serve` takes values of any size"),
            Self::Refused { text } if text.starts_with("NOAUTH") => Some("give the store's password"),
            _ => None,
        }
    }
}

fn is_unknown_issuer(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}
