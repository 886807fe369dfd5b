//! Streams between replicas on different hosts, through the port that every node has.

use super::connector::Connector;
use super::mailbox::Mailbox;
use bytes::Bytes;
use phalanx_collective::{CollectiveError, Socket};
use phalanx_fabric::{Fabric, Peer, StreamKey, StreamSocket};
use phalanx_protocol::driver::FetchFailure;
use phalanx_records::read_exactly;
use phalanx_types::{Epoch, NodeId, RunId};
use phalanx_wire::state_frame::StateLength;
use phalanx_wire::train::{Ops, StateRef};
use std::fmt;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// How long the other end of a stream may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to pack a part of the state.
const LONG_PATIENCE: Duration = Duration::from_secs(60);

/// Opens streams to the nodes of a group. The thread that asks must not be the runtime's.
pub(super) struct FabricConnector {
    fabric: Fabric,
    runtime: Handle,
    driver: Peer,
    run: RunId,
    nodes: Vec<NodeId>,
    /// Says when a group is over, and with it every wait for its members.
    mailbox: Arc<Mailbox>,
}

impl FabricConnector {
    pub(super) fn new(
        fabric: Fabric,
        driver: Peer,
        run: RunId,
        nodes: Vec<NodeId>,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        Self { fabric, runtime: Handle::current(), driver, run, nodes, mailbox }
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
        let stream = self.unless_over(epoch, self.fabric.accept_stream(from, key, at_most)).await?;
        stream.map_err(|error| failed(format!("{from}: {error}")))
    }

    /// Waits for a future, but no longer than the group of an epoch lasts.
    async fn unless_over<T>(
        &self,
        epoch: Epoch,
        wanted: impl Future<Output = T>,
    ) -> Result<T, CollectiveError> {
        tokio::select! {
            got = wanted => Ok(got),
            reason = self.mailbox.over(epoch) => {
                Err(CollectiveError::System { what: "go on", problem: reason.to_string() })
            }
        }
    }

    async fn fetch_state(&self, epoch: Epoch, state: &StateRef) -> Result<Bytes, CollectiveError> {
        let fetch = self.fabric.fetch(&self.driver, state.blob, state.bytes);
        let failed = |problem| CollectiveError::System { what: "fetch the state of the run", problem };
        self.unless_over(epoch, fetch).await?.map_err(|error| failed(error.to_string()))
    }

    /// For as long as what it gives lives, a stream ends with the group of an epoch: reading from it is no way to hear
    /// of that.
    fn ends_with(&self, epoch: Epoch, stream: &Socket) -> Result<JoinSet<()>, CollectiveError> {
        let stream = stream.try_clone().map_err(|error| failed(error.to_string()))?;
        let (mailbox, mut watch) = (self.mailbox.clone(), JoinSet::new());
        let end = async move {
            mailbox.over(epoch).await;
            // One that has ended already cannot be ended again.
            drop(stream.shutdown(Shutdown::Both));
        };
        watch.spawn_on(end, &self.runtime);
        Ok(watch)
    }
}

fn state_key(run: RunId, epoch: Epoch, from: &NodeId, to: &NodeId, ops: Ops) -> StreamKey {
    let numbers = [run.0, epoch.0, u64::from(ops.start), u64::from(ops.end)];
    stream_key(&numbers, &[from, to])
}

