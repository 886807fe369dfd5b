//! Transfers of blobs on a bulk connection; the bytes themselves ride in chunk frames.

use bytes::Bytes;
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
    /// Like `Get`, of an asker that may be on the holder's host and is able to map its memory.
    Borrow {
        transfer: u64,
        blob: BlobId,
    },
    /// The blob lies in memory of the holder, which is not written again before the asker has let go of it.
    Lend {
        transfer: u64,
        lease: u64,
        pieces: Vec<BlobPiece>,
    },
    /// The asker has let go of what it was lent, or cannot map it.
    Return {
        lease: u64,
    },
}

/// A part of a blob that is lent; all parts together, one after the other, are the blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlobPiece {
    /// Too short to be worth mapping.
    Inline(Bytes),
    Shared(SharedPlace),
}

/// Where a process of the same host finds memory of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPlace {
    pub pid: u32,
    /// The descriptor of the segment in that process.
    pub fd: u32,
    /// In the name of the segment, too: the numbers may mean something else by now, or on this host.
    pub token: [u8; 16],
    pub offset: u64,
    pub len: u64,
}
