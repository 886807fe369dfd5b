use super::value::{Side, Value};
use bytes::Bytes;
use phalanx_types::Time;
use std::sync::Arc;

/// One write, as persistence records it. All changes in their order rebuild the keys and values.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A key has this value and no other.
    Put {
        /// The key.
        key: Bytes,
        /// Its value.
        value: Value,
        /// When the key ends.
        expires: Option<Time>,
    },
    /// A key is gone.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// The time at which a key ends is another.
    Expire {
        /// The key.
        key: Bytes,
        /// When it ends, if ever.
        at: Option<Time>,
    },
    /// Elements were added to a list, each at the end of the one before.
    Push {
        /// The key of the list.
        key: Bytes,
        /// At which end.
        side: Side,
        /// The elements in the order they were added.
        items: Arc<[Bytes]>,
    },
    /// Elements were taken from a list.
    Pop {
        /// The key of the list.
        key: Bytes,
        /// At which end.
        side: Side,
        /// How many.
        count: usize,
    },
    /// Fields of a hash have these values.
    SetFields {
        /// The key of the hash.
        key: Bytes,
        /// Names and values.
        fields: Vec<(Bytes, Bytes)>,
    },
    /// Fields of a hash are gone.
    DeleteFields {
        /// The key of the hash.
        key: Bytes,
        /// Their names.
        fields: Vec<Bytes>,
    },
    /// Something happened to a stream.
    Stream {
        /// The name of the stream.
        name: Bytes,
        /// What happened, encoded; only the streams of this crate read it.
        record: Bytes,
    },
    /// There are no keys any more.
    Clear,
}
