//! Journal, snapshots, value log and spill of a table of values, in segment files.
//!
//! The records are opaque: a kind, some bytes, and large values. The caller keeps the table.
//!
//! ```text
//!   append(record) ──► bounded queue ──► writer thread ──► values-*.seg   large values, each written once
//!                                            │   ▲    └──► journal-*.seg  records, with references to values
//!          done(position) ◄──────────────────┘   │
//!                                                └─ begin_snapshot ──► snapshot-*.seg   records, with references
//! ```
//! * [`recover`] opens a directory and yields the records of its newest snapshot, then those of the journal behind it.
//!   Values come as [`StoredValue`]s and are read when they are wanted. [`Recovery::start`] begins to write.
//! * [`Journal`] appends, takes snapshots, and deletes what no recovery needs any more. A background thread moves
//!   the values of mostly unused segments together.
//! * [`Spill`] keeps values that do not fit in memory in files without names, which end with the process.
//!   A [`StoredValue`] of a journal is on disk already: spilling it means to forget its bytes.
//!
//! # What is promised
//! * A record is acknowledged after it was written, and with [`Durability::EveryWrite`] after it is on disk.
//! * Recovery yields a prefix of what was appended, with everything that was acknowledged, or it fails.
//!   What a killed process or machine was writing is cut off. Damage to anything older is an error.
//! * A failed write changes nothing that was acknowledged. Appends are refused until [`Journal::probe`] succeeds.
//! * A directory belongs to one process. Files are private to its user, and links are not followed.

mod core;
mod error;
mod record;
mod settings;
mod shell;

pub use crate::core::{Position, SnapshotPolicy, SnapshotReason, ValueRef};
pub use error::{AppendError, OpenError, ReadError, SnapshotError, SpillError};
pub use record::Record;
pub use settings::{Durability, Settings, SpillSettings};
pub use shell::{
    CompactError, Completion, Journal, JournalStatus, Note, PendingSnapshot, Recovered, Recovery, Rejected,
    SnapshotReport, Source, Spill, StoredValue, recover,
};
