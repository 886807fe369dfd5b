//! Blobs that lie in shared memory are lent to askers of the same host instead of being sent.
//!
//! ```text
//! asker                                holder
//!   | -- Borrow{transfer, blob} --------> |
//!   | <-- Lend{transfer, lease, places} - |   or Begin, as for Get
//!   |    maps the memory                  |   keeps it as it is
//!   | -- Return{lease} -----------------> |   may write to it again
//! ```
//! A lease lasts as long as the connection. When that breaks the holder cannot know what the asker still reads, so it
//! never writes to that memory again.

use super::super::link::Link;
use super::super::lock;
use bytes::Bytes;
use phalanx_shared::{KeptSegments, Segment, WORTH_SHARING, locate, retire};
use phalanx_types::Parcel;
use phalanx_wire::bulk::{BlobPiece, BulkMessage};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};

/// The most leases of one peer; further blobs are sent.
const MAX_LEASES: usize = 1024;
/// The most bytes lent to one peer.
const MAX_LENT: u64 = 8 << 30;
/// The most pieces of a blob that is lent.
const MAX_PIECES: usize = 256;
/// The most bytes of a blob that is lent which lie elsewhere and ride in the message.
const MAX_INLINE: usize = 16 << 10;

/// The longest segment of a peer that stays mapped for the next blob in it.
const LARGEST_KEPT: usize = 64 << 20;

/// What was lent over one connection.
#[derive(Debug, Default)]
pub(super) struct Lent {
    next: u64,
    bytes: u64,
    leases: BTreeMap<u64, Vec<Bytes>>,
}

impl Lent {
    /// Lends a parcel, if that spares sending most of it.
    pub(super) fn lend(&mut self, transfer: u64, parcel: &Parcel) -> Option<BulkMessage> {
        if self.leases.len() >= MAX_LEASES || self.bytes.checked_add(parcel.len())? > MAX_LENT {
            return None;
        }
        let pieces = pieces(parcel)?;
        self.next += 1;
        self.bytes += parcel.len();
        self.leases.insert(self.next, parcel.segments().cloned().collect());
        Some(BulkMessage::Lend { transfer, lease: self.next, pieces })
    }

    pub(super) fn returned(&mut self, lease: u64) {
        if let Some(parts) = self.leases.remove(&lease) {
            self.bytes -= parts.iter().map(|part| part.len() as u64).sum::<u64>();
        }
    }

    /// The asker cannot be asked any more.
    pub(super) fn give_up(&mut self) {
        self.bytes = 0;
        for part in std::mem::take(&mut self.leases).into_values().flatten() {
            retire(&part);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// What an asker needs to find a parcel in the memory of this host.
fn pieces(parcel: &Parcel) -> Option<Vec<BlobPiece>> {
    let mut inline = 0;
    let mut pieces = Vec::new();
    for part in parcel.segments() {
        pieces.push(match locate(part).filter(|_| part.len() >= MAX_INLINE / 4) {
            Some(located) => BlobPiece::Shared(located.place()),
            None => {
                inline += part.len();
                BlobPiece::Inline(part.clone())
            }
        });
        if inline > MAX_INLINE || pieces.len() > MAX_PIECES {
            return None;
        }
    }
    Some(pieces)
}

/// The asker's side of a link.
#[derive(Debug, Default)]
pub(super) struct Borrowing {
    /// The peer's memory could not be mapped.
    is_impossible: bool,
    kept: KeptSegments,
}

impl Borrowing {
    /// Whether to ask for a blob of `len` bytes to be lent.
    pub(super) fn is_worthwhile(&self, link: &Link, len: u64) -> bool {
        link.same_host && !self.is_impossible && len >= WORTH_SHARING as u64
    }

    pub(super) fn failed(&mut self) {
        self.is_impossible = true;
        self.kept.clear();
    }

    pub(super) fn close(&mut self) {
        self.kept.clear();
    }

    /// Maps the pieces of a blob; `lease` is returned with the last reference to them.
    ///
    /// # Errors
    /// A segment cannot be mapped, or is shorter than the holder says.
    pub(super) fn map(&mut self, pieces: Vec<BlobPiece>, lease: &Arc<Lease>) -> io::Result<Vec<Bytes>> {
        if pieces.len() > MAX_PIECES {
            return Err(io::Error::other("the blob has too many pieces"));
        }
        pieces.into_iter().map(|piece| self.map_piece(piece, lease)).collect()
    }

    fn map_piece(&mut self, piece: BlobPiece, lease: &Arc<Lease>) -> io::Result<Bytes> {
        let place = match piece {
            BlobPiece::Inline(bytes) => return Ok(bytes),
            BlobPiece::Shared(place) => place,
        };
        let segment = Segment::open(&place)?;
        // Larger ones are given back to the system as soon as nothing refers to them.
        if segment.len() <= LARGEST_KEPT {
            self.kept.keep(&segment);
        }
        let (offset, len) = (usize::try_from(place.offset), usize::try_from(place.len));
        let view =
            offset.ok().zip(len.ok()).and_then(|(offset, len)| segment.view(offset, len, lease.clone()));
        view.ok_or_else(|| io::Error::other("the segment is shorter than the peer says"))
    }
}

/// Tells the holder when the last reference to what it lent is gone.
#[derive(Debug)]
pub(super) struct Lease {
    link: Weak<Link>,
    /// The connection over which it was lent.
    number: u64,
    lease: u64,
}

impl Lease {
    pub(super) fn new(link: &Arc<Link>, number: u64, lease: u64) -> Arc<Self> {
        Arc::new(Self { link: Arc::downgrade(link), number, lease })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(link) = self.link.upgrade() else { return };
        lock(&link.bulk.returns).push((self.number, self.lease));
        link.bulk.wake.notify_one();
    }
}
