//! Reading blobs directly into their final buffers.

use super::super::inner::Inner;
use super::super::link::Link;
use super::super::lock;
use super::super::refusal::ConnError;
use super::super::stream::ReadHalf;
use super::lend::Lease;
use crate::error::FetchError;
use bytes::BufMut;
use phalanx_wire::bulk::{BlobPiece, BulkMessage};
use phalanx_wire::codec;
use phalanx_wire::frame::{FrameError, FrameKind, HEADER_LEN};
use phalanx_wire::handshake::Refusal;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The most memory reserved beyond what has arrived, whatever length was announced.
const AHEAD: u64 = 64 << 20;
/// The most transfers served to one peer at the same time.
const MAX_SERVING: usize = 1 << 16;
/// The most answers that a peer may leave unread.
const MAX_ORDERS: usize = 1 << 17;

/// An incoming blob.
struct Arriving {
    buffer: Vec<u8>,
    len: u64,
}

struct Receiver<'a, R> {
    inner: &'a Inner,
    link: &'a Arc<Link>,
    /// The number of this connection of the link.
    number: u64,
    stream: R,
    arriving: BTreeMap<u64, Arriving>,
}

pub(super) async fn receive(
    inner: &Inner,
    link: &Arc<Link>,
    number: u64,
    stream: ReadHalf,
) -> Result<(), ConnError> {
    Receiver { inner, link, number, stream, arriving: BTreeMap::new() }.run().await
}

