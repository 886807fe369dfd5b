//! Writing blobs without copying, several at a time and chunk by chunk.

use super::super::link::Link;
use super::super::lock;
use super::super::refusal::ConnError;
use super::super::stream::WriteHalf;
use super::blobs::ChunkFrame;
use super::{Bulk, BulkState};
use bytes::BytesMut;
use phalanx_wire::bulk::BulkMessage;
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
        let returns = returns(&mut lock(&bulk.returns), number);
        let step = next_step(&mut lock(&bulk.state), number, returns, &mut orders)?;
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

/// The leases to return over this connection. Those of older connections ended with them.
fn returns(held: &mut Vec<(u64, u64)>, number: u64) -> Vec<u64> {
    let due = held.extract_if(.., |(connection, _)| *connection <= number);
    due.filter(|(connection, _)| *connection == number).map(|(_, lease)| lease).collect()
}

fn next_step(
    state: &mut BulkState,
    number: u64,
    returns: Vec<u64>,
    orders: &mut BytesMut,
) -> Result<BulkStep, ConnError> {
    if state.connected != Some(number) {
        return Ok(BulkStep::Replaced);
    }
    state.orders.extend(returns.into_iter().map(|lease| BulkMessage::Return { lease }));
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

    #[test]
    fn a_replaced_connection_leaves_the_orders_to_the_new_one() {
        let mut state = BulkState { connected: Some(2), ..BulkState::default() };
        state.orders.push_back(BulkMessage::Cancel { transfer: 1 });
        let mut orders = BytesMut::new();
        assert!(matches!(next_step(&mut state, 1, Vec::new(), &mut orders), Ok(BulkStep::Replaced)));
        assert!(orders.is_empty());
        assert!(matches!(next_step(&mut state, 2, Vec::new(), &mut orders), Ok(BulkStep::Orders)));
        assert!(state.orders.is_empty());
    }

    #[test]
    fn a_lease_is_returned_only_over_its_own_connection() {
        let mut held = vec![(1, 10), (2, 20), (3, 30), (2, 21)];
        assert_eq!(returns(&mut held, 2), [20, 21]);
        assert_eq!(held, [(3, 30)]);
    }
}
