use phalanx_types::Class;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a directory cannot be opened or recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The system refused an operation on a file or the directory.
    #[error("could not {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Another process has the directory.
    #[error("another process is using {}", path.display())]
    InUse { path: PathBuf },
    /// Others may read or write the directory, or it belongs to another user.
    #[error("directory is not private (mode {mode:03o}): {}", path.display())]
    NotPrivate { mode: u32, path: PathBuf },
    /// A link or device stands where a segment file should be.
    #[error("not a plain file: {}", path.display())]
    NotAFile { path: PathBuf },
    /// The bytes at this offset are not what was written there.
    #[error("damaged at byte {offset}: {}", path.display())]
    Damaged { offset: u64, path: PathBuf },
    /// A file that other files refer to is gone.
    #[error("segment is missing: {}", path.display())]
    Missing { path: PathBuf },
    /// A record refers to a value that its segment does not hold.
    #[error("record at byte {offset} refers to a value that {} does not hold: {}", segment.display(), path.display())]
    NoValue { offset: u64, segment: PathBuf, path: PathBuf },
    /// Writing was to begin before all records were read.
    #[error("not all records of the directory were read")]
    Unread,
}

impl OpenError {
    /// How to handle it.
    pub fn class(&self) -> Class {
        match self {
            Self::InUse { .. } => Class::Retry,
            Self::Unread => Class::Bug,
            _ => Class::Fatal,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::InUse { .. } => Some("wait for it to end, or name another directory"),
            Self::NotPrivate { .. } => Some("name a directory of your own and run `chmod 700` on it"),
            Self::Damaged { .. } | Self::Missing { .. } | Self::NoValue { .. } => {
                Some("restore the directory from a copy, or begin with an empty one")
            }
            Self::Io { .. } | Self::NotAFile { .. } | Self::Unread => None,
        }
    }
}

/// Why a record was not appended.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// Too much waits to be written.
    #[error("{in_flight} bytes wait to be written already, {limit} may")]
    QueueFull { in_flight: u64, limit: u64 },
    /// The system refused a write. The record is not in the journal.
    #[error("could not {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: Arc<io::Error>,
    },
    /// An earlier write failed, and no probe has succeeded since.
    #[error("refused since an earlier write failed")]
    Refused {
        #[source]
        source: Arc<io::Error>,
    },
    /// The system could not bring to disk what it had taken. Which bytes are on disk is unknown.
    #[error("refused since the disk lost writes")]
    SyncFailed {
        #[source]
        source: Arc<io::Error>,
    },
    /// A record can refer to 65,535 values.
    #[error("record refers to {count} values, at most {limit} are possible")]
    TooManyValues { count: usize, limit: usize },
    /// The journal was closed.
    #[error("journal is closed")]
    Closed,
}

impl AppendError {
    /// How to handle it.
    pub fn class(&self) -> Class {
        match self {
            Self::QueueFull { .. } | Self::Io { .. } | Self::Refused { .. } => Class::Retry,
            Self::SyncFailed { .. } | Self::TooManyValues { .. } | Self::Closed => Class::Fatal,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Io { source, .. } | Self::Refused { source } if is_full(source) => {
                Some("free space on the disk")
            }
            Self::SyncFailed { .. } => Some("check the disk, then start again from what is on it"),
            _ => None,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Why a value cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system could not read the segment.
    #[error("could not read a value of {len} bytes at byte {offset} of {}", path.display())]
    Io {
        len: u64,
        offset: u64,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The bytes are not what was written.
    #[error("value of {len} bytes is damaged at byte {offset} of {}", path.display())]
    Damaged { len: u64, offset: u64, path: PathBuf },
    /// The value is larger than an address of this machine.
    #[error("value of {len} bytes does not fit in memory")]
    TooLarge { len: u64 },
}

impl ReadError {
    /// How to handle it.
    pub fn class(&self) -> Class {
        Class::Fatal
    }
}

/// Why there is no new snapshot. The one before is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A snapshot is being written already.
    #[error("a snapshot is being written already")]
    Running,
    /// The journal refuses to go on in a new segment.
    #[error("could not begin a snapshot")]
    Journal(#[source] AppendError),
    /// The system refused a write.
    #[error("could not {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A record refers to too many values.
    #[error("record refers to {count} values, at most {limit} are possible")]
    TooManyValues { count: usize, limit: usize },
}

impl SnapshotError {
    /// How to handle it.
    pub fn class(&self) -> Class {
        match self {
            Self::Running | Self::Io { .. } => Class::Retry,
            Self::Journal(error) => error.class(),
            Self::TooManyValues { .. } => Class::Fatal,
        }
    }
}

/// Why a value was not spilled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpillError {
    /// The values together would pass the limit.
    #[error("spilling {len} bytes would pass the limit: {used} of {limit} bytes are used")]
    Full { len: u64, used: u64, limit: u64 },
    /// The system refused an operation.
    #[error("could not {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl SpillError {
    /// How to handle it.
    pub fn class(&self) -> Class {
        Class::Retry
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Full { .. } => Some("delete values, or raise the limit of the spill"),
            Self::Io { source, .. } if is_full(source) => Some("free space on the disk"),
            Self::Io { .. } => None,
        }
    }
}
