use super::change::Change;
use super::database::Garbage;
use super::session::ClientId;
use super::streams::NodeRequest;
use super::touched::Touched;
use super::undo::Undo;
use bytes::Bytes;
use phalanx_resp::{Reply, Version};

/// What a command asks its surroundings to do, beside sending its reply.
#[derive(Debug, Default)]
pub struct Effects {
    /// Replies and published messages for other clients, in order.
    pub messages: Vec<(ClientId, Reply)>,
    /// Clients whose connections are to be closed.
    pub closed: Vec<ClientId>,
    /// Writes, in order.
    pub changes: Vec<Change>,
    /// Keys that changed, once that was [asked for](super::Keyspace::note_touched).
    pub touched: Touched,
    /// The command read a key that will end by time.
    pub read_ending: bool,
    /// What takes the writes back, in their order: see [`super::Keyspace::undo`].
    pub undo: Vec<Undo>,
    /// The client that sent the command speaks this version from its reply on.
    pub version: Option<Version>,
    /// The client that sent the command has given the password just now.
    pub authenticated: bool,
    /// All keys and values are to be written to disk.
    pub save: Option<Save>,
    /// The server is to end.
    pub shutdown: bool,
    /// What the user should know of streams: the stream, and a sentence.
    pub reports: Vec<(Bytes, String)>,
    /// What other nodes of a shared store are to be asked.
    pub requests: Vec<NodeRequest>,
    /// What was removed; dropping it takes time, and needs no lock.
    pub garbage: Vec<Garbage>,
}

/// How a client wants everything to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Save {
    /// This client waits for the message that it is done.
    Wait(ClientId),
    /// No client waits.
    Background,
}

impl Effects {
    /// Forgets everything, for the next command.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.closed.clear();
        self.changes.clear();
        self.touched.clear();
        self.read_ending = false;
        self.undo.clear();
        self.garbage.clear();
        self.reports.clear();
        self.requests.clear();
        self.version = None;
        self.authenticated = false;
        self.save = None;
        self.shutdown = false;
    }
}
