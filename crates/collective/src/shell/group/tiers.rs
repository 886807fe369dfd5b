//! The steps of a call over several hosts: within the host and between leaders.
//!
//! Steps within a host are skipped if this is the host's only rank.

use super::Group;
use crate::core::hosts::renumber;
use crate::core::joined::followed;
use crate::core::mark;
use crate::core::schedule::{Arithmetic, Program, Seat};
use crate::core::select::{self, AlgorithmTable, GroupShape};
use crate::core::traffic::{program_bytes, ring_bytes};
use crate::core::words::{Algorithm, Kind, Reduction, Signature};
use crate::error::CollectiveError;
use crate::shell::links::Call;
use crate::shell::shared::{Gathered, SharedGroup};
use phalanx_types::DType;

/// A call of the whole group.
#[derive(Debug)]
pub(super) struct Called {
    signature: Signature,
    /// Identifies the signature in calls within the host.
    mark: String,
}

impl Called {
    pub(super) fn new(signature: Signature) -> Self {
        let mark = mark::mark(&signature);
        Self { signature, mark }
    }
}

/// The result of a step within a host.
#[derive(Debug)]
pub(super) enum Within<T> {
    /// No other rank is there.
    Alone,
    Done(T),
    /// Nothing was done, because some ranks have joined. Holds the call of the other ranks, which all ranks of the host
    /// now know.
    Joined(Signature),
}

/// Bytes are only moved.
pub(super) const MOVE: Arithmetic = Arithmetic { dtype: DType::U8, reduction: Reduction::Sum, ranks: 1 };

impl Group {
    pub(super) fn called(
        &mut self,
        kind: Kind,
        reduction: Option<Reduction>,
        dtype: DType,
        bytes: usize,
        name: &str,
    ) -> Called {
        let count = (bytes / dtype.size()) as u64;
        let signature =
            Signature { sequence: self.sequence, kind, reduction, dtype, count, name: name.to_owned() };
        self.sequence += 1;
        Called::new(signature)
    }

    /// The number of this rank's host among hosts.
    pub(super) fn seat(&self) -> Seat {
        Seat { rank: self.hosts.seat(self.rank).0, ranks: self.hosts.count() }
    }

    /// The position of this rank in its host.
    pub(super) fn place(&self) -> Seat {
        let (host, place) = self.hosts.seat(self.rank);
        Seat { rank: place, ranks: self.hosts.members(host).len() }
    }

    pub(super) fn leads(&self) -> bool {
        self.place().rank == 0
    }

    /// The algorithm that leaders use for this many bytes.
    pub(super) fn algorithm_between(&self, kind: Kind, bytes: usize) -> Algorithm {
        let hosts = self.hosts.count();
        let place = GroupShape { ranks: hosts, hosts, shared: false };
        select::choose(kind, bytes as u64, place, &AlgorithmTable::default())
    }

    /// Carries out a program among leaders.
    pub(super) fn between(
        &mut self,
        called: &Called,
        mut program: Program,
        arithmetic: Arithmetic,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), CollectiveError> {
        self.sent += program_bytes(&program, arithmetic.dtype.size());
        renumber(&mut program, &self.hosts.leaders());
        let Some(links) = &self.links else { return Ok(()) };
        let call = Call { signature: &called.signature, program: &program, arithmetic, input, output };
        links.with(|links| links.run(call), || self.aborted())
    }

    /// The leader gets the combination over the host in `data`.
    pub(super) fn reduce_within(
        &mut self,
        called: &Called,
        data: &mut [u8],
        dtype: DType,
        reduction: Reduction,
    ) -> Result<(), CollectiveError> {
        let (kind, bytes) = (Kind::Reduce { root: 0 }, data.len());
        let mut reduce =
            |shared: &mut SharedGroup, mark: &str| shared.reduce(0, data, dtype, reduction, mark);
        if let Within::Joined(_) = self.attempt(called, kind, bytes, &mut reduce)? {
            // Now all of them make the same call.
            self.attempt(called, kind, bytes, reduce)?;
        }
        Ok(())
    }

    /// All ranks of the host get the values of the rank at position `root`.
    pub(super) fn broadcast_within(
        &mut self,
        called: &Called,
        root: usize,
        data: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let kind = Kind::Broadcast { root: root as u32 };
        let within = self
            .within(called, kind, data.len(), |shared, mark| shared.broadcast(root, data, DType::U8, mark));
        within.unwrap_or(Ok(()))
    }

