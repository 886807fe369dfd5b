//! Opening a directory: the newest snapshot, then the journal behind it.

mod scan;

use super::directory::{Directory, DirectoryLock, UNFINISHED_SNAPSHOT, file_name};
use super::file_error::FileError;
use super::frames::{Frame, FrameReader, NextFrame};
use super::journal::{Journal, JournalFile, JournalShared, JournalSizes, SyncState, create_journal};
use super::values::{LogKind, SegmentFile, StoredValue, ValueLog};
use crate::core::{FileHeader, FileKind, FrameClass, HEADER_LEN, HeaderProblem, Position};
use crate::error::OpenError;
use crate::settings::Settings;
use bytes::Bytes;
use scan::JournalTail;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a recovered record was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Snapshot,
    Journal(Position),
}

/// One record of a directory.
#[derive(Debug, Clone)]
pub struct Recovered {
    pub source: Source,
    pub kind: u8,
    /// All parts of the record as one.
    pub body: Bytes,
    /// Its values, which are read when they are wanted.
    pub values: Vec<StoredValue>,
}

/// What was found and put in order when a directory was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A record that was being written was cut off, with everything behind it.
    TornTail { path: PathBuf, offset: u64, bytes: u64 },
    /// A journal segment behind a torn record was removed.
    SegmentBehindTornTail { path: PathBuf, bytes: u64 },
    /// A file that was being made was removed.
    UnfinishedFile { path: PathBuf },
    /// A file that the newest snapshot covers was removed.
    CoveredFile { path: PathBuf },
}

/// A directory that is being read.
///
/// Memory is needed for one record at a time. Values stay on disk.
#[derive(Debug)]
pub struct Recovery {
    directory: Arc<Directory>,
    lock: DirectoryLock,
    settings: Settings,
    values: Arc<ValueLog>,
    /// Files that were not read yet.
    files: VecDeque<(FileKind, u64)>,
    reader: Option<(FileKind, u64, FrameReader)>,
    /// Records of the snapshot so far.
    snapshot_records: u64,
    sizes: JournalSizes,
    tail: Option<JournalTail>,
    notes: Vec<Note>,
    failed: bool,
}

/// Opens or makes a directory.
///
/// # Errors
/// The directory is used by another process, is not private, cannot be read, or is damaged.
pub fn recover(path: &Path, settings: Settings) -> Result<Recovery, OpenError> {
    let (directory, lock) = Directory::open_locked(path)?;
    let directory = Arc::new(directory);
    let kind = LogKind::Named { compact_percent: settings.compact_percent };
    let values = Arc::new(ValueLog::new(directory.clone(), kind, settings.segment_bytes));
    let mut recovery = Recovery {
        directory,
        lock,
        settings,
        values,
        files: VecDeque::new(),
        reader: None,
        snapshot_records: 0,
        sizes: JournalSizes::default(),
        tail: None,
        notes: Vec::new(),
        failed: false,
    };
    recovery.prepare()?;
    Ok(recovery)
}