impl<R: AsyncRead + Unpin> Receiver<'_, R> {
    async fn run(&mut self) -> Result<(), ConnError> {
        loop {
            let mut header = [0; HEADER_LEN];
            let read = tokio::select! {
                read = self.stream.read(&mut header[..1]) => read?,
                () = self.link.bulk.withdrawn.notified() => {
                    self.drop_unwanted();
                    continue;
                }
            };
            if read == 0 {
                return Ok(());
            }
            self.stream.read_exact(&mut header[1..]).await?;
            let [l0, l1, l2, l3, kind] = header;
            let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            let bulk = FrameKind::Bulk as u8;
            let (kind, max) = match kind {
                k if k == FrameKind::Chunk as u8 => (FrameKind::Chunk, FrameKind::Chunk.max_len()),
                k if k == bulk => (FrameKind::Bulk, FrameKind::Bulk.max_len()),
                other => return Err(FrameError::UnknownKind(other).into()),
            };
            if len > max {
                return Err(FrameError::TooLong { kind, len, max }.into());
            }
            if kind == FrameKind::Bulk {
                let mut body = vec![0; len];
                self.stream.read_exact(&mut body).await?;
                if !self.on_message(codec::decode(&body)?) {
                    return Ok(());
                }
                let bulk = &self.link.bulk;
                let unread = lock(&bulk.state).orders.len() + lock(&bulk.returns).len();
                if unread > MAX_ORDERS {
                    return Err(ConnError::RefusedHere(Refusal::Busy));
                }
            } else {
                self.on_chunk(len).await?;
            }
        }
    }

    /// Acts on a message, unless another connection has replaced this one.
    fn on_message(&mut self, message: BulkMessage) -> bool {
        let bulk = &self.link.bulk;
        let mut state = lock(&bulk.state);
        if state.connected != Some(self.number) {
            return false;
        }
        match message {
            BulkMessage::Borrow { transfer, blob }
                if let Some(lend) =
                    self.inner.blobs.get(blob).and_then(|parcel| state.lent.lend(transfer, &parcel)) =>
            {
                state.orders.push_back(lend);
                drop(state);
                bulk.wake.notify_one();
            }
            BulkMessage::Get { transfer, blob } | BulkMessage::Borrow { transfer, blob } => {
                let room = state.serving.len() < MAX_SERVING;
                let order = match self.inner.blobs.serve(transfer, blob).filter(|_| room) {
                    None => BulkMessage::Missing { transfer, blob },
                    Some((len, serving)) => {
                        if !serving.is_done() {
                            state.serving.push_back(serving);
                        }
                        BulkMessage::Begin { transfer, len }
                    }
                };
                state.orders.push_back(order);
                drop(state);
                bulk.wake.notify_one();
            }
            BulkMessage::Begin { transfer, len } => {
                drop(state);
                self.on_begin(transfer, len);
            }
            BulkMessage::Missing { transfer, blob } => {
                drop(state);
                bulk.finish(transfer, Err(FetchError::Missing { node: self.link.node.clone(), blob }));
            }
            BulkMessage::Cancel { transfer } => {
                state.serving.retain(|s| s.transfer != transfer);
            }
            BulkMessage::Lend { transfer, lease, pieces } => {
                drop(state);
                self.on_lend(transfer, lease, pieces);
            }
            BulkMessage::Return { lease } => state.lent.returned(lease),
        }
        true
    }

    /// Drops the bytes of transfers that no caller waits for any more.
    fn drop_unwanted(&mut self) {
        let state = lock(&self.link.bulk.state);
        self.arriving.retain(|transfer, _| state.gets.contains_key(transfer));
    }

    fn on_begin(&mut self, transfer: u64, got: u64) {
        let bulk = &self.link.bulk;
        let Some((blob, expected)) = lock(&bulk.state).gets.get(&transfer).map(|g| (g.blob, g.len)) else {
            return;
        };
        if got != expected {
            let node = self.link.node.clone();
            bulk.finish(transfer, Err(FetchError::Length { node, blob, expected, got }));
            bulk.order(BulkMessage::Cancel { transfer });
            return;
        }
        let buffer = self.inner.pool.take(got);
        if got == 0 {
            bulk.finish(transfer, Ok(vec![self.inner.pool.seal(buffer)]));
        } else {
            self.arriving.insert(transfer, Arriving { buffer, len: got });
        }
    }

    /// Maps what was lent. If that is impossible the blob is asked for as if it were on another host.
    fn on_lend(&mut self, transfer: u64, lease: u64, pieces: Vec<BlobPiece>) {
        let bulk = &self.link.bulk;
        // Dropped after the lock, also when no caller waits for it: the lease is returned.
        let guard = Lease::new(self.link, self.number, lease);
        let mut state = lock(&bulk.state);
        let Some((blob, expected)) = state.gets.get(&transfer).map(|g| (g.blob, g.len)) else { return };
        let result = match state.borrowing.map(pieces, &guard) {
            Ok(pieces) => pieces,
            Err(error) => {
                tracing::debug!(node = %self.link.node, %error, "could not map a peer's memory");
                state.borrowing.failed();
                state.orders.push_back(BulkMessage::Get { transfer, blob });
                return;
            }
        };
        drop(state);
        let got = result.iter().map(|piece| piece.len() as u64).sum();
        let node = self.link.node.clone();
        let wrong = (got != expected).then_some(FetchError::Length { node, blob, expected, got });
        bulk.finish(transfer, wrong.map_or(Ok(result), Err));
    }

    async fn on_chunk(&mut self, frame_len: usize) -> Result<(), ConnError> {
        let Some(mut left) = frame_len.checked_sub(8) else {
            return Err(FrameError::Truncated { have: frame_len }.into());
        };
        let mut number = [0; 8];
        self.stream.read_exact(&mut number).await?;
        let transfer = u64::from_le_bytes(number);
        let wanted = lock(&self.link.bulk.state).gets.contains_key(&transfer);
        let Some(arriving) = self.arriving.get_mut(&transfer).filter(|_| wanted) else {
            self.arriving.remove(&transfer);
            return self.skip(left).await;
        };
        let missing = arriving.len - arriving.buffer.len() as u64;
        if left as u64 > missing {
            let max = usize::try_from(missing).unwrap_or(usize::MAX);
            return Err(FrameError::TooLong { kind: FrameKind::Chunk, len: left, max }.into());
        }
        if !reserve(&mut arriving.buffer, left, missing) {
            let len = arriving.len;
            self.arriving.remove(&transfer);
            let blob = lock(&self.link.bulk.state).gets.get(&transfer).map(|g| g.blob);
            if let Some(blob) = blob {
                self.link.bulk.finish(transfer, Err(FetchError::OutOfMemory { blob, len }));
            }
            self.link.bulk.order(BulkMessage::Cancel { transfer });
            return self.skip(left).await;
        }
        while left > 0 {
            let n = self.stream.read_buf(&mut (&mut arriving.buffer).limit(left)).await?;
            if n == 0 {
                return Err(FrameError::Truncated { have: frame_len - left }.into());
            }
            left -= n;
        }
        if arriving.buffer.len() as u64 == arriving.len
            && let Some(done) = self.arriving.remove(&transfer)
        {
            self.link.bulk.finish(transfer, Ok(vec![self.inner.pool.seal(done.buffer)]));
        }
        Ok(())
    }

    async fn skip(&mut self, mut left: usize) -> Result<(), ConnError> {
        let mut scratch = [0; 4096];
        while left > 0 {
            let part = left.min(scratch.len());
            let n = self.stream.read(scratch.get_mut(..part).unwrap_or_default()).await?;
            if n == 0 {
                return Err(FrameError::Truncated { have: 0 }.into());
            }
            left -= n;
        }
        Ok(())
    }
}

/// Reserves room for `next` bytes of the `missing` ones; false if there is no memory.
fn reserve(buffer: &mut Vec<u8>, next: usize, missing: u64) -> bool {
    if buffer.capacity() - buffer.len() >= next {
        return true;
    }
    let ahead = usize::try_from(missing.min(AHEAD)).unwrap_or(next);
    buffer.try_reserve_exact(ahead).is_ok()
}
