use super::super::lock;
use bytes::{Buf, Bytes};
use phalanx_types::Parcel;
use phalanx_wire::bulk::BlobId;
use phalanx_wire::frame;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of a blob per frame.
pub(crate) const CHUNK: usize = 256 << 10;

/// The blobs that this node holds for others to fetch.
///
/// Their names cannot be guessed: a node can fetch only what it was told of.
#[derive(Debug, Default)]
pub(crate) struct BlobStore {
    next: AtomicU64,
    /// The standard library seeds it from the operating system.
    secret: RandomState,
    held: Mutex<BTreeMap<BlobId, Arc<Parcel>>>,
}

impl BlobStore {
    pub(crate) fn hold(&self, parcel: Parcel) -> BlobId {
        let mut held = lock(&self.held);
        loop {
            let blob = BlobId(self.secret.hash_one(self.next.fetch_add(1, Ordering::Relaxed)));
            if let Entry::Vacant(place) = held.entry(blob) {
                place.insert(Arc::new(parcel));
                return blob;
            }
        }
    }

    pub(crate) fn release(&self, blob: BlobId) {
        lock(&self.held).remove(&blob);
    }

    pub(crate) fn replace(&self, blob: BlobId, parcel: Parcel) {
        if let Some(held) = lock(&self.held).get_mut(&blob) {
            *held = Arc::new(parcel);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.held).values().map(|parcel| parcel.len()).sum()
    }

    pub(crate) fn get(&self, blob: BlobId) -> Option<Arc<Parcel>> {
        lock(&self.held).get(&blob).cloned()
    }

    /// Begins to send a blob: its length and its bytes.
    pub(super) fn serve(&self, transfer: u64, blob: BlobId) -> Option<(u64, Serving)> {
        let parcel = self.get(blob)?;
        let segments: VecDeque<Bytes> = parcel.segments().filter(|s| !s.is_empty()).cloned().collect();
        Some((parcel.len(), Serving { transfer, segments }))
    }
}

/// An outgoing blob; shares the memory of the parcel.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) transfer: u64,
    segments: VecDeque<Bytes>,
}

impl Serving {
    pub(super) fn is_done(&self) -> bool {
        self.segments.is_empty()
    }

    /// The next chunk frame, in pieces that are written without being copied.
    pub(super) fn next_chunk(&mut self) -> ChunkFrame {
        let mut pieces = VecDeque::with_capacity(4);
        let mut len = 0;
        while len < CHUNK
            && let Some(segment) = self.segments.front_mut()
        {
            let piece = segment.split_to(segment.len().min(CHUNK - len));
            len += piece.len();
            if segment.is_empty() {
                self.segments.pop_front();
            }
            pieces.push_back(piece);
        }
        pieces.push_front(Bytes::copy_from_slice(&frame::chunk_header(self.transfer, len)));
        ChunkFrame(pieces)
    }
}

/// The pieces of one frame, as a buffer for vectored writes.
#[derive(Debug)]
pub(super) struct ChunkFrame(VecDeque<Bytes>);

impl Buf for ChunkFrame {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut n = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.0) {
            *slice = IoSlice::new(piece);
            n += 1;
        }
        n
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(piece) = self.0.front_mut() {
            if count < piece.len() {
                piece.advance(count);
                return;
            }
            count -= piece.len();
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::Tensor;

    #[test]
    fn chunks_of_a_parcel_make_its_body() {
        let values: Vec<f32> = (0..200_000).map(|i| i as f32).collect();
        let parcel =
            Parcel::from_bytes("head").with_tensor("x", Tensor::from_f32(vec![200_000], &values).unwrap());
        let store = BlobStore::default();
        let blob = store.hold(parcel.clone());
        let (len, mut serving) = store.serve(9, blob).unwrap();
        assert_eq!(len, parcel.len());
        let mut body = Vec::new();
        while !serving.is_done() {
            let mut chunk = serving.next_chunk();
            let bytes = chunk.copy_to_bytes(chunk.remaining());
            assert_eq!(bytes[..13], frame::chunk_header(9, bytes.len() - 13));
            body.extend_from_slice(&bytes[13..]);
        }
        assert_eq!(body, parcel.body());
        store.release(blob);
        assert!(store.serve(9, blob).is_none());
    }
}
