//! Writing blobs without copying, several at a time and chunk by chunk.

use super::super::link::Link;
use super::super::lock;
use super::super::refusal::ConnError;
use super::super::stream::WriteHalf;
use super::blobs::ChunkFrame;
use super::{Bulk, BulkState};
use bytes::BytesMut;
use phalanx_wire::frame::{self, FrameKind};
use tokio::io::AsyncWriteExt;

#[derive(Debug)]
enum BulkStep {
    Orders,
    Chunk(ChunkFrame),
    Idle,
    /// Another connection has replaced this one.
    Replaced,
}

pub(super) async fn send(link: &Link, number: u64, mut half: WriteHalf) -> Result<(), ConnError> {
    let bulk: &Bulk = &link.bulk;
    let mut orders = BytesMut::new();
    loop {
        let step = next_step(&mut lock(&bulk.state), number, &mut orders)?;
        match step {
            BulkStep::Orders => {
                half.write_all(&orders).await?;
                orders.clear();
            }
            BulkStep::Chunk(mut chunk) => half.write_all_buf(&mut chunk).await?,
            BulkStep::Idle => {
                half.flush().await?;
                bulk.wake.notified().await;
            }
            BulkStep::Replaced => {
                // The notification was meant for the other connection.
                bulk.wake.notify_one();
                return Ok(());
            }
        }
    }
}

fn next_step(state: &mut BulkState, number: u64, orders: &mut BytesMut) -> Result<BulkStep, ConnError> {
    if state.connected != Some(number) {
        return Ok(BulkStep::Replaced);
    }
    for order in state.orders.drain(..) {
        frame::put(FrameKind::Bulk, &order, orders)
            .map_err(|error| ConnError::Io(std::io::Error::other(error)))?;
    }
    if !orders.is_empty() {
        return Ok(BulkStep::Orders);
    }
    let Some(mut serving) = state.serving.pop_front() else { return Ok(BulkStep::Idle) };
    let chunk = serving.next_chunk();
    if !serving.is_done() {
        state.serving.push_back(serving);
    }
    Ok(BulkStep::Chunk(chunk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_wire::bulk::BulkMessage;

    #[test]
    fn a_replaced_connection_leaves_the_orders_to_the_new_one() {
        let mut state = BulkState { connected: Some(2), ..BulkState::default() };
        state.orders.push_back(BulkMessage::Cancel { transfer: 1 });
        let mut orders = BytesMut::new();
        assert!(matches!(next_step(&mut state, 1, &mut orders), Ok(BulkStep::Replaced)));
        assert!(orders.is_empty());
        assert!(matches!(next_step(&mut state, 2, &mut orders), Ok(BulkStep::Orders)));
        assert!(state.orders.is_empty());
    }
}