/// Takes a part of the state that a node was told to give to this one.
///
/// # Errors
/// It does not come, or is larger than a state of the model can be.
pub async fn take_part(
    fabric: &Fabric,
    run: RunId,
    epoch: Epoch,
    from: &NodeId,
    ops: Ops,
    most: u64,
) -> Result<Bytes, FetchFailure> {
    let failed = |error: &dyn fmt::Display| FetchFailure::Transfer { detail: error.to_string().into() };
    let key = state_key(run, epoch, from, fabric.id(), ops);
    let stream = fabric.accept_stream(from, key, LONG_PATIENCE).await.map_err(|error| failed(&error))?;
    let (stream, from) = (socket(stream), from.clone());
    let read = tokio::task::spawn_blocking(move || read_state(&stream, &from, most)).await;
    read.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

/// Reads a part of the state of at most `most` bytes, and confirms it.
fn read_state(mut stream: &Socket, from: &NodeId, most: u64) -> Result<Bytes, CollectiveError> {
    let mut len = [0; StateLength::LEN];
    let broken = |error: std::io::Error| failed(format!("{from}: {error}"));
    stream.read_exact(&mut len).map_err(broken)?;
    let StateLength(len) = StateLength::from_bytes(len);
    if len > most {
        return Err(failed(format!("{from}: a state of {len} bytes, of {most} at most")));
    }
    let state = read_exactly(stream, len).map_err(broken)?;
    stream.write_all(&StateLength::TAKEN).map_err(broken)?;
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
        let len = StateLength(state.len() as u64).to_bytes();
        let mut taken = [0; StateLength::TAKEN.len()];
        let sent = to_write.write_all(&len).and_then(|()| to_write.write_all(state));
        // The stream must not be closed before the other end has read it.
        let sent = sent.and_then(|()| to_write.read_exact(&mut taken));
        sent.map_err(|error| failed(format!("{to}: {error}")))
    }

    fn get(&self, epoch: Epoch, from: &NodeId, ops: Ops, most: u64) -> Result<Bytes, CollectiveError> {
        let key = state_key(self.run, epoch, from, self.fabric.id(), ops);
        let stream = socket(self.runtime.block_on(self.accept(epoch, from, key, LONG_PATIENCE))?);
        let _watch = self.ends_with(epoch, &stream)?;
        read_state(&stream, from, most)
    }

    fn fetch(&self, epoch: Epoch, state: &StateRef) -> Result<Bytes, CollectiveError> {
        self.runtime.block_on(self.fetch_state(epoch, state))
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

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_fabric::{FabricConfig, FrameKind, LinkEvent, NodeKind};
    use phalanx_types::{DomainName, Parcel};
    use phalanx_wire::train_reason::BreakReason;
    use std::future::poll_fn;
    use std::path::Path;
    use std::pin::pin;
    use std::task::Poll;
    use tokio::runtime::Runtime;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    const DEADLINE: Duration = Duration::from_secs(30);

    async fn fabric(dir: &Path, name: &str) -> Fabric {
        let config = FabricConfig::new(DomainName::new("lab").unwrap(), name, NodeKind::Computing);
        let runtime_dir = dir.to_owned();
        Fabric::start(FabricConfig { runtime_dir, mdns: false, ..config }).await.unwrap()
    }

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Starts a node and the driver that it is linked to. The driver's runtime stands still afterwards, so the driver
    /// answers nothing.
    fn node_of_a_silent_driver(
        dir: &Path,
        runtime: &Runtime,
        driver_runtime: &Runtime,
    ) -> (Fabric, Peer, Fabric) {
        let driver = driver_runtime.block_on(fabric(dir, "driver"));
        let (met, until_met) = oneshot::channel();
        std::thread::scope(|scope| {
            let answers =
                scope.spawn(|| driver_runtime.block_on(async { timeout(DEADLINE, until_met).await }));
            let (node, first) = runtime.block_on(async {
                let node = fabric(dir, "node").await;
                let mut links = node.channel(FrameKind::Train);
                (node, timeout(DEADLINE, links.recv()).await.unwrap())
            });
            let Some(LinkEvent::Up(peer)) = first else { panic!("{first:?}") };
            met.send(()).unwrap();
            answers.join().unwrap().unwrap().unwrap();
            (node, peer, driver)
        })
    }

    #[test]
    fn a_fetch_from_the_driver_ends_with_the_group() {
        let dir = tempfile::tempdir().unwrap();
        let (node_runtime, driver_runtime) = (runtime(), runtime());
        let (node, peer, driver) = node_of_a_silent_driver(dir.path(), &node_runtime, &driver_runtime);
        let blob = driver.hold(Parcel::from_bytes(Bytes::from_static(b"state")));
        let state = StateRef { step: 1, bytes: 5, blob };
        let mailbox = Arc::new(Mailbox::default());
        let error = node_runtime.block_on(async {
            let connector = FabricConnector::new(node, peer, RunId(1), Vec::new(), mailbox.clone());
            let mut fetch = pin!(connector.fetch_state(Epoch(2), &state));
            let first = poll_fn(|context| Poll::Ready(fetch.as_mut().poll(context))).await;
            assert!(first.is_pending(), "the driver does not answer");
            mailbox.abort(Epoch(2), BreakReason::StateLost { node: "n2".parse().unwrap() });
            timeout(DEADLINE, fetch).await.unwrap().unwrap_err()
        });
        assert!(error.to_string().contains("n2 is lost"), "{error}");
    }
}
