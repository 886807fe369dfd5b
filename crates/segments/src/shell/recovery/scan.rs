//! Telling what was being written when the process or machine died from damage.
//!
//! Barriers and file headers name a position up to which everything was on disk. A record that is not whole behind the
//! farthest such position was being written, and it is cut off with all that follows. The same holds for a record whose
//! value is not whole: values and records may reach the disk in any order. Anything before that position was whole once.

use super::{Note, parse_header};
use crate::core::{FileHeader, FileKind, FrameClass, HeaderProblem, Position, ValueRef, parse_barrier_body};
use crate::error::OpenError;
use crate::shell::directory::{Directory, file_name};
use crate::shell::file_error::FileError;
use crate::shell::frames::{FrameReader, NextFrame};
use crate::shell::values::ValueLog;
use std::sync::Arc;

/// The end of the journal, after what was torn was cut off.
#[derive(Debug)]
pub(super) struct JournalTail {
    /// The last segment.
    pub(super) number: u64,
    pub(super) salt: u64,
    /// Where its records end.
    pub(super) end: u64,
    /// It says that another segment follows, which is not there.
    pub(super) has_end: bool,
    /// The first segment that may not be on disk.
    pub(super) unsynced_from: u64,
}

/// What the segments of the tail hold.
#[derive(Debug, Default)]
struct TailScan {
    /// The farthest position that anything names as on disk.
    synced: Position,
    /// The first place that is not a whole record.
    bad: Option<Position>,
    /// References of records that may not be on disk.
    references: Vec<(Position, ValueRef)>,
    /// The last segment, where its records end, and whether it says that another follows.
    last: Option<(FileHeader, u64, bool)>,
}

/// Checks the part of the journal that may not have been on disk, and cuts off what is torn.
pub(super) fn check_tail(
    directory: &Directory,
    values: &Arc<ValueLog>,
    first: u64,
    notes: &mut Vec<Note>,
) -> Result<Option<JournalTail>, OpenError> {
    let Some((last, header)) = last_segment(directory, first, notes)? else { return Ok(None) };
    let unsynced_from = header.synced.segment.clamp(first, last);
    let mut scan = TailScan { synced: header.synced, ..TailScan::default() };
    for number in unsynced_from..=last {
        scan.read(directory, number, number == last)?;
    }
    if let Some(bad) = scan.bad
        && bad < scan.synced
    {
        let path = directory.path_of(&file_name(FileKind::Journal, bad.segment));
        return Err(OpenError::Damaged { offset: bad.offset, path });
    }
    let bad = scan.first_bad_value(values).or(scan.bad);
    if let Some(bad) = bad {
        cut(directory, bad, last, notes)?;
        // The rest is whole, and it is short: the unsynced part of the journal.
        return check_tail(directory, values, first, notes);
    }
    Ok(scan.last.map(|(header, end, has_end)| JournalTail {
        number: header.number,
        salt: header.salt,
        end,
        has_end,
        unsynced_from,
    }))
}

/// The last segment that has a header. Files that were being made are removed.
fn last_segment(
    directory: &Directory,
    first: u64,
    notes: &mut Vec<Note>,
) -> Result<Option<(u64, FileHeader)>, OpenError> {
    let Some(last) = directory.numbers(FileKind::Journal)?.last().copied() else { return Ok(None) };
    let name = file_name(FileKind::Journal, last);
    let path = directory.path_of(&name);
    match parse_header(&directory.open_file(&name)?.front, FileKind::Journal, last) {
        Ok(header) => Ok(Some((last, header))),
        // A snapshot begins with a segment that was on disk before.
        Err(HeaderProblem::Unfinished) if last > first || first == 1 => {
            directory.remove(&name)?;
            notes.push(Note::UnfinishedFile { path });
            last_segment(directory, first, notes)
        }
        Err(_) => Err(OpenError::Damaged { offset: 0, path }),
    }
}

impl TailScan {
    fn read(&mut self, directory: &Directory, number: u64, is_last: bool) -> Result<(), OpenError> {
        let name = file_name(FileKind::Journal, number);
        let opened = directory.open_file(&name)?;
        let path = directory.path_of(&name);
        let Ok(header) = parse_header(&opened.front, FileKind::Journal, number) else {
            return Err(OpenError::Damaged { offset: 0, path });
        };
        self.synced = self.synced.max(header.synced);
        let mut reader = FrameReader::new(opened.file, path, &header, opened.len)?;
        let mut has_end = false;
        while self.bad.is_none() {
            let here = Position { segment: number, offset: reader.offset };
            match reader.next()? {
                NextFrame::Frame(frame) if !has_end => match frame.class {
                    FrameClass::Record => {
                        self.references.extend(frame.refs.into_iter().map(|reference| (here, reference)));
                    }
                    FrameClass::Barrier => {
                        self.synced = self.synced.max(parse_barrier_body(&frame.body).unwrap_or_default());
                        self.references.retain(|(position, _)| *position >= self.synced);
                    }
                    FrameClass::End => has_end = true,
                },
                NextFrame::Eof if has_end || is_last => {
                    self.last = Some((header, reader.offset, has_end));
                    return Ok(());
                }
                // A segment without its end that is not the last one was cut, or something follows its end.
                NextFrame::Frame(_) | NextFrame::Eof | NextFrame::Bad => self.bad = Some(here),
            }
        }
        self.synced = self.synced.max(reader.find_barrier()?.unwrap_or_default());
        Ok(())
    }

    /// The first record that may not have been on disk and refers to a value that is not whole.
    fn first_bad_value(&self, values: &Arc<ValueLog>) -> Option<Position> {
        let is_whole =
            |reference: ValueRef| values.adopt_value(reference).is_some_and(|value| value.map().is_ok());
        let unsynced = self.references.iter().filter(|(position, _)| *position >= self.synced);
        unsynced.into_iter().find(|(_, reference)| !is_whole(*reference)).map(|(position, _)| *position)
    }
}

/// Cuts off everything from this position on.
fn cut(directory: &Directory, from: Position, last: u64, notes: &mut Vec<Note>) -> Result<(), OpenError> {
    // From the end, so that a process that is killed meanwhile leaves segments without a gap.
    for number in (from.segment + 1..=last).rev() {
        let name = file_name(FileKind::Journal, number);
        let bytes = directory.open_file(&name)?.len;
        directory.remove(&name)?;
        notes.push(Note::SegmentBehindTornTail { path: directory.path_of(&name), bytes });
    }
    let name = file_name(FileKind::Journal, from.segment);
    let path = directory.path_of(&name);
    let opened = directory.open_file(&name)?;
    let bytes = opened.len.saturating_sub(from.offset);
    let cut = opened.file.set_len(from.offset).and_then(|()| opened.file.sync_all());
    cut.map_err(FileError::when("cut", &path))?;
    directory.sync()?;
    tracing::warn!(bytes, offset = from.offset, file = %path.display(), "cut a torn record off a journal");
    notes.push(Note::TornTail { path, offset: from.offset, bytes });
    Ok(())
}
