//! Writing a recording.

use crate::block::{BlockKind, PREFIX_LEN, begin, preamble, seal};
use crate::encode::append;
use crate::entry::{CommandDigest, Entry, Header};
use crate::error::RecordingError;
use crate::read::Recording;
use crate::replay::Replay;
use phalanx_types::Time;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A block is written once it holds this many bytes, whether or not there is time for it.
const GATHER: usize = 64 << 10;

/// How large a recording may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes in one file. There are at most two, the second being [`old_segment`].
    pub segment: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { segment: 32 << 20 }
    }
}

/// The file that holds what was recorded before the newest segment: `FILE.old`.
pub fn old_segment(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".old");
    name.into()
}

/// An open recording of one core.
#[derive(Debug)]
pub(crate) struct Tape {
    path: PathBuf,
    core: &'static str,
    limits: Limits,
    file: File,
    /// Bytes in the file.
    written: u64,
    /// The block that is being gathered.
    block: Vec<u8>,
    scratch: Vec<u8>,
    now: Time,
    entries: u64,
}

/// Whether a recording goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Left,
    /// The file has reached its limit: the next segment has to begin, or the recording ends.
    Used,
}

impl Tape {
    /// Begins a section, behind what the file holds already.
    pub(crate) fn open<C: Serialize>(
        path: &Path,
        core: &'static str,
        config: &C,
        limits: Limits,
    ) -> Result<Self, RecordingError> {
        let failed =
            |doing: &'static str| move |source| RecordingError::Io { doing, path: path.to_owned(), source };
        let mut written = match std::fs::read(path) {
            Ok(bytes) => kept(path, bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(failed("read")(source)),
        };
        // Half a segment at least is for the new section.
        if written.is_none_or(|len| len > limits.segment / 2) {
            match std::fs::rename(path, old_segment(path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("move")(error)),
                _ => written = None,
            }
        }
        let (file, written) = start_file(path, written).map_err(failed("open"))?;
        let mut block = Vec::with_capacity(GATHER + GATHER / 4);
        begin(BlockKind::Entries, &mut block);
        let (scratch, now) = (Vec::new(), Time::ZERO);
        let failed_path = failed("write");
        let mut tape =
            Self { path: path.to_owned(), core, limits, file, written, block, scratch, now, entries: 0 };
        let begun = tape.section_block(config).and_then(|block| tape.begin_section(block));
        begun.map_err(failed_path)?;
        Ok(tape)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Encodes the block that begins a section.
    fn section_block<C: Serialize>(&mut self, config: &C) -> io::Result<Vec<u8>> {
        let header = Header {
            core: self.core.to_owned(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            unix_ms: unix_millis(),
            first_entry: self.entries + 1,
        };
        let mut block = std::mem::take(&mut self.scratch);
        begin(BlockKind::Section, &mut block);
        append(&header, &mut block).and_then(|()| append(config, &mut block)).map_err(io::Error::other)?;
        Ok(block)
    }

    fn begin_section(&mut self, mut block: Vec<u8>) -> io::Result<()> {
        self.write_block(&mut block)?;
        self.now = Time::ZERO;
        block.clear();
        block.shrink_to(GATHER);
        self.scratch = block;
        Ok(())
    }

    fn write_block(&mut self, block: &mut [u8]) -> io::Result<()> {
        if !seal(block) {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.file.write_all(block)?;
        self.written += block.len() as u64;
        Ok(())
    }

    /// Adds an event, before the core hears of it.
    pub(crate) fn event<E: Serialize>(&mut self, now: Time, event: &E) -> io::Result<()> {
        let entry = match now.0.checked_sub(self.now.0) {
            Some(later) => Entry::Event { later, event },
            None => Entry::EventAt { now: now.0, event },
        };
        append(&entry, &mut self.block).map_err(io::Error::other)?;
        self.now = now;
        self.entries += 1;
        Ok(())
    }

    /// Adds what the core decided on the last event, and writes when much has gathered.
    pub(crate) fn decided<R: Replay>(&mut self, commands: &[R::Command]) -> io::Result<Space> {
        if !commands.is_empty() {
            let digest = CommandDigest::of::<R>(commands, &mut self.scratch);
            append(&Entry::<()>::Decided(digest), &mut self.block).map_err(io::Error::other)?;
        }
        if self.block.len() >= GATHER {
            self.flush()?;
        }
        let full = self.written + self.block.len() as u64 >= self.limits.segment;
        Ok(if full { Space::Used } else { Space::Left })
    }

    pub(crate) fn has_unflushed(&self) -> bool {
        self.block.len() > PREFIX_LEN + 1
    }

    /// Hands what has gathered to the operating system.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if !self.has_unflushed() {
            return Ok(());
        }
        let mut block = std::mem::take(&mut self.block);
        let written = self.write_block(&mut block);
        begin(BlockKind::Entries, &mut block);
        self.block = block;
        written
    }

    /// Goes on in a new file that begins with a snapshot of the core; the present file becomes
    /// the old one. When the snapshot leaves less than half a segment, the recording ends.
    pub(crate) fn rotate<C: Serialize>(&mut self, snapshot: &C) -> io::Result<Space> {
        self.flush()?;
        let block = self.section_block(snapshot)?;
        if block.len() as u64 > self.limits.segment / 2 {
            return Ok(Space::Used);
        }
        std::fs::rename(&self.path, old_segment(&self.path))?;
        (self.file, self.written) = start_file(&self.path, None)?;
        self.begin_section(block)?;
        Ok(Space::Left)
    }

    /// Says that the recording ends here although the core goes on.
    pub(crate) fn end_full(&mut self) -> io::Result<()> {
        append(&Entry::<()>::Full, &mut self.block).map_err(io::Error::other)?;
        self.flush()
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        if let Err(error) = self.flush() {
            tracing::warn!(%error, recording = %self.path.display(), "the end of a recording is lost");
        }
    }
}

/// The length of a file to which a section can be added; `None` when it has to be moved away.
fn kept(path: &Path, bytes: Vec<u8>) -> Result<Option<u64>, RecordingError> {
    // Killed before its first bytes were written.
    if bytes.len() < preamble().len() && preamble().starts_with(&bytes) {
        return Ok(None);
    }
    match Recording::parse(path, bytes) {
        Ok(recording) if recording.damage().is_some() => Ok(None),
        Ok(recording) => Ok(Some(recording.whole_len())),
        // It is a recording all the same, and the next file is of this format.
        Err(RecordingError::OtherFormat { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file for what follows its first `keep` bytes, or makes a new one.
fn start_file(path: &Path, keep: Option<u64>) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(path)?;
    match keep {
        Some(len) => {
            file.set_len(len)?;
            file.seek(SeekFrom::Start(len))?;
            Ok((file, len))
        }
        None => {
            file.set_len(0)?;
            file.write_all(&preamble())?;
            Ok((file, preamble().len() as u64))
        }
    }
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
