//! The records of a search: lines of `events.jsonl`, read while they are written.

use phalanx_search::core::record::SearchRecord;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The name of this file in the directory of a search.
pub const EVENTS_FILE: &str = "events.jsonl";

/// A line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventLine {
    /// When it was written down, in milliseconds since 1970.
    pub at: u64,
    #[serde(flatten)]
    pub record: SearchRecord,
}

/// Why the records of a search could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadEventsError {
    #[error("could not read the records of the search from {}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("line {line} of {} is not a record of a search", path.display())]
    Damaged { path: PathBuf, line: u64, source: serde_json::Error },
    #[error("line {line} of {} is about trial {trial}, which no line before it proposes", path.display())]
    UnknownTrial { path: PathBuf, line: u64, trial: phalanx_search::core::record::TrialId },
    #[error("{} has become shorter than what was read of it before", path.display())]
    Shrunk { path: PathBuf },
}

/// Reads `events.jsonl` from where it stopped before.
#[derive(Debug)]
pub struct EventReader {
    path: PathBuf,
    /// Of the first byte that was not understood yet.
    offset: u64,
    /// How many lines lie before it.
    lines: u64,
}

impl EventReader {
    /// A reader of this file, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), offset: 0, lines: 0 }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many lines were read.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The lines that were completed since the last call. A last line without an end is being written, or was when its
    /// writer died: it is read when it has an end.
    ///
    /// # Errors
    /// The file cannot be read, has become shorter, or the next line is damaged. Lines before a damaged one are given
    /// first; the call after that fails, and so does every further one.
    pub fn read_new(&mut self) -> Result<Vec<EventLine>, ReadEventsError> {
        let bytes = self.unread()?;
        let mut events = Vec::new();
        let mut rest = bytes.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end + 1);
            match serde_json::from_slice(line) {
                Ok(event) => events.push(event),
                // What was understood is given first.
                Err(_later) if !events.is_empty() => break,
                Err(source) => {
                    let path = self.path.clone();
                    return Err(ReadEventsError::Damaged { path, line: self.lines + 1, source });
                }
            }
            self.offset += line.len() as u64;
            self.lines += 1;
            rest = after;
        }
        Ok(events)
    }

    fn unread(&self) -> Result<Vec<u8>, ReadEventsError> {
        let io = |source| ReadEventsError::Io { path: self.path.clone(), source };
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && self.offset == 0 => return Ok(Vec::new()),
            Err(error) => return Err(io(error)),
        };
        if file.metadata().map_err(io)?.len() < self.offset {
            return Err(ReadEventsError::Shrunk { path: self.path.clone() });
        }
        file.seek(SeekFrom::Start(self.offset)).map_err(io)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_search::core::record::{SearchEnd, TrialId};
    use std::io::Write;

    fn line(at: u64) -> String {
        let record = SearchRecord::TrialStarted { trial: TrialId(at), node: "n1".into() };
        serde_json::to_string(&EventLine { at, record }).unwrap() + "\n"
    }

    #[test]
    fn a_line_has_the_time_beside_the_record() {
        assert_eq!(
            line(5),
            "{\"at\":5,\"event\":\"trial_started\",\"value\":{\"trial\":5,\"node\":\"n1\"}}\n"
        );
        let end = EventLine { at: 1, record: SearchRecord::SearchEnded { end: SearchEnd::Finished } };
        let text = serde_json::to_string(&end).unwrap();
        assert_eq!(serde_json::from_str::<EventLine>(&text).unwrap(), end);
    }

    #[test]
    fn lines_come_once_whatever_the_cuts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(EVENTS_FILE);
        let mut reader = EventReader::new(&path);
        assert_eq!(reader.read_new().unwrap(), []);
        let text: String = (1..=20).map(line).collect();
        let mut read = Vec::new();
        let mut file = File::create(&path).unwrap();
        for part in text.as_bytes().chunks(7) {
            file.write_all(part).unwrap();
            read.extend(reader.read_new().unwrap());
        }
        assert_eq!(read.iter().map(|event| event.at).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
        assert_eq!(reader.lines(), 20);
        assert_eq!(reader.read_new().unwrap(), []);
    }

    #[test]
    fn a_half_last_line_may_be_cut_off_and_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(EVENTS_FILE);
        let mut reader = EventReader::new(&path);
        std::fs::write(&path, line(1) + "{\"at\":2,\"eve").unwrap();
        assert_eq!(reader.read_new().unwrap().len(), 1);
        std::fs::write(&path, line(1) + &line(3)).unwrap();
        assert_eq!(reader.read_new().unwrap()[0].at, 3);
        std::fs::write(&path, line(1)).unwrap();
        assert!(matches!(reader.read_new(), Err(ReadEventsError::Shrunk { .. })));
    }

    #[test]
    fn a_damaged_line_is_named_after_those_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(EVENTS_FILE);
        std::fs::write(&path, line(1) + &line(2) + "{\"at\":3}\n" + &line(4)).unwrap();
        let mut reader = EventReader::new(&path);
        assert_eq!(reader.read_new().unwrap().len(), 2);
        for _ in 0..2 {
            let error = reader.read_new().unwrap_err();
            assert!(
                error.to_string().starts_with("line 3 of ") && error.to_string().contains("events.jsonl")
            );
        }
    }
}
