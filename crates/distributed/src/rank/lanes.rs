//! The ends of a group before everybody knows everybody's.

use super::exchange::Exchange;
use super::together::Together;
use super::worker::Worker;
use crate::error::DistributedError;
use bytes::Bytes;
use phalanx_collective::{
    BucketLimits, Buckets, CollectiveError, Compression, Group, GroupEnd, GroupOptions, PreparedGroup, Socket,
};
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::train::{Ops, StateRef};
use std::fmt;
use std::time::Duration;

/// Memory for what travels on the lane of control.
const CONTROL_ROOM: usize = 4096;
/// A replica that keeps another waiting for so long is named.
pub(super) const STALL: Duration = Duration::from_secs(5);
/// How many lanes a group has.
const LANES: usize = 2;

/// Opens the streams that one lane of a group needs to other ranks.
pub(super) trait Connector: fmt::Debug + Send + Sync {
    /// A stream to a rank, whose other end it opens, too.
    fn stream(&self, epoch: Epoch, lane: usize, rank: usize) -> Result<Socket, CollectiveError>;

    /// Sends a part of the state to a node, which waits for it.
    fn give(&self, epoch: Epoch, to: &NodeId, ops: Ops, state: &[u8]) -> Result<(), CollectiveError>;

    /// The part of the state that a node sends, of so many bytes at most.
    fn get(&self, epoch: Epoch, from: &NodeId, ops: Ops, most: u64) -> Result<Bytes, CollectiveError>;

    /// A part of the state that the driver holds.
    fn fetch(&self, epoch: Epoch, state: &StateRef) -> Result<Bytes, CollectiveError>;

    /// A stream for each of those of some ranks that are needed, in their places among them.
    fn streams(
        &self,
        epoch: Epoch,
        lane: usize,
        needs: &[usize],
        among: &[usize],
    ) -> Result<Vec<Option<Socket>>, CollectiveError> {
        let mut streams: Vec<Option<Socket>> = among.iter().map(|_| None).collect();
        for place in needs {
            streams[*place] = Some(self.stream(epoch, lane, among[*place])?);
        }
        Ok(streams)
    }
}

/// This replica's ends of both lanes: that of gradients, and that of control.
#[derive(Debug)]
pub(super) struct Lanes {
    ends: [PreparedGroup; LANES],
    buckets: Buckets,
    compression: Compression,
    epoch: Epoch,
}

/// Makes the ends, and says how the others reach them.
pub(super) fn prepare(
    worker: &Worker,
    epoch: Epoch,
    rank: usize,
    ranks: usize,
) -> Result<(Lanes, Bytes), DistributedError> {
    let sizes: Vec<usize> = worker.stepper.model.parameters().iter().map(|p| p.elements()).collect();
    let buckets = Buckets::plan(&sizes, BucketLimits::default());
    let compression = worker.task.config.sync.compress;
    let options =
        |room| GroupOptions { rank, ranks, epoch: epoch.0, room, share: true, cores: None, host: None };
    let (gradients, first) = Group::prepare(options(Exchange::room(&buckets)))?;
    let (control, second) = Group::prepare(options(CONTROL_ROOM))?;
    let end = serde_json::to_vec(&[first, second]).map_err(|error| unreadable(&error))?;
    Ok((Lanes { ends: [gradients, control], buckets, compression, epoch }, end.into()))
}

impl Lanes {
    /// Joins the ends of all replicas, which come in the order of their ranks. `on_wait` hears of whoever is late.
    pub(super) fn connect(
        self,
        ends: &[Bytes],
        connector: &dyn Connector,
        on_wait: impl Fn(usize, Duration) + Clone + Send + 'static,
    ) -> Result<Together, DistributedError> {
        let Self { ends: own, buckets, compression, epoch } = self;
        let read = |end: &Bytes| serde_json::from_slice::<[GroupEnd; LANES]>(end);
        let ends =
            ends.iter().map(read).collect::<Result<Vec<_>, _>>().map_err(|error| unreadable(&error))?;
        let (first, second): (Vec<_>, Vec<_>) =
            ends.into_iter().map(|[first, second]| (first, second)).unzip();
        let join = |lane: usize, own: PreparedGroup, ends: &[GroupEnd]| {
            let all: Vec<usize> = (0..ends.len()).collect();
            let streams = connector.streams(epoch, lane, &own.needs(ends), &all)?;
            let mut group = own.connect(ends, streams)?;
            group.set_on_wait(STALL, on_wait.clone());
            Ok::<_, CollectiveError>(group)
        };
        let [gradients, control] = own;
        let exchange = Exchange::new(join(0, gradients, &first)?, buckets, compression)?;
        Ok(Together::new(exchange, join(1, control, &second)?))
    }
}

/// The group is over, because of something other than a collective call.
pub(super) fn broken(problem: String) -> DistributedError {
    DistributedError::Together(CollectiveError::System { what: "go on", problem })
}

pub(super) fn unreadable(error: &serde_json::Error) -> CollectiveError {
    CollectiveError::System { what: "read the end of a group", problem: error.to_string() }
}
