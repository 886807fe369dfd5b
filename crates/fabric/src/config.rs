//! The configuration of a node that joins a domain.

use crate::security::DomainKey;
use phalanx_types::{DomainName, Resources};
use phalanx_wire::node::NodeKind;
use smol_str::SmolStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// How a node joins its domain; [`FabricConfig::new`] fills in the defaults.
#[derive(Debug, Clone)]
pub struct FabricConfig {
    pub domain: DomainName,
    /// The first part of the node's id; a random suffix keeps equal names apart.
    pub name: String,
    pub kind: NodeKind,
    /// Where to listen. `None` means loopback without a key and every interface with one.
    pub bind: Option<SocketAddr>,
    /// `host:port` of any members; this node learns the rest of the domain from them.
    pub connect: Vec<String>,
    /// `host:port` of the relays through which this node can be reached.
    pub relays: Vec<String>,
    pub key: Option<DomainKey>,
    /// A peer that is silent for longer than this is lost.
    pub heartbeat: Duration,
    /// Whether to use multicast DNS; it needs a key and a bind address that is not loopback.
    pub mdns: bool,
    /// Access files live in `<runtime_dir>/<domain>/`.
    pub runtime_dir: PathBuf,
    pub resources: Resources,
    /// The kinds of job this node solves.
    pub handles: Vec<SmolStr>,
}

impl FabricConfig {
    pub fn new(domain: DomainName, name: impl Into<String>, kind: NodeKind) -> Self {
        Self {
            domain,
            name: name.into(),
            kind,
            bind: None,
            connect: Vec::new(),
            relays: Vec::new(),
            key: None,
            heartbeat: Duration::from_secs(2),
            mdns: true,
            runtime_dir: default_runtime_dir(),
            resources: Resources::default(),
            handles: Vec::new(),
        }
    }

    pub(crate) fn bind_address(&self) -> SocketAddr {
        self.bind.unwrap_or_else(|| {
            let host = if self.key.is_some() { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
            SocketAddr::new(IpAddr::V4(host), 0)
        })
    }
}

/// The user's directory for files that live as long as a login session.
///
/// `$PHALANX_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/phalanx`, else `<tmp>/phalanx-<uid>`.
pub fn default_runtime_dir() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("PHALANX_RUNTIME_DIR")
        .or_else(|| set("XDG_RUNTIME_DIR").map(|dir| dir.join("phalanx")))
        .unwrap_or_else(|| {
            let uid = rustix::process::geteuid().as_raw();
            std::env::temp_dir().join(format!("phalanx-{uid}"))
        })
}

/// Where the key of a domain is kept when no other place is named.
///
/// `domains/<domain>.key` in `$PHALANX_CONFIG_DIR`, else in `$XDG_CONFIG_HOME/phalanx`, else in `~/.config/phalanx`;
/// `None` without a home directory.
pub fn usual_key_file(domain: &DomainName) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let dir = set("PHALANX_CONFIG_DIR")
        .or_else(|| set("XDG_CONFIG_HOME").map(|dir| dir.join("phalanx")))
        .or_else(|| set("HOME").map(|home| home.join(".config/phalanx")))?;
    Some(dir.join("domains").join(format!("{domain}.key")))
}
