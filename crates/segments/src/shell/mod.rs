//! Files and threads.

mod directory;
mod file_error;
mod frames;
mod journal;
mod recovery;
mod snapshot;
mod spill;
mod values;
mod write_at;

pub use journal::{Completion, Journal, JournalStatus, Rejected};
pub use recovery::{Note, Recovered, Recovery, Source, recover};
pub use snapshot::{PendingSnapshot, SnapshotReport};
pub use spill::Spill;
pub use values::{CompactError, StoredValue};
