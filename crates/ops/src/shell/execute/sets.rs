//! Making and removing sets of ranks.

use super::{CALL, Executor, SetGroup};
use crate::core::signature::SetId;
use crate::error::OpsError;
use crate::rendezvous::Lane;
use phalanx_collective::{Gathered, Group, GroupEnd, GroupOptions, PreparedGroup, Socket};
use phalanx_types::DType;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::sync::PoisonError;

/// The lanes of groups come after that of messages.
pub(in crate::shell) const FIRST_GROUP_LANE: u32 = 1;

impl Executor {
    /// Makes a set. All ranks of the world do it at the same time.
    pub(super) fn add_set(&mut self, members: Vec<u32>) -> Result<SetId, OpsError> {
        let id = SetId(self.next_set);
        self.next_set += 1;
        let place = members.iter().position(|member| *member == self.rank);
        let prepared = place.map(|rank| {
            let ranks = members.len();
            let (epoch, cores) = (self.epoch, self.cores);
            Group::prepare(GroupOptions { rank, ranks, epoch, room: 0, share: true, cores, host: None })
        });
        let (prepared, end) = prepared.transpose()?.unzip();
        let told = match &end {
            Some(end) => postcard::to_allocvec(end).map_err(unreadable)?,
            None => Vec::new(),
        };
        let all = self.set(SetId::WORLD)?.group.all_gather(&told, DType::U8, CALL)?;
        if let Some(prepared) = prepared {
            self.join_set(id, members, prepared, &all)?;
        }
        // A rank that left before the others have mapped its memory would be out of reach.
        self.set(SetId::WORLD)?.group.barrier(CALL)?;
        Ok(id)
    }

    fn join_set(
        &mut self,
        id: SetId,
        members: Vec<u32>,
        prepared: PreparedGroup,
        all: &Gathered,
    ) -> Result<(), OpsError> {
        let end = |rank: &u32| postcard::from_bytes(all.part(*rank as usize).unwrap_or_default());
        let ends: Vec<GroupEnd> = members.iter().map(end).collect::<Result<_, _>>().map_err(unreadable)?;
        let needs: Vec<u32> = prepared.needs(&ends).into_iter().map(|place| members[place]).collect();
        let streams = self.mesh.streams(Lane(FIRST_GROUP_LANE + id.0), &needs);
        let streams =
            streams.map_err(|error| OpsError::system("connect the ranks of a process set", error))?;
        let group = join_group(prepared, &ends, streams, &members)?;
        self.aborters.lock().unwrap_or_else(PoisonError::into_inner).push(group.aborter());
        self.sets.insert(id, SetGroup { group, members });
        Ok(())
    }

    pub(super) fn remove_set(&mut self, set: SetId) {
        self.sets.remove(&set);
    }
}

/// Connects a group, with streams by the number of ranks in the world.
pub(in crate::shell) fn join_group(
    prepared: PreparedGroup,
    ends: &[GroupEnd],
    mut streams: BTreeMap<u32, TcpStream>,
    members: &[u32],
) -> Result<Group, OpsError> {
    let streams = members.iter().map(|rank| streams.remove(rank).map(Socket::from)).collect();
    Ok(prepared.connect(ends, streams)?)
}

fn unreadable(error: postcard::Error) -> OpsError {
    OpsError::system("read the end of a group", io::Error::new(io::ErrorKind::InvalidData, error))
}
