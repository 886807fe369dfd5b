//! Transfers of blobs on a bulk connection; the bytes themselves ride in chunk frames.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes that a node holds ready for others to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobId(pub u64);

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

/// The words around the chunks. Either side may ask; `transfer` is chosen by the asker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BulkMessage {
    Get {
        transfer: u64,
        blob: BlobId,
    },
    /// `len` bytes follow in chunks of this transfer.
    Begin {
        transfer: u64,
        len: u64,
    },
    Missing {
        transfer: u64,
        blob: BlobId,
    },
    /// The asker no longer wants it.
    Cancel {
        transfer: u64,
    },
}
