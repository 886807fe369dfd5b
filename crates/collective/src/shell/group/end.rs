//! The addresses by which ranks reach each other.

use crate::core::mark::hash;
use crate::error::CollectiveError;
use crate::shell::shared::SegmentAddress;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Identifies a host: ranks with the same id can map each other's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostId([u8; 16]);

impl HostId {
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// What [`HostId::from_bytes`] takes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The id of the host of this process: boot of the machine, namespaces of processes and networks, user.
    ///
    /// # Errors
    /// The kernel does not provide one of these.
    pub fn here() -> Result<Self, CollectiveError> {
        let problem = |error: &dyn fmt::Display| CollectiveError::System {
            what: "find out which host this is",
            problem: error.to_string(),
        };
        let mut words = std::fs::read("/proc/sys/kernel/random/boot_id").map_err(|error| problem(&error))?;
        for namespace in ["/proc/self/ns/pid", "/proc/self/ns/net"] {
            let inode = rustix::fs::stat(namespace).map_err(|error| problem(&error))?.st_ino;
            words.extend(inode.to_le_bytes());
        }
        words.extend(rustix::process::geteuid().as_raw().to_le_bytes());
        Ok(Self(hash(&words).to_le_bytes()))
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostId({self})")
    }
}

/// How the other ranks reach a rank. The caller delivers it to all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupEnd {
    pub(super) host: HostId,
    /// Its shared memory, if others may map it.
    pub(super) segment: Option<SegmentAddress>,
}

impl GroupEnd {
    /// An end that was described elsewhere.
    pub fn new(host: HostId, segment: Option<SegmentAddress>) -> Self {
        Self { host, segment }
    }

    /// Where the rank is.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// Its memory, if others may map it.
    pub fn segment(&self) -> Option<SegmentAddress> {
        self.segment
    }

    /// The key that ranks with shared memory have in common.
    pub(super) fn key(&self) -> Option<HostId> {
        self.segment.is_some().then_some(self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_always_at_the_same_place() {
        assert_eq!(HostId::here().unwrap(), HostId::here().unwrap());
        assert_ne!(HostId::here().unwrap(), HostId::from_bytes([0; 16]));
        assert_eq!(HostId::from_bytes([10; 16]).to_string(), "0a".repeat(16));
    }
}
