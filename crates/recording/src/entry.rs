//! What the blocks of a recording hold.

use crate::digest::Digest;
use crate::replay::Replay;
use serde::{Deserialize, Serialize};

/// What a section begins with; the core's configuration follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Which core was recorded: [`Replay::CORE`].
    pub core: String,
    /// The version of the program that recorded it.
    pub program: String,
    /// When the section was begun, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The number of its first entry, counted from 1 since the core was made.
    pub first_entry: u64,
}

/// One entry of a section. Times are differences, since most are small.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry<E> {
    /// The core was told this, `later` microseconds after the entry before.
    Event { later: u64, event: E },
    /// As [`Entry::Event`], but the clock went back; `now` is the time itself.
    EventAt { now: u64, event: E },
    /// What the core decided on the event before. An event without decisions has none.
    Decided(CommandDigest),
    /// The recording stops here although the core goes on.
    Full,
}

/// A digest of the commands that one event gave rise to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandDigest {
    /// How many commands there were.
    pub commands: u32,
    /// The [`Digest`] over all of them.
    pub digest: u64,
}

impl CommandDigest {
    /// The digest of these commands; `scratch` is for encodings.
    pub(crate) fn of<R: Replay>(commands: &[R::Command], scratch: &mut Vec<u8>) -> Self {
        let mut digest = Digest::new(scratch);
        for command in commands {
            R::digest(command, &mut digest);
        }
        let count = u32::try_from(commands.len()).unwrap_or(u32::MAX);
        Self { commands: count, digest: digest.end() }
    }
}
