use super::blocking::Blocked;
use bytes::Bytes;
use phalanx_resp::Version;
use phalanx_types::Time;
use std::collections::BTreeSet;
use std::fmt;

/// One connection to the store, or one user of it inside the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a client comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The client's address, as `CLIENT LIST` shows it.
    pub peer: String,
    /// The host by which the client reached this server.
    pub host: String,
    /// The port by which the client reached this server.
    pub port: u16,
    /// Whether the client needs no password: it is a part of this process, or a member of the store's domain.
    pub trusted: bool,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The client took all its replies.
    Answered,
    /// The connection broke, or the client left without reading a reply. It may send its last command again.
    Unanswered,
}

/// Which replies a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    On,
    Off,
    /// Not to the next command.
    SkipNext,
    /// Not to this command.
    Skip,
}

/// The last append of a client, which it may repeat when it did not see the reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Append {
    pub(crate) key: Bytes,
    pub(crate) items: Vec<Bytes>,
}

/// What the store knows of one client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) origin: Origin,
    pub(crate) version: Version,
    pub(crate) authenticated: bool,
    pub(crate) name: Bytes,
    pub(crate) library: Bytes,
    pub(crate) library_version: Bytes,
    /// Whether it ever sent `HELLO` or `CLIENT`, which SmartRedis never does.
    pub(crate) introduced: bool,
    pub(crate) replies: ReplyMode,
    pub(crate) channels: BTreeSet<Bytes>,
    pub(crate) patterns: BTreeSet<Bytes>,
    pub(crate) blocked: Option<Blocked>,
    pub(crate) since: Time,
    pub(crate) active: Time,
    pub(crate) command: &'static str,
    pub(crate) appended: Option<Append>,
    /// Whether the client has closed its side, and so cannot see replies.
    pub(crate) left: bool,
}

impl Session {
    pub(crate) fn new(now: Time, origin: Origin, authenticated: bool) -> Self {
        Self {
            origin,
            version: Version::Resp2,
            authenticated,
            name: Bytes::new(),
            library: Bytes::new(),
            library_version: Bytes::new(),
            introduced: false,
            replies: ReplyMode::On,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            blocked: None,
            since: now,
            active: now,
            command: "NULL",
            appended: None,
            left: false,
        }
    }

    pub(crate) fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }
}
