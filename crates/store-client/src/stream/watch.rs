use super::StreamError;
use super::link::{StreamLink, ms};
use crate::keys::Access;
use crate::store::Store;
use phalanx_streams::StreamInfo;
use std::time::Duration;

/// Follows streams: the store answers when something has changed.
#[derive(Debug)]
pub struct StreamWatch {
    link: StreamLink,
    version: u64,
}

impl StreamWatch {
    pub(super) fn open(store: &Store, stream: Option<&str>) -> Result<Self, StreamError> {
        let link = match stream {
            Some(stream) => StreamLink::of(store, stream, Access::Read)?,
            None => StreamLink::whole(store)?,
        };
        Ok(Self { link: link.own()?, version: 0 })
    }

    /// What there is to show when it has changed since the last call; nothing if it has not within this time.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn next(&mut self, within: Duration) -> Result<Option<Vec<StreamInfo>>, StreamError> {
        let (version, wait) = (self.version.to_string(), ms(within));
        let answer = self.link.ask("WATCH", &[version.as_bytes(), wait.as_bytes()], Some(within))?;
        if answer.is("UNCHANGED") {
            return Ok(None);
        }
        self.version = answer.number(0)?;
        answer.json_at(1).map(Some)
    }
}
