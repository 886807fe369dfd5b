//! Carries out batches over groups of ranks.

mod moves;
mod reduce;
mod sets;

pub(super) use sets::{FIRST_GROUP_LANE, join_group};

use super::buffer::{OutputTensor, RawTensor};
use super::completion::{Completion, Outcome};
use super::numeric::Scratch;
use crate::core::signature::{OpKind, OpSignature, SetId};
use crate::error::OpsError;
use crate::rendezvous::Mesh;
use phalanx_collective::{Group, GroupAborter, GroupBuffer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What calls of groups are named: the order is agreed before, so names need not be compared again.
const CALL: &str = "ops";

/// The groups that an aborter can end.
pub(super) type Aborters = Arc<Mutex<Vec<GroupAborter>>>;

/// One operation of a batch, as this rank takes part in it.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) name: String,
    pub(super) signature: OpSignature,
    /// `None` on a rank that has joined.
    pub(super) tensors: Option<Vec<RawTensor>>,
    pub(super) splits: Option<Vec<u64>>,
    pub(super) completion: Option<Arc<Completion>>,
    pub(super) issued: Instant,
}

/// A set of ranks and this rank's end of its group.
#[derive(Debug)]
pub(super) struct SetGroup {
    pub(super) group: Group,
    /// The ranks of the world that are its ranks, in order.
    pub(super) members: Vec<u32>,
}

/// Computes what the leader has put into order.
#[derive(Debug)]
pub(super) struct Executor {
    pub(super) rank: u32,
    pub(super) epoch: u64,
    pub(super) cores: Option<usize>,
    pub(super) mesh: Mesh,
    pub(super) sets: BTreeMap<SetId, SetGroup>,
    pub(super) next_set: u32,
    /// Shared memory in which tensors of the world are fused.
    pub(super) bucket: Option<GroupBuffer>,
    pub(super) packed: Scratch,
    pub(super) received: Scratch,
    pub(super) aborters: Aborters,
}

impl Executor {
    /// Computes a batch. Operations of several are all-reduces that fit together.
    pub(super) fn run(&mut self, works: &mut [Work]) -> Result<Vec<Outcome>, OpsError> {
        let Some(first) = works.first() else { return Ok(Vec::new()) };
        let set = first.signature.set;
        if let OpKind::AllReduce { reduction } = first.signature.kind {
            self.all_reduce(set, reduction, works)?;
            return Ok(works.iter().map(|_| Outcome::default()).collect());
        }
        works.iter_mut().map(|work| self.run_alone(work)).collect()
    }

    fn run_alone(&mut self, work: &mut Work) -> Result<Outcome, OpsError> {
        let mut outcome = Outcome::default();
        match work.signature.kind.clone() {
            OpKind::AllReduce { .. } => {}
            OpKind::ReduceScatter { reduction } => {
                outcome.outputs = self.each(work, |executor, work, index| {
                    executor.reduce_scatter(work, index, reduction).map(Some)
                })?;
            }
            OpKind::AllGather => {
                outcome.outputs =
                    self.each(work, |executor, work, index| executor.all_gather(work, index).map(Some))?;
            }
            OpKind::AllToAll => {
                outcome.outputs =
                    self.each(work, |executor, work, index| executor.all_to_all(work, index).map(Some))?;
            }
            OpKind::Broadcast { root } => {
                self.each(work, |executor, work, index| {
                    executor.broadcast(work, index, root).map(|()| None)
                })?;
            }
            OpKind::Barrier => self.set(work.signature.set)?.group.barrier(CALL)?,
            OpKind::AddSet { ranks } => outcome.set = Some(self.add_set(ranks)?),
            OpKind::RemoveSet { set } => self.remove_set(set),
        }
        Ok(outcome)
    }

    /// Does something for each tensor of an operation.
    fn each(
        &mut self,
        work: &mut Work,
        act: impl Fn(&mut Self, &mut Work, usize) -> Result<Option<OutputTensor>, OpsError>,
    ) -> Result<Vec<OutputTensor>, OpsError> {
        let mut outputs = Vec::new();
        for index in 0..work.signature.tensors.len() {
            outputs.extend(act(self, work, index)?);
        }
        Ok(outputs)
    }

    pub(super) fn set(&mut self, set: SetId) -> Result<&mut SetGroup, OpsError> {
        self.sets.get_mut(&set).ok_or(OpsError::NotInSet { set: set.0 })
    }
}
