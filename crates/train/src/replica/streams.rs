//! Streams between replicas on different hosts, through the port that every node has.

use super::lanes::Connector;
use phalanx_collective::{CollectiveError, Socket};
use phalanx_fabric::{Fabric, StreamKey, StreamSocket};
use phalanx_types::{Epoch, NodeId, RunId};
use std::fmt;
use std::time::Duration;
use tokio::runtime::Handle;

/// How long the other end of a stream may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens streams to the nodes of a group. The thread that asks must not be the runtime's.
pub(super) struct FabricConnector {
    fabric: Fabric,
    runtime: Handle,
    run: RunId,
    nodes: Vec<NodeId>,
}

impl FabricConnector {
    pub(super) fn new(fabric: Fabric, run: RunId, nodes: Vec<NodeId>) -> Self {
        Self { fabric, runtime: Handle::current(), run, nodes }
    }

    /// The lower rank dials, the higher one is dialed.
    async fn stream(&self, epoch: Epoch, lane: usize, rank: usize) -> Result<Socket, CollectiveError> {
        let failed = |problem: String| CollectiveError::System { what: "reach another replica", problem };
        let me = self.nodes.iter().position(|node| node == self.fabric.id());
        let (Some(me), Some(other)) = (me, self.nodes.get(rank)) else {
            return Err(failed("it has no seat in this group".to_owned()));
        };
        let key = self.key(epoch, lane, me.min(rank), me.max(rank));
        let socket = if me < rank {
            let peer =
                self.fabric.peer(other).ok_or_else(|| failed(format!("there is no link to {other}")))?;
            self.fabric.open_stream(&peer, key).await
        } else {
            self.fabric.accept_stream(other, key, PATIENCE).await
        };
        match socket {
            Ok(StreamSocket::Tcp(stream)) => Ok(stream.into()),
            Ok(StreamSocket::Unix(stream)) => Ok(stream.into()),
            Err(error) => Err(failed(format!("{other}: {error}"))),
        }
    }

    fn key(&self, epoch: Epoch, lane: usize, low: usize, high: usize) -> StreamKey {
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        for number in [self.run.0, epoch.0, lane as u64, low as u64, high as u64] {
            context.update(&number.to_le_bytes());
        }
        let mut key = [0; 16];
        key.copy_from_slice(&context.finish().as_ref()[..16]);
        StreamKey(key)
    }
}

impl Connector for FabricConnector {
    fn streams(
        &self,
        epoch: Epoch,
        lane: usize,
        needs: &[usize],
        ranks: usize,
    ) -> Result<Vec<Option<Socket>>, CollectiveError> {
        let mut streams: Vec<Option<Socket>> = (0..ranks).map(|_| None).collect();
        for rank in needs {
            streams[*rank] = Some(self.runtime.block_on(self.stream(epoch, lane, *rank))?);
        }
        Ok(streams)
    }
}

impl fmt::Debug for FabricConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FabricConnector")
            .field("run", &self.run)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}
