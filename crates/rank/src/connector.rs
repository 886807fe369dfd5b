//! How a rank reaches the others.

use crate::error::RankError;
use bytes::Bytes;
use phalanx_collective::{CollectiveError, Socket};
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::train::{Ops, StateRef};
use std::fmt;

/// Opens the streams that one lane of a group needs to other ranks.
pub(super) trait Connector: fmt::Debug + Send + Sync {
    /// A stream to a rank, whose other end it opens, too.
    fn stream(&self, epoch: Epoch, lane: usize, rank: usize) -> Result<Socket, CollectiveError>;

    /// Sends a part of the state to a node, which waits for it.
    fn give(&self, epoch: Epoch, to: &NodeId, ops: Ops, state: &[u8]) -> Result<(), CollectiveError>;

    /// The part of the state that a node sends, of `most` bytes or fewer.
    fn get(&self, epoch: Epoch, from: &NodeId, ops: Ops, most: u64) -> Result<Bytes, CollectiveError>;

    /// A part of the state that the driver holds.
    fn fetch(&self, epoch: Epoch, state: &StateRef) -> Result<Bytes, CollectiveError>;

    /// A stream for each needed rank of a list, at its place in the list.
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

/// The group is over, because of something other than a collective call.
pub(super) fn broken(problem: String) -> RankError {
    RankError::Together(CollectiveError::System { what: "go on", problem })
}
