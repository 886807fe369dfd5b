//! Writing blobs from where they lie, several at a time and chunk by chunk.

use super::super::link::Link;
use super::super::lock;
use super::super::refusal::ConnError;
use super::super::stream::WriteHalf;
use super::blobs::ChunkFrame;
use super::{Bulk, State};
use bytes::BytesMut;
use phalanx_wire::frame::{self, FrameKind};
use tokio::io::AsyncWriteExt;

enum Step {
    Orders,
    Chunk(ChunkFrame),
    Idle,
}

pub(super) async fn send(link: &Link, mut half: WriteHalf) -> Result<(), ConnError> {
    let bulk: &Bulk = &link.bulk;
    let mut orders = BytesMut::new();
    loop {
        let step = next_step(&mut lock(&bulk.state), &mut orders)?;
        match step {
            Step::Orders => {
                half.write_all(&orders).await?;
                orders.clear();
            }
            Step::Chunk(mut chunk) => half.write_all_buf(&mut chunk).await?,
            Step::Idle => {
                half.flush().await?;
                bulk.wake.notified().await;
            }
        }
    }
}

fn next_step(state: &mut State, orders: &mut BytesMut) -> Result<Step, ConnError> {
    for order in state.orders.drain(..) {
        frame::put(FrameKind::Bulk, &order, orders)
            .map_err(|error| ConnError::Io(std::io::Error::other(error)))?;
    }
    if !orders.is_empty() {
        return Ok(Step::Orders);
    }
    let Some(mut serving) = state.serving.pop_front() else { return Ok(Step::Idle) };
    let chunk = serving.next_chunk();
    if !serving.is_done() {
        state.serving.push_back(serving);
    }
    Ok(Step::Chunk(chunk))
}
