//! How much memory a node's solutions may take; what is over it goes to disk, the oldest first.
//!
//! What is counted are *pieces*: the parts of parcels that are worth it. Solutions that pass a piece on share it, so it
//! counts once, and all of them get its copy on disk. A piece on disk is a map of its file: the system reads it when it
//! is used, and may drop it from memory again.

use bytes::Bytes;
use phalanx_fabric::{BlobId, Fabric};
use phalanx_segments::{Spill, SpillSettings};
use phalanx_types::{ByteSize, Parcel, ParcelHead};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use tokio::sync::mpsc;

/// Shorter parts of parcels stay in memory.
const WORTH_SPILLING: usize = 256 << 10;

/// How much memory the solutions of a node may take, and where the rest goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultMemory {
    pub limit: ByteSize,
    /// An existing directory; the files in it have no names and end with the process.
    pub spill: PathBuf,
}

impl ResultMemory {
    /// Half of a node's memory, and the directory for temporary files.
    pub(super) fn of_node(memory: ByteSize) -> Self {
        Self { limit: ByteSize(memory.0 / 2), spill: std::env::temp_dir() }
    }
}

/// Where a piece lies in memory.
type Address = (usize, usize);
/// A piece that was written to disk.
pub(super) type Spilled = (Address, Result<Bytes, String>);

#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    /// The solutions that have it.
    blobs: BTreeSet<BlobId>,
    /// When it came, for the order in which pieces go to disk.
    order: u64,
}

/// The solutions that a node holds.
#[derive(Debug)]
pub(super) struct Results {
    settings: ResultMemory,
    disk: Option<Spill>,
    pieces: BTreeMap<Address, Piece>,
    blobs: BTreeMap<BlobId, Vec<Address>>,
    in_memory: u64,
    arrivals: u64,
    /// The piece that is being written; one at a time.
    writing: Option<Address>,
    done: mpsc::Sender<Spilled>,
    /// The disk refused: nothing is spilled until something was freed.
    is_full: bool,
}

fn address(bytes: &Bytes) -> Address {
    (bytes.as_ptr().addr(), bytes.len())
}

impl Results {
    pub(super) fn new(settings: ResultMemory, done: mpsc::Sender<Spilled>) -> Self {
        Self {
            settings,
            disk: None,
            pieces: BTreeMap::new(),
            blobs: BTreeMap::new(),
            in_memory: 0,
            arrivals: 0,
            writing: None,
            done,
            is_full: false,
        }
    }

    pub(super) fn set(&mut self, settings: ResultMemory) {
        (self.settings, self.disk) = (settings, None);
    }

    /// Notes a solution that is held from now on.
    pub(super) fn add(&mut self, blob: BlobId, parcel: &Parcel) {
        let mut addresses = Vec::new();
        for bytes in parcel.segments().filter(|bytes| bytes.len() >= WORTH_SPILLING) {
            let at = address(bytes);
            self.arrivals += 1;
            let order = self.arrivals;
            let piece = self.pieces.entry(at).or_insert_with(|| {
                self.in_memory += bytes.len() as u64;
                Piece { bytes: bytes.clone(), blobs: BTreeSet::new(), order }
            });
            piece.blobs.insert(blob);
            addresses.push(at);
        }
        if !addresses.is_empty() {
            self.blobs.insert(blob, addresses);
            self.spill_more();
        }
    }

    /// Notes that a solution is not held any more.
    pub(super) fn remove(&mut self, blob: BlobId) {
        for at in self.blobs.remove(&blob).unwrap_or_default() {
            let Some(piece) = self.pieces.get_mut(&at) else { continue };
            piece.blobs.remove(&blob);
            if piece.blobs.is_empty() {
                self.pieces.remove(&at);
                self.in_memory -= at.1 as u64;
                self.is_full = false;
            }
        }
    }

