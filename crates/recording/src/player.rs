//! Feeding a recording to the core it was made from.

use crate::entry::{CommandDigest, Entry, Header};
use crate::error::RecordingError;
use crate::read::Section;
use crate::replay::Replay;
use phalanx_types::{Outbox, Time};
use std::fmt;

/// An event that is about to be fed.
#[derive(Debug)]
pub struct Pending<E> {
    /// Which entry it is, counted from 1 since the core was made.
    pub entry: u64,
    pub at: Time,
    pub event: E,
}

/// What the core decided on one event.
#[derive(Debug)]
pub struct Step<C> {
    pub entry: u64,
    pub at: Time,
    pub commands: Vec<C>,
    pub comparison: Comparison,
}

/// Whether a decision is the one that was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Same,
    /// The recording ends with this event; what was decided on it is not known.
    NotRecorded,
    Differs {
        recorded: CommandDigest,
        replayed: CommandDigest,
    },
}

/// Replays one section.
pub struct Player<'a, R: Replay> {
    core: R,
    blocks: Box<dyn Iterator<Item = (u64, &'a [u8])> + 'a>,
    /// What is left of the present block, and where its first byte stands in the file.
    block: (u64, &'a [u8]),
    /// An entry that was read to see what it is.
    ahead: Option<Entry<R::Event>>,
    now: Time,
    entry: u64,
    full: bool,
    out: Outbox<R::Command>,
    scratch: Vec<u8>,
}

impl<R: Replay> fmt::Debug for Player<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player").field("entry", &self.entry).field("now", &self.now).finish_non_exhaustive()
    }
}

impl<'a, R: Replay> Player<'a, R> {
    /// Makes the core as it was when the section began.
    ///
    /// # Errors
    /// The section is of another core or another version of the program, or was recorded by a
    /// build whose configuration looks different.
    pub fn new(section: Section<'a>) -> Result<Self, RecordingError> {
        let (Header { core, program, first_entry, .. }, offset) = (section.header(), section.offset());
        if core != R::CORE {
            return Err(RecordingError::OtherCore { offset, core: core.clone(), wanted: R::CORE });
        }
        let own = env!("CARGO_PKG_VERSION");
        if program != own {
            return Err(RecordingError::OtherProgram { offset, program: program.clone(), own });
        }
        let config = postcard::from_bytes(section.config()).map_err(|source| RecordingError::Unknown {
            what: "configuration",
            offset,
            source,
        })?;
        Ok(Self {
            core: R::new(config),
            blocks: Box::new(section.blocks()),
            block: (offset, &[]),
            ahead: None,
            now: Time::ZERO,
            entry: first_entry.saturating_sub(1),
            full: false,
            out: Outbox::default(),
            scratch: Vec::new(),
        })
    }

    /// The core as it is after the events so far.
    pub fn core(&self) -> &R {
        &self.core
    }

    /// Whether the recording stopped at its limit before the core did.
    pub fn is_cut_short(&self) -> bool {
        self.full
    }

    /// The next event, not fed yet; `None` at the end of the section.
    ///
    /// # Errors
    /// An entry was recorded by another build.
    pub fn next_event(&mut self) -> Result<Option<Pending<R::Event>>, RecordingError> {
        loop {
            let (now, event) = match self.take_entry()? {
                None => return Ok(None),
                Some(Entry::Event { later, event }) => (Time(self.now.0.saturating_add(later)), event),
                Some(Entry::EventAt { now, event }) => (Time(now), event),
                Some(Entry::Full) => {
                    self.full = true;
                    continue;
                }
                // A digest is taken together with its event.
                Some(Entry::Decided(_)) => continue,
            };
            self.now = now;
            self.entry += 1;
            return Ok(Some(Pending { entry: self.entry, at: now, event }));
        }
    }

    /// Feeds an event and compares what the core decides with what was recorded.
    ///
    /// # Errors
    /// The entry after the event was recorded by another build.
    pub fn apply(&mut self, pending: Pending<R::Event>) -> Result<Step<R::Command>, RecordingError> {
        let Pending { entry, at, event } = pending;
        self.core.feed(at, event, &mut self.out);
        let commands: Vec<R::Command> = self.out.drain().collect();
        let replayed = CommandDigest::of::<R>(&commands, &mut self.scratch);
        self.ahead = self.take_entry()?;
        let nothing = CommandDigest { commands: 0, digest: 0 };
        let (recorded, ended) = match &self.ahead {
            Some(Entry::Decided(digest)) => (*digest, false),
            Some(_) => (nothing, false),
            None => (nothing, true),
        };
        let comparison = match recorded == replayed {
            true => Comparison::Same,
            false if ended => Comparison::NotRecorded,
            false => Comparison::Differs { recorded, replayed },
        };
        Ok(Step { entry, at, commands, comparison })
    }

    fn take_entry(&mut self) -> Result<Option<Entry<R::Event>>, RecordingError> {
        if let Some(entry) = self.ahead.take() {
            return Ok(Some(entry));
        }
        while self.block.1.is_empty() {
            let Some(block) = self.blocks.next() else { return Ok(None) };
            self.block = block;
        }
        let (offset, bytes) = self.block;
        let (entry, rest) = postcard::take_from_bytes(bytes).map_err(|source| RecordingError::Unknown {
            what: "entry",
            offset,
            source,
        })?;
        self.block = (offset + (bytes.len() - rest.len()) as u64, rest);
        Ok(Some(entry))
    }
}
