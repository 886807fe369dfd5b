//! Streams between replicas on different hosts, through the port that every node has.

use super::control::Control;
use super::lanes::Connector;
use crate::state::take_in;
use bytes::Bytes;
use phalanx_collective::{CollectiveError, Socket};
use phalanx_fabric::{Fabric, StreamKey, StreamSocket};
use phalanx_types::{Epoch, NodeId, RunId};
use phalanx_wire::train::Ops;
use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// How long the other end of a stream may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to pack a part of the state.
const LONG_PATIENCE: Duration = Duration::from_secs(60);

/// Opens streams to the nodes of a group. The thread that asks must not be the runtime's.
pub(super) struct FabricConnector {
    fabric: Fabric,
    runtime: Handle,
    run: RunId,
    nodes: Vec<NodeId>,
    /// Says when nobody has to be waited for any more.
    control: Arc<Control>,
}

impl FabricConnector {
    pub(super) fn new(fabric: Fabric, run: RunId, nodes: Vec<NodeId>, control: Arc<Control>) -> Self {
        Self { fabric, runtime: Handle::current(), run, nodes, control }
    }

    /// The lower rank dials, the higher one is dialed.
    async fn open(&self, epoch: Epoch, lane: usize, rank: usize) -> Result<Socket, CollectiveError> {
        let me = self.nodes.iter().position(|node| node == self.fabric.id());
        let (Some(me), Some(other)) = (me, self.nodes.get(rank)) else {
            return Err(failed("it has no seat in this group".to_owned()));
        };
        let key = self.key(epoch, lane, me.min(rank), me.max(rank));
        let stream = if me < rank {
            let peer =
                self.fabric.peer(other).ok_or_else(|| failed(format!("there is no link to {other}")))?;
            self.fabric.open_stream(&peer, key).await.map_err(|error| failed(format!("{other}: {error}")))
        } else {
            self.accept(epoch, other, key, PATIENCE).await
        };
        stream.map(socket)
    }

    fn key(&self, epoch: Epoch, lane: usize, low: usize, high: usize) -> StreamKey {
        stream_key(&[self.run.0, epoch.0, lane as u64, low as u64, high as u64], &[])
    }

    /// Waits for the stream of a key, unless the group is over before.
    async fn accept(
        &self,
        epoch: Epoch,
        from: &NodeId,
        key: StreamKey,
        at_most: Duration,
    ) -> Result<StreamSocket, CollectiveError> {
        tokio::select! {
            stream = self.fabric.accept_stream(from, key, at_most) => {
                stream.map_err(|error| failed(format!("{from}: {error}")))
            }
            reason = self.control.over(epoch) => Err(CollectiveError::System { what: "go on", problem: reason }),
        }
    }
}

fn state_key(run: RunId, epoch: Epoch, from: &NodeId, to: &NodeId, ops: Ops) -> StreamKey {
    let numbers = [run.0, epoch.0, u64::from(ops.start), u64::from(ops.end)];
    stream_key(&numbers, &[from, to])
}

/// Takes a part of the state that a node was told to give to this one.
pub(crate) async fn take_part(
    fabric: &Fabric,
    run: RunId,
    epoch: Epoch,
    from: &NodeId,
    ops: Ops,
) -> Result<Bytes, String> {
    let key = state_key(run, epoch, from, fabric.id(), ops);
    let stream = fabric.accept_stream(from, key, LONG_PATIENCE).await.map_err(|error| error.to_string())?;
    let (stream, from) = (socket(stream), from.clone());
    let read = tokio::task::spawn_blocking(move || read_state(&stream, &from)).await;
    read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// Reads a part of the state, and says so.
fn read_state(mut stream: &Socket, from: &NodeId) -> Result<Bytes, CollectiveError> {
    let mut len = [0; 8];
    let broken = |error: std::io::Error| failed(format!("{from}: {error}"));
    stream.read_exact(&mut len).map_err(broken)?;
    let len = u64::from_le_bytes(len);
    let state = take_in(stream, len).map_err(broken)?;
    stream.write_all(&[1]).map_err(broken)?;
    Ok(state)
}

fn stream_key(numbers: &[u64], nodes: &[&NodeId]) -> StreamKey {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    numbers.iter().for_each(|number| context.update(&number.to_le_bytes()));
    for node in nodes {
        context.update(node.to_string().as_bytes());
        context.update(&[0]);
    }
    let mut key = [0; 16];
    key.copy_from_slice(&context.finish().as_ref()[..16]);
    StreamKey(key)
}

impl Connector for FabricConnector {
    fn stream(&self, epoch: Epoch, lane: usize, rank: usize) -> Result<Socket, CollectiveError> {
        self.runtime.block_on(self.open(epoch, lane, rank))
    }

    fn give(&self, epoch: Epoch, to: &NodeId, ops: Ops, state: &[u8]) -> Result<(), CollectiveError> {
        let key = state_key(self.run, epoch, self.fabric.id(), to, ops);
        let peer = self.fabric.peer(to).ok_or_else(|| failed(format!("there is no link to {to}")))?;
        let stream = self.runtime.block_on(self.fabric.open_stream(&peer, key));
        let stream = socket(stream.map_err(|error| failed(format!("{to}: {error}")))?);
        let mut to_write = &stream;
        let len = (state.len() as u64).to_le_bytes();
        let mut taken = [0; 1];
        let sent = to_write.write_all(&len).and_then(|()| to_write.write_all(state));
        // The stream must not be closed before the other end has read it.
        let sent = sent.and_then(|()| to_write.read_exact(&mut taken));
        sent.map_err(|error| failed(format!("{to}: {error}")))
    }

    fn get(&self, epoch: Epoch, from: &NodeId, ops: Ops) -> Result<Bytes, CollectiveError> {
        let key = state_key(self.run, epoch, from, self.fabric.id(), ops);
        let stream = self.runtime.block_on(self.accept(epoch, from, key, LONG_PATIENCE))?;
        read_state(&socket(stream), from)
    }
}

fn failed(problem: String) -> CollectiveError {
    CollectiveError::System { what: "reach another replica", problem }
}

fn socket(stream: StreamSocket) -> Socket {
    match stream {
        StreamSocket::Tcp(stream) => stream.into(),
        StreamSocket::Unix(stream) => stream.into(),
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