    /// Has the oldest piece written to disk, on another thread, while there is too much in memory.
    fn spill_more(&mut self) {
        if self.in_memory <= self.settings.limit.0 || self.writing.is_some() || self.is_full {
            return;
        }
        let oldest = self.pieces.iter().min_by_key(|(_, piece)| piece.order);
        let Some((at, bytes)) = oldest.map(|(at, piece)| (*at, piece.bytes.clone())) else { return };
        let Some(disk) = self.disk() else {
            self.is_full = true;
            return;
        };
        self.writing = Some(at);
        let done = self.done.clone();
        tokio::task::spawn_blocking(move || {
            let stored = disk.put([bytes]).map_err(|error| error.to_string());
            let mapped = stored.and_then(|value| value.map().map_err(|error| error.to_string()));
            // The node may have ended meanwhile.
            let _ended = done.blocking_send((at, mapped));
        });
    }

    fn disk(&mut self) -> Option<Spill> {
        if self.disk.is_none() {
            match Spill::open(&self.settings.spill, &SpillSettings::default()) {
                Ok(disk) => self.disk = Some(disk),
                Err(error) => {
                    tracing::warn!(%error, directory = %self.settings.spill.display(), "solutions cannot be spilled");
                }
            }
        }
        self.disk.clone()
    }

    /// A piece is on disk, or the disk refused it: then it stays where it is.
    pub(super) fn on_spilled(&mut self, (at, result): Spilled, fabric: &Fabric) {
        self.writing = None;
        match result {
            Ok(mapped) => {
                let Some(piece) = self.pieces.remove(&at) else { return self.spill_more() };
                self.in_memory -= at.1 as u64;
                for blob in piece.blobs {
                    if let Some(parcel) = fabric.held(blob).and_then(|parcel| moved(&parcel, at, &mapped)) {
                        fabric.replace(blob, parcel);
                    }
                    if let Some(addresses) = self.blobs.get_mut(&blob) {
                        addresses.retain(|other| *other != at);
                    }
                }
            }
            Err(error) => {
                tracing::warn!(error, "a solution stays in memory: it could not be spilled");
                self.is_full = true;
            }
        }
        self.spill_more();
    }
}

/// A parcel with one of its parts elsewhere.
fn moved(parcel: &Parcel, from: Address, to: &Bytes) -> Option<Parcel> {
    let head: ParcelHead = parcel.head();
    let part = |bytes: &Bytes| if address(bytes) == from { to.clone() } else { bytes.clone() };
    Parcel::from_pieces(head, parcel.segments().map(part).collect()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::Tensor;

    const LEN: usize = WORTH_SPILLING;

    fn parcel(value: u8) -> Parcel {
        let tensor = Tensor::new(phalanx_types::DType::U8, vec![LEN as u64], vec![value; LEN].into());
        Parcel::from_bytes("head").with_tensor("x", tensor.unwrap())
    }

    #[test]
    fn pieces_that_solutions_share_count_once() {
        let settings = ResultMemory { limit: ByteSize::gib(1), spill: std::env::temp_dir() };
        let mut results = Results::new(settings, mpsc::channel(1).0);
        let one = parcel(1);
        results.add(BlobId(1), &one);
        results.add(BlobId(2), &one.clone());
        results.add(BlobId(3), &parcel(3));
        assert_eq!(results.in_memory, 2 * LEN as u64);
        results.remove(BlobId(1));
        assert_eq!(results.in_memory, 2 * LEN as u64);
        results.remove(BlobId(2));
        results.remove(BlobId(3));
        results.remove(BlobId(3));
        assert_eq!((results.in_memory, results.pieces.len(), results.blobs.len()), (0, 0, 0));
    }

    #[test]
    fn a_part_of_a_parcel_moves_and_the_rest_stays() {
        let one = parcel(1);
        let copy = Bytes::copy_from_slice(one.tensors[0].1.data());
        let other = moved(&one, address(one.tensors[0].1.data()), &copy).unwrap();
        assert_eq!(other, one);
        assert_eq!(address(other.tensors[0].1.data()), address(&copy));
        assert_eq!(address(&other.bytes), address(&one.bytes));
    }
}
