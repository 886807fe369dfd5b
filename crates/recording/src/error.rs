use phalanx_types::Class;
use std::io;
use std::path::PathBuf;

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file could not be opened, read or written.
    #[error("could not {doing} recording {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file does not begin like a recording.
    #[error("{} is not a recording", path.display())]
    NotARecording { path: PathBuf },
    /// The format of the file is another one than this program's.
    #[error("recording {} has format {format}, this program reads format {own}", path.display())]
    OtherFormat { path: PathBuf, format: u32, own: u32 },
    /// The bytes at this offset are not what was written there.
    #[error("recording {} is damaged at byte {offset}", path.display())]
    Damaged { path: PathBuf, offset: u64 },
    /// The bytes are as they were written, but not by a core of this build.
    #[error("the {what} at byte {offset} was recorded by another build of this version")]
    Unknown {
        what: &'static str,
        offset: u64,
        #[source]
        source: postcard::Error,
    },
    /// A section was recorded by another version of the program.
    #[error("the section at byte {offset} was recorded by phalanx {program}, this is phalanx {own}")]
    OtherProgram { offset: u64, program: String, own: &'static str },
    /// A section was recorded from another core than the one asked for.
    #[error("the section at byte {offset} is of the core {core:?}, not of {wanted:?}")]
    OtherCore { offset: u64, core: String, wanted: &'static str },
}

impl RecordingError {
    /// What kind of trouble this is.
    pub fn class(&self) -> Class {
        Class::Fatal
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            RecordingError::NotARecording { .. } => {
                Some("recordings are named FILE.recording beside a journal, or driver.recording in a run")
            }
            RecordingError::OtherFormat { .. } | RecordingError::OtherProgram { .. } => {
                Some("replay it with the version that recorded it")
            }
            RecordingError::Unknown { .. } => Some("replay it with a build of the same sources"),
            RecordingError::Damaged { .. } => Some("copy the file again, in binary mode"),
            RecordingError::Io { .. } | RecordingError::OtherCore { .. } => None,
        }
    }
}
