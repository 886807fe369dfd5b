//! Leases and the sessions they belong to.

use super::MainKey;
use phalanx_types::{Epoch, JobId, LeaseId, Needs, NodeId, Parcel, ParcelHead, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::jobs::{Done, ParcelRef, Report};
use smol_str::SmolStr;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Best priority first, then first come.
pub(super) type Order = (Reverse<i32>, u64);

/// A job this node may run.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) number: u32,
    pub(super) kind: SmolStr,
    pub(super) needs: Needs,
    pub(super) order: Order,
    pub(super) careful: bool,
    /// The main node would rather have it back than see it wait.
    pub(super) recalled: bool,
    /// The length of a payload that does not come inside the offer.
    pub(super) blob_len: u64,
    /// Solutions of other jobs that it takes.
    pub(super) inputs: Vec<LeaseInput>,
    pub(super) state: LeaseState,
}

/// A solution of another job that a lease takes.
#[derive(Debug)]
pub(super) struct LeaseInput {
    pub(super) job: JobId,
    pub(super) place: LeaseInputPlace,
}

#[derive(Debug)]
pub(super) enum LeaseInputPlace {
    Given(Parcel),
    /// Among the kept solutions of the session, or to be fetched.
    At {
        node: NodeId,
        head: ParcelHead,
        blob: BlobId,
    },
}

/// A solution that this node keeps for a session.
#[derive(Debug)]
pub(super) struct KeptHere {
    pub(super) head: ParcelHead,
    pub(super) blob: BlobId,
}

/// A solution that was asked for, and the copy of it that was.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) head: ParcelHead,
    pub(super) node: NodeId,
    pub(super) blob: BlobId,
}

/// How far a lease has come.
#[derive(Debug)]
pub(super) enum LeaseState {
    /// Its payload is left where it is while too much is in hand.
    Unfetched {
        payload: ParcelRef,
    },
    /// Its payload or some of its inputs are on the way.
    Fetching {
        payload: Option<Parcel>,
    },
    /// Waits for room.
    Ready {
        payload: Parcel,
    },
    /// Has room, waits for the main node's `go`.
    Asking {
        payload: Parcel,
    },
    Running,
    /// Ended; kept until the main node has recorded it.
    Done(Done),
}

/// One main node's part of this node.
#[derive(Debug)]
pub(super) struct Session {
    /// The link to it, while there is one.
    pub(super) main: Option<MainKey>,
    pub(super) epoch: Epoch,
    /// The number of the newest message that came over that link.
    pub(super) heard: u64,
    pub(super) leases: BTreeMap<JobId, Lease>,
    pub(super) ready: BTreeMap<Order, JobId>,
    pub(super) unfetched: BTreeMap<Order, JobId>,
    /// Solutions that other jobs of this session may take.
    pub(super) kept: BTreeMap<JobId, KeptHere>,
    /// Solutions that are on their way from other nodes.
    pub(super) arriving: BTreeMap<JobId, Arriving>,
    /// Core-microseconds given to it, for fair shares.
    pub(super) served: u64,
    /// Since when its main node is gone.
    pub(super) orphaned: Option<Time>,
    pub(super) report: Report,
    /// Whether there is something to report.
    pub(super) dirty: bool,
}

impl Session {
    pub(super) fn new(main: MainKey, epoch: Epoch, served: u64) -> Self {
        Self {
            main: Some(main),
            epoch,
            heard: 0,
            leases: BTreeMap::new(),
            ready: BTreeMap::new(),
            unfetched: BTreeMap::new(),
            kept: BTreeMap::new(),
            arriving: BTreeMap::new(),
            served,
            orphaned: None,
            report: Report::default(),
            dirty: false,
        }
    }

    /// Removes every lease that has not started and names them, lowest job first.
    pub(super) fn take_unstarted(&mut self) -> Vec<LeaseId> {
        self.ready.clear();
        self.unfetched.clear();
        let mut taken = Vec::new();
        self.leases.retain(|job, lease| match lease.state {
            LeaseState::Running | LeaseState::Done(_) => true,
            LeaseState::Unfetched { .. }
            | LeaseState::Fetching { .. }
            | LeaseState::Ready { .. }
            | LeaseState::Asking { .. } => {
                taken.push(LeaseId { job: *job, number: lease.number });
                false
            }
        });
        taken
    }

    pub(super) fn hand_back(&mut self, lease: LeaseId) {
        if crate::core::bugs::planted(crate::core::bugs::Bug::DropsOnDrain) {
            return;
        }
        self.report.handed_back.push(lease);
        self.dirty = true;
    }

    /// The lease, when its number is the one asked for.
    pub(super) fn lease_mut(&mut self, lease: LeaseId) -> Option<&mut Lease> {
        self.leases.get_mut(&lease.job).filter(|l| l.number == lease.number)
    }

    /// Removes a lease, from the queue too.
    pub(super) fn remove(&mut self, lease: LeaseId) -> Option<Lease> {
        self.lease_mut(lease)?;
        let removed = self.leases.remove(&lease.job)?;
        match removed.state {
            LeaseState::Ready { .. } => self.ready.remove(&removed.order),
            LeaseState::Unfetched { .. } => self.unfetched.remove(&removed.order),
            LeaseState::Fetching { .. }
            | LeaseState::Asking { .. }
            | LeaseState::Running
            | LeaseState::Done(_) => None,
        };
        Some(removed)
    }

    pub(super) fn check(&self) {
        let ready = self.leases.values().filter(|l| matches!(l.state, LeaseState::Ready { .. })).count();
        assert_eq!(ready, self.ready.len(), "ready leases and queue");
        let left = self.leases.values().filter(|l| matches!(l.state, LeaseState::Unfetched { .. })).count();
        assert_eq!(left, self.unfetched.len(), "unfetched leases and queue");
    }
}