impl Recovery {
    /// What was found and put in order so far.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    fn prepare(&mut self) -> Result<(), OpenError> {
        match self.directory.open_file(UNFINISHED_SNAPSHOT) {
            Ok(_) => {
                self.directory.remove(UNFINISHED_SNAPSHOT)?;
                let path = self.directory.path_of(UNFINISHED_SNAPSHOT);
                self.notes.push(Note::UnfinishedFile { path });
            }
            Err(OpenError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let snapshot = self.directory.numbers(FileKind::Snapshot)?.last().copied();
        let first = snapshot.unwrap_or(1);
        for kind in [FileKind::Snapshot, FileKind::Journal] {
            for number in self.directory.numbers(kind)?.into_iter().filter(|n| *n < first) {
                let path = self.directory.path_of(&file_name(kind, number));
                self.directory.remove(&file_name(kind, number))?;
                self.notes.push(Note::CoveredFile { path });
            }
        }
        self.adopt_values()?;
        let journals = self.directory.numbers(FileKind::Journal)?;
        for (number, expected) in journals.iter().zip(first..) {
            if *number != expected {
                return Err(self.missing(expected));
            }
        }
        // A snapshot is written behind the segment that it begins.
        if snapshot.is_some() && journals.is_empty() {
            return Err(self.missing(first));
        }
        self.tail = scan::check_tail(&self.directory, &self.values, first, &mut self.notes)?;
        self.files.extend(snapshot.map(|number| (FileKind::Snapshot, number)));
        if let Some(tail) = &self.tail {
            self.files.extend((first..=tail.number).map(|number| (FileKind::Journal, number)));
        }
        Ok(())
    }

    fn missing(&self, number: u64) -> OpenError {
        OpenError::Missing { path: self.directory.path_of(&file_name(FileKind::Journal, number)) }
    }

    fn adopt_values(&mut self) -> Result<(), OpenError> {
        for number in self.directory.numbers(FileKind::Values)? {
            let name = file_name(FileKind::Values, number);
            let path = self.directory.path_of(&name);
            let opened = self.directory.open_file(&name)?;
            match parse_header(&opened.front, FileKind::Values, number) {
                Ok(_) => self.values.adopt_file(SegmentFile::new(number, opened.file, path), opened.len),
                Err(HeaderProblem::Unfinished) => {
                    // A record that refers to it is found out when it is read.
                    self.directory.remove(&name)?;
                    self.notes.push(Note::UnfinishedFile { path });
                }
                Err(HeaderProblem::Damaged) => return Err(OpenError::Damaged { offset: 0, path }),
            }
        }
        Ok(())
    }

    /// The next record: those of the snapshot, then those of the journal.
    ///
    /// # Errors
    /// A file cannot be read or is damaged. Nothing follows an error.
    pub fn next_record(&mut self) -> Result<Option<Recovered>, OpenError> {
        if self.failed {
            return Ok(None);
        }
        let next = self.read_next();
        self.failed = next.is_err();
        next
    }

    fn read_next(&mut self) -> Result<Option<Recovered>, OpenError> {
        loop {
            let Some((kind, number, mut reader)) = self.reader.take() else {
                let Some((kind, number)) = self.files.pop_front() else { return Ok(None) };
                self.reader = Some((kind, number, open_frames(&self.directory, kind, number)?));
                continue;
            };
            let damaged = |offset: u64, path: &Path| OpenError::Damaged { offset, path: path.to_owned() };
            let frame = match reader.next()? {
                NextFrame::Frame(frame) => frame,
                NextFrame::Bad => return Err(damaged(reader.offset, &reader.path)),
                // The last journal segment has no end, all other files have.
                NextFrame::Eof if kind == FileKind::Journal && self.files.is_empty() => {
                    self.sizes.journal += reader.len.saturating_sub(HEADER_LEN as u64);
                    continue;
                }
                NextFrame::Eof => return Err(damaged(reader.offset, &reader.path)),
            };
            match (frame.class, kind) {
                (FrameClass::Record, _) => {
                    let recovered = self.recovered(kind, number, frame, &reader)?;
                    self.reader = Some((kind, number, reader));
                    return Ok(Some(recovered));
                }
                (FrameClass::Barrier, _) => self.reader = Some((kind, number, reader)),
                (FrameClass::End, FileKind::Snapshot) => {
                    if frame.body != self.snapshot_records.to_le_bytes() || reader.offset != reader.len {
                        return Err(damaged(frame.at, &reader.path));
                    }
                    self.sizes.snapshot = reader.len;
                }
                (FrameClass::End, _) => {
                    if reader.offset != reader.len {
                        return Err(damaged(frame.at, &reader.path));
                    }
                    self.sizes.journal += reader.len.saturating_sub(HEADER_LEN as u64);
                }
            }
        }
    }

    fn recovered(
        &mut self,
        kind: FileKind,
        number: u64,
        frame: Frame,
        reader: &FrameReader,
    ) -> Result<Recovered, OpenError> {
        let values = frame.refs.iter().map(|reference| {
            self.values.adopt_value(*reference).ok_or_else(|| OpenError::NoValue {
                offset: frame.at,
                segment: self.directory.path_of(&file_name(FileKind::Values, reference.segment)),
                path: reader.path.clone(),
            })
        });
        let values = values.collect::<Result<_, _>>()?;
        let source = match kind {
            FileKind::Snapshot => Source::Snapshot,
            FileKind::Journal | FileKind::Values => {
                Source::Journal(Position { segment: number, offset: frame.at })
            }
        };
        self.snapshot_records += u64::from(kind == FileKind::Snapshot);
        Ok(Recovered { source, kind: frame.kind, body: frame.body.into(), values })
    }

    /// Begins to write behind the last record.
    ///
    /// # Errors
    /// Not all records were read, or the system refuses to write.
    pub fn start(mut self) -> Result<Journal, OpenError> {
        if self.failed || self.next_record()?.is_some() {
            return Err(OpenError::Unread);
        }
        let directory = self.directory;
        // What a killed process left in the page cache is brought to disk before anything counts on it.
        self.values.sync_all()?;
        let first = self.tail.as_ref().map_or(1, |tail| tail.unsynced_from);
        let last = self.tail.as_ref().map_or(0, |tail| tail.number);
        for number in first..=last {
            let name = file_name(FileKind::Journal, number);
            let synced = directory.open_file(&name)?.file.sync_all();
            synced.map_err(FileError::when("flush", &directory.path_of(&name)))?;
        }
        directory.sync()?;
        let position =
            self.tail.as_ref().map_or(Position::default(), |t| Position { segment: t.number, offset: t.end });
        let synced = SyncState { files: Vec::new(), written: position, synced: position };
        let parts = (directory.clone(), self.lock);
        let shared = JournalShared::new(parts, self.settings, self.values, synced, self.sizes);
        let (current, end) = match self.tail {
            Some(tail) if !tail.has_end => {
                let name = file_name(FileKind::Journal, tail.number);
                let file = Arc::new(directory.open_file(&name)?.file);
                let path = directory.path_of(&name);
                (JournalFile { number: tail.number, file, path, salt: tail.salt }, tail.end)
            }
            tail => {
                let number = tail.map_or(1, |tail| tail.number + 1);
                (create_journal(&shared, number)?, HEADER_LEN as u64)
            }
        };
        let written = Position { segment: current.number, offset: end };
        {
            let mut state = super::journal::lock(&shared.synced);
            state.files.push(current.clone());
            (state.written, state.synced) = (written, written);
        }
        let path = directory.path().to_owned();
        let started = Journal::start(Arc::new(shared), current, end);
        Ok(started.map_err(FileError::when("start the threads of", &path))?)
    }
}

impl Iterator for Recovery {
    type Item = Result<Recovered, OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}

fn parse_header(front: &[u8], kind: FileKind, number: u64) -> Result<FileHeader, HeaderProblem> {
    let header = FileHeader::parse(front)?;
    if (header.kind, header.number) == (kind, number) { Ok(header) } else { Err(HeaderProblem::Damaged) }
}

/// Opens a file that must have a header.
fn open_frames(directory: &Directory, kind: FileKind, number: u64) -> Result<FrameReader, OpenError> {
    let name = file_name(kind, number);
    let opened = directory.open_file(&name)?;
    let path = directory.path_of(&name);
    match parse_header(&opened.front, kind, number) {
        Ok(header) => Ok(FrameReader::new(opened.file, path, &header, opened.len)?),
        Err(_) => Err(OpenError::Damaged { offset: 0, path }),
    }
}
