use serde::{Deserialize, Deserializer, Serialize};
use smol_str::SmolStr;
use std::fmt;
use std::str::FromStr;

/// Why a piece of text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    #[error("a name must have 1 to {max} characters, this one has {len}")]
    Length { len: usize, max: usize },
    #[error("a name may hold only a-z, 0-9, '-', '_' and '.', not {0:?}")]
    Character(char),
    #[error("expected a number like 17")]
    Number(#[source] std::num::ParseIntError),
}

const MAX_NAME: usize = 64;

fn check_name(text: &str) -> Result<(), IdError> {
    if text.is_empty() || text.len() > MAX_NAME {
        return Err(IdError::Length { len: text.len(), max: MAX_NAME });
    }
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))) {
        Some(c) => Err(IdError::Character(c)),
        // A leading dot would make an access file hidden, or name a parent directory.
        None if text.starts_with('.') => Err(IdError::Character('.')),
        None => Ok(()),
    }
}

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub struct $name(SmolStr);

        impl $name {
            /// Checks the characters and the length.
            ///
            /// # Errors
            /// The text is empty, too long, or has a character outside `a-z A-Z 0-9 - _ .`.
            pub fn new(text: impl Into<SmolStr>) -> Result<Self, IdError> {
                let text = text.into();
                check_name(&text)?;
                Ok(Self(text))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                Self::new(SmolStr::deserialize(d)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

name_id! {
    /// A node of a domain: `name-4hex`.
    NodeId
}

name_id! {
    /// The name of a domain: its nodes may talk to each other.
    DomainName
}

name_id! {
    /// The name of a machine.
    HostName
}

name_id! {
    /// A program that uploads samples to a stream. The name is the same after a restart.
    ProducerId
}

name_id! {
    /// A training run that uses the samples of a stream.
    ReaderId
}

name_id! {
    /// One of the processes that train together as one reader of a stream.
    TrainerId
}

impl NodeId {
    /// Joins a user-chosen name with a suffix that makes it unique.
    ///
    /// # Errors
    /// The name has a forbidden character or is too long.
    pub fn with_suffix(name: &str, suffix: u16) -> Result<Self, IdError> {
        Self::new(format!("{name}-{suffix:04x}"))
    }
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $format:literal) => {
        $(#[$doc])*
        #[derive(
            Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $name(pub u64);

        impl $name {
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number_id! {
    /// One run of a node's process; a restarted node has another incarnation.
    Incarnation, "{:016x}"
}
number_id! {
    /// The version of a plan; messages of older epochs are dropped.
    Epoch, "e{}"
}
number_id! {
    /// The queue of one main node, stable across its restarts when it keeps a journal.
    SessionId, "{:016x}"
}
number_id! {
    /// A run, for as long as its driver lives.
    RunId, "{:016x}"
}
number_id! {
    /// A job within the session of its main node, counted from 1.
    JobId, "{}"
}
number_id! {
    /// The place of an upload among all uploads of its stream, counted from 0.
    UploadSequence, "u{}"
}

impl FromStr for JobId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        text.parse().map(Self).map_err(IdError::Number)
    }
}

/// A node's time-limited right to a job: the job and the number of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId {
    pub job: JobId,
    /// Counts the leases of this job, from 1. A higher one fences every lower one.
    pub number: u32,
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.job, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_a_directory_are_refused() {
        for bad in ["", "..", "a/b", ".hidden", "a b", "ä", &"x".repeat(65)] {
            assert!(NodeId::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(NodeId::with_suffix("n1", 0x4f).unwrap().as_str(), "n1-004f");
    }
}
