//! A core whose inputs are recorded.

use crate::error::RecordingError;
use crate::replay::Replay;
use crate::write::{Limits, Space, Tape};
use phalanx_types::{Outbox, Time};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// A core, and the recording of what it is fed, if there is one.
///
/// The core can be read through `Deref`; it changes by [`Recorded::feed`] alone, so that nothing
/// reaches it unrecorded. What has gathered is written when there is much of it, by
/// [`Recorded::flush`], and when the value is dropped, also by a panic.
pub struct Recorded<R: Replay> {
    core: R,
    tape: Option<Tape>,
}

impl<R: Replay + fmt::Debug> fmt::Debug for Recorded<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("core", &self.core).field("tape", &self.tape).finish()
    }
}

impl<R: Replay> Deref for Recorded<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.core
    }
}

impl<R: Replay> Recorded<R> {
    /// A core that is not recorded.
    pub fn off(core: R) -> Self {
        Self { core, tape: None }
    }

    /// Makes a core and begins a section of the recording at `path`.
    ///
    /// # Errors
    /// The file cannot be written, or is something else than a recording.
    pub fn begin(config: R::Config, path: &Path, limits: Limits) -> Result<Self, RecordingError> {
        let tape = Tape::open(path, R::CORE, &config, limits)?;
        Ok(Self { core: R::new(config), tape: Some(tape) })
    }

    /// Begins a section with a snapshot of a core that exists. A core that cannot be snapshotted
    /// is not recorded.
    ///
    /// # Errors
    /// The file cannot be written, or is something else than a recording. The core comes back.
    pub fn resume(core: R, path: &Path, limits: Limits) -> Result<Self, (R, RecordingError)> {
        let tape = match core.snapshot() {
            Some(snapshot) => Tape::open(path, R::CORE, &snapshot, limits).map(Some),
            None => Ok(None),
        };
        match tape {
            Ok(tape) => Ok(Self { core, tape }),
            Err(error) => Err((core, error)),
        }
    }

    /// Whether what the core is fed is being recorded.
    pub fn is_recording(&self) -> bool {
        self.tape.is_some()
    }

    /// Tells the core what happened, and records it.
    pub fn feed(&mut self, now: Time, event: R::Event, out: &mut Outbox<R::Command>) {
        let Some(tape) = &mut self.tape else { return self.core.feed(now, event, out) };
        let before = out.commands().len();
        let recorded = tape.event(now, &event);
        self.core.feed(now, event, out);
        let decided = out.commands().get(before..).unwrap_or_default();
        let space = recorded.and_then(|()| tape.decided::<R>(decided));
        let space = match space {
            Ok(Space::Used) => self.go_on_in_next_segment(),
            other => other.map(|_| ()),
        };
        if let Err(error) = space {
            self.give_up(&error);
        }
    }

    fn go_on_in_next_segment(&mut self) -> io::Result<()> {
        let Some(tape) = &mut self.tape else { return Ok(()) };
        let space = match self.core.snapshot() {
            Some(snapshot) => tape.rotate(&snapshot)?,
            None => Space::Used,
        };
        if space == Space::Used {
            tape.end_full()?;
            tracing::info!(recording = %tape.path().display(), "the recording has reached its limit and ends");
            self.tape = None;
        }
        Ok(())
    }

    /// Whether [`Recorded::flush`] has something to write.
    pub fn has_unflushed(&self) -> bool {
        self.tape.as_ref().is_some_and(Tape::has_unflushed)
    }

    /// Hands what has gathered to the operating system: from here on it survives this process.
    pub fn flush(&mut self) {
        if let Some(Err(error)) = self.tape.as_mut().map(Tape::flush) {
            self.give_up(&error);
        }
    }

    fn give_up(&mut self, error: &io::Error) {
        if let Some(tape) = self.tape.take() {
            tracing::warn!(%error, recording = %tape.path().display(), "the recording ends: it cannot be written");
        }
    }
}
