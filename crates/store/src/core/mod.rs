//! The store as a state machine: commands of clients in, replies and effects out.
//!
//! ```text
//! (now, client, arguments) ──▶ Keyspace::execute ──▶ Outcome   what to answer
//!                                                └──▶ Effects   messages to others, changes, closings
//! ```
//!
//! Pure: no clock, IO, threads or unseeded randomness. Values are immutable and reference counted, so that a reply is
//! made under a lock without copying and sent without it.

mod admission;
mod blocking;
mod change;
mod change_bytes;
mod commands;
mod database;
mod effects;
mod error;
mod glob;
mod info;
mod keyspace;
mod model_call;
mod number;
mod outcome;
mod pubsub;
mod repeats;
mod session;
mod settings;
mod shards;
mod spilling;
mod storage;
mod streams;
mod table;
mod touched;
mod undo;
mod value;

pub(crate) use admission::{Admission, Channel, Rules as AdmissionRules, admit};
pub use change::Change;
pub use change_bytes::{
    ChangeError, ENCODED_KIND, EncodedChanges, STORED_APART, decode_changes, encode_changes,
};
pub use commands::grows;
pub use database::Garbage;
pub use effects::{Effects, Save};
pub use keyspace::{CommandKind, Keyspace};
pub use model_call::ModelCall;
pub use outcome::Outcome;
pub use session::{ClientId, Ending, Origin};
pub use settings::{ServerFacts, Settings};
pub(crate) use shards::{Merge, Refusal, Route, ShardCommands};
pub use shards::{ShardMap, ShardMember, ShardPlace, ShardPlaceError};
pub use spilling::SpillCandidate;
pub use storage::{PersistFacts, SpillFacts, StorageFacts};
pub(crate) use streams::{FoundTensor, decode_names};
pub use streams::{NodeRequest, StreamRecordError};
pub use touched::Touched;
pub use undo::Undo;
pub use value::{Hash, List, Model, Script, Side, Value};

#[cfg(test)]
mod tests;
