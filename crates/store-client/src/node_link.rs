use crate::StoreError;
use crate::connection::{Command, Connection, checked};
use crate::memory::{Mapped, Memory};
use crate::views::Views;
use bytes::Bytes;
use phalanx_resp::Reply;
use std::time::Duration;

/// A connection to one server, and the memory that is shared with it. Both end together.
#[derive(Debug)]
pub(crate) struct NodeLink {
    connection: Connection,
    memory: Memory,
    /// Large values go through memory that is shared with the server.
    is_sharing: bool,
}

impl NodeLink {
    pub(crate) fn new(connection: Connection, is_sharing: bool) -> Self {
        Self { connection, memory: Memory::default(), is_sharing }
    }

    /// Tensors of this server that are kept.
    pub(crate) fn views(&mut self) -> &mut Views {
        &mut self.memory.views
    }

    /// Whether the server is there and has sent nothing: a connection that ended says so.
    pub(crate) fn is_quiet(&self) -> bool {
        self.connection.is_quiet()
    }

    /// Asks where the server counts changes, unless it was asked before.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn learn_versions(&mut self) -> Result<(), StoreError> {
        if self.is_sharing && self.memory.views.is_unasked() {
            let reply = self.call(vec![Memory::ask_versions()], None)?.pop();
            self.memory.learn_versions(reply);
        }
        Ok(())
    }

    pub(crate) fn is_sharing(&self) -> bool {
        self.is_sharing
    }

    /// Sends commands together; gives their replies.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn call(
        &mut self,
        mut commands: Vec<Command>,
        patience: Option<Duration>,
    ) -> Result<Vec<Reply>, StoreError> {
        let returns = self.memory.returns();
        let skip = usize::from(returns.is_some());
        if let Some(returns) = returns {
            commands.insert(0, returns);
        }
        let mut replies = self.connection.call(commands, patience)?;
        replies.drain(..skip.min(replies.len()));
        Ok(replies)
    }

    /// Sends commands that read; large values are mapped where that is possible.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn read(&mut self, commands: Vec<Command>) -> Result<Vec<Mapped>, StoreError> {
        if !self.is_sharing {
            return self.call(commands, None).map(sent);
        }
        let lend = |command: &Command| {
            std::iter::once(Bytes::from_static(b"PHALANX.LEND")).chain(command.iter().cloned()).collect()
        };
        let replies = self.call(commands.iter().map(lend).collect(), None)?;
        let refused =
            |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with(b"ERR memory can"));
        let mapped = match replies.iter().any(refused) {
            true => Err(std::io::Error::other("the server is on another host")),
            false => replies
                .into_iter()
                .map(|reply| self.memory.mapped(reply))
                .collect::<std::io::Result<Vec<_>>>(),
        };
        match mapped {
            Ok(replies) => Ok(replies),
            Err(error) => {
                self.give_up_sharing(&error);
                self.call(commands, None).map(sent)
            }
        }
    }

    /// Stores a value through shared memory with a command that it is appended to; false if that is impossible.
    ///
    /// # Errors
    /// The connection is lost, or the server is full or refuses the command.
    pub(crate) fn store_shared(&mut self, command: &Command, value: &Bytes) -> Result<bool, StoreError> {
        if !self.is_sharing {
            return Ok(false);
        }
        let taken = match Memory::taken(self.call(vec![Memory::take(value.len())], None)?.pop()) {
            Ok(taken) => taken,
            Err(full @ StoreError::Full { .. }) => return Err(full),
            Err(StoreError::Refused { text }) if text.starts_with("TOOLONG") => return Ok(false),
            Err(error) => return Ok(self.give_up_sharing(&error)),
        };
        if let Err(error) = self.memory.fill(&taken, &[value]) {
            self.memory.give_back(&taken);
            return Ok(self.give_up_sharing(&error));
        }
        let ticket = taken.ticket.to_string();
        let with = [Bytes::from_static(b"PHALANX.WITH"), Bytes::from(ticket)];
        let command = with.into_iter().chain(command.iter().cloned()).collect();
        match checked(self.call(vec![command], None)?.pop()) {
            // Another node has the key now; it is found when the value is sent.
            Err(StoreError::Refused { text }) if text.starts_with("MOVED ") => Ok(false),
            stored => stored.map(|_stored| true),
        }
    }

    fn give_up_sharing(&mut self, error: &dyn std::error::Error) -> bool {
        tracing::debug!(%error, "large values go over the socket");
        self.is_sharing = false;
        false
    }
}

/// Replies of which nothing was mapped.
pub(crate) fn sent(replies: Vec<Reply>) -> Vec<Mapped> {
    replies.into_iter().map(|reply| Mapped { reply, may_keep: false }).collect()
}