    /// The rank at position `root` gets the values of all ranks of the host.
    pub(super) fn gather_within(
        &mut self,
        called: &Called,
        root: usize,
        mine: &[u8],
    ) -> Result<Option<Gathered>, CollectiveError> {
        let kind = Kind::Gather { root: root as u32 };
        let within =
            self.within(called, kind, mine.len(), |shared, mark| shared.gather(root, mine, DType::U8, mark));
        within.unwrap_or_else(|| Ok(Some(Gathered { bytes: mine.to_vec(), ends: vec![mine.len()] })))
    }

    /// All ranks of the host get the values of all of them.
    pub(super) fn all_gather_within(
        &mut self,
        called: &Called,
        mine: &[u8],
    ) -> Result<Gathered, CollectiveError> {
        let within = self.within(called, Kind::AllGather, mine.len(), |shared, mark| {
            shared.all_gather(mine, DType::U8, mark)
        });
        within.unwrap_or_else(|| Ok(Gathered { bytes: mine.to_vec(), ends: vec![mine.len()] }))
    }

    /// All ranks of the host get their part of the leader's values.
    pub(super) fn scatter_within(
        &mut self,
        called: &Called,
        all: Option<&[u8]>,
        mine: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let kind = Kind::Scatter { root: 0 };
        if self.shared.is_none() {
            mine.copy_from_slice(all.unwrap_or_default());
            return Ok(());
        }
        let within = self
            .within(called, kind, mine.len(), |shared, mark| shared.scatter(0, all, mine, DType::U8, mark));
        within.unwrap_or(Ok(()))
    }

    pub(super) fn barrier_within(&mut self, called: &Called) -> Result<(), CollectiveError> {
        self.within(called, Kind::Barrier, 0, SharedGroup::barrier).unwrap_or(Ok(()))
    }

    /// Runs a step with the host's other ranks, if there are any; joined ranks cannot take part in it.
    fn within<T>(
        &mut self,
        called: &Called,
        kind: Kind,
        bytes: usize,
        work: impl FnOnce(&mut SharedGroup, &str) -> Result<T, CollectiveError>,
    ) -> Option<Result<T, CollectiveError>> {
        match self.attempt(called, kind, bytes, work) {
            Ok(Within::Alone) => None,
            Ok(Within::Done(done)) => Some(Ok(done)),
            Ok(Within::Joined(_)) => Some(Err(super::system("compare calls", "a rank has joined too late"))),
            Err(error) => Some(Err(error)),
        }
    }

    /// Runs a step with the host's other ranks, if there are any.
    pub(super) fn attempt<T>(
        &mut self,
        called: &Called,
        kind: Kind,
        bytes: usize,
        work: impl FnOnce(&mut SharedGroup, &str) -> Result<T, CollectiveError>,
    ) -> Result<Within<T>, CollectiveError> {
        let sent = ring_bytes(kind, self.place(), bytes);
        let Some(shared) = &mut self.shared else { return Ok(Within::Alone) };
        match work(shared, &called.mark) {
            Err(CollectiveError::Mismatch { .. }) => self.compare(called).map(Within::Joined),
            result => {
                self.sent += sent;
                result.map(Within::Done)
            }
        }
    }

    /// Finds out which calls differ. All ranks of the host saw a difference at the same step, so all come here. Returns
    /// the call that joined ranks take part in, if joining is the only difference.
    fn compare(&mut self, called: &Called) -> Result<Signature, CollectiveError> {
        let nothing = super::system("compare calls", "no rank says what it calls");
        let own = mark::encode(&called.signature);
        let Some(shared) = &mut self.shared else { return Err(nothing) };
        let all = shared.all_gather(&own, DType::U8, "calls that differ")?;
        let members = self.hosts.members(self.hosts.seat(self.rank).0);
        let calls = (0..members.len()).map(|place| all.part(place).and_then(mark::decode));
        let calls: Vec<Signature> = calls.collect::<Option<_>>().ok_or(nothing.clone())?;
        if let Some(call) = followed(&calls) {
            return Ok(call.clone());
        }
        let differs = |place: &usize| all.part(*place) != Some(own.as_slice());
        let place = (0..members.len()).find(differs).ok_or(nothing)?;
        Err(CollectiveError::Mismatch {
            own_rank: self.rank,
            rank: members[place],
            ours: Box::new(called.signature.clone()),
            theirs: Box::new(calls[place].clone()),
        })
    }
}
