//! Reading a recording.

use crate::block::{BlockKind, FORMAT, Front, MAGIC, PREAMBLE_LEN, front};
use crate::entry::Header;
use crate::error::RecordingError;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A file of recordings, one section after the other.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    bytes: Vec<u8>,
    sections: Vec<Places>,
    damage: Option<u64>,
    torn: u64,
}

/// Where the parts of a section lie in the file.
#[derive(Debug)]
struct Places {
    header: Header,
    offset: u64,
    config: Range<usize>,
    entries: Vec<Range<usize>>,
}

/// What one core was told from one moment on.
#[derive(Debug, Clone, Copy)]
pub struct Section<'a> {
    recording: &'a Recording,
    places: &'a Places,
}

/// Reads a recording without changing it, also while it is being written.
///
/// # Errors
/// The file cannot be read, or is no recording of this format. Damage further on is told by
/// [`Recording::damage`], so that everything before it can be replayed.
pub fn read(path: &Path) -> Result<Recording, RecordingError> {
    let bytes = std::fs::read(path).map_err(|source| RecordingError::Io {
        doing: "read",
        path: path.to_owned(),
        source,
    })?;
    Recording::parse(path, bytes)
}

impl Recording {
    pub(crate) fn parse(path: &Path, bytes: Vec<u8>) -> Result<Self, RecordingError> {
        let (magic, format) = bytes.split_at(MAGIC.len().min(bytes.len()));
        let format = format.first_chunk::<4>().map(|format| u32::from_le_bytes(*format));
        match format.filter(|_| magic == MAGIC) {
            Some(FORMAT) => {}
            Some(format) => {
                return Err(RecordingError::OtherFormat { path: path.to_owned(), format, own: FORMAT });
            }
            None => return Err(RecordingError::NotARecording { path: path.to_owned() }),
        }
        let mut recording =
            Self { path: path.to_owned(), bytes, sections: Vec::new(), damage: None, torn: 0 };
        recording.scan();
        Ok(recording)
    }

    /// Notes where the sections lie, up to the end or the first damage.
    fn scan(&mut self) {
        let mut at = PREAMBLE_LEN;
        while at < self.bytes.len() {
            let (kind, body, len) = match front(self.bytes.get(at..).unwrap_or_default()) {
                Front::Whole { kind, body, len } => (kind, body, len),
                Front::Torn => {
                    self.torn = (self.bytes.len() - at) as u64;
                    return;
                }
                Front::Damaged => {
                    self.damage = Some(at as u64);
                    return;
                }
            };
            let end = at + len;
            match (kind, self.sections.last_mut()) {
                (BlockKind::Section, _) => {
                    let Ok((header, config)) = postcard::take_from_bytes::<Header>(body) else {
                        self.damage = Some(at as u64);
                        return;
                    };
                    let config = end - config.len()..end;
                    self.sections.push(Places { header, offset: at as u64, config, entries: Vec::new() });
                }
                (BlockKind::Entries, Some(section)) => section.entries.push(end - body.len()..end),
                (BlockKind::Entries, None) => {
                    self.damage = Some(at as u64);
                    return;
                }
            }
            at = end;
        }
    }

    /// The file it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its sections, in the order in which they were recorded.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = Section<'_>> {
        self.sections.iter().map(|places| Section { recording: self, places })
    }

    /// Bytes of a block at the end that was being written when the process or machine died.
    pub fn torn_bytes(&self) -> u64 {
        self.torn
    }

    /// Where the file is damaged; nothing after that can be read.
    pub fn damage(&self) -> Option<RecordingError> {
        self.damage.map(|offset| RecordingError::Damaged { path: self.path.clone(), offset })
    }

    /// How many bytes of the file are whole.
    pub(crate) fn whole_len(&self) -> u64 {
        self.bytes.len() as u64 - self.torn
    }
}

impl<'a> Section<'a> {
    /// What it says about itself.
    pub fn header(&self) -> &'a Header {
        &self.places.header
    }

    /// Where it begins in the file.
    pub fn offset(&self) -> u64 {
        self.places.offset
    }

    pub(crate) fn config(&self) -> &'a [u8] {
        self.slice(&self.places.config)
    }

    /// The bytes of each block of entries, with the place of its first byte.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u64, &'a [u8])> + use<'a> {
        let section = *self;
        self.places.entries.iter().map(move |range| (range.start as u64, section.slice(range)))
    }

    fn slice(&self, range: &Range<usize>) -> &'a [u8] {
        self.recording.bytes.get(range.clone()).unwrap_or_default()
    }
}
