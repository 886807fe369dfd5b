//! What main nodes say.

use super::{Lease, LeaseState, MainKey, RunKey, WorkerCommand, WorkerCore};
use phalanx_types::{LeaseId, Outbox, Parcel, SessionId, Time};
use phalanx_wire::jobs::{Dispatch, Done, DoneResult, Offer, OfferGroup, ParcelRef};
use phalanx_wire::reason::FailReason;
use std::cmp::Reverse;

/// Leases of one session beyond this are handed back at once, whatever window was announced.
const MAX_LEASES: usize = 1 << 16;

impl WorkerCore {
    /// A main node tells what came up since its last message.
    pub fn on_dispatch(
        &mut self,
        now: Time,
        main: MainKey,
        dispatch: Dispatch,
        out: &mut Outbox<WorkerCommand>,
    ) {
        let Some((id, session)) = self.session_of(main) else { return };
        if session.epoch != dispatch.epoch {
            return;
        }
        for lease in dispatch.acks {
            self.on_ack(id, lease, out);
        }
        for lease in dispatch.cancels {
            self.on_cancel(id, lease, out);
        }
        for lease in dispatch.go {
            self.on_go(now, id, lease, out);
        }
        for lease in dispatch.recalls {
            self.on_recall(id, lease);
        }
        for OfferGroup { kind, needs, offers } in dispatch.offers {
            for offer in offers {
                let Offer { lease, priority, careful, payload } = offer;
                self.arrivals += 1;
                let (state, fetch) = match payload {
                    ParcelRef::Inline { head, body } => match Parcel::from_parts(head, body) {
                        Ok(payload) => (LeaseState::Ready { payload }, None),
                        Err(error) => (unreadable(lease, &error.to_string()), None),
                    },
                    ParcelRef::Blob { head, blob } => (LeaseState::Fetching, Some((head, blob))),
                };
                let order = (Reverse(priority), self.arrivals);
                let kind = kind.clone();
                let offered =
                    Lease { number: lease.number, kind, needs, order, careful, recalled: false, state };
                let taken = self.on_offer(id, lease, offered, out);
                if let (true, Some((head, blob))) = (taken, fetch) {
                    out.push(WorkerCommand::Fetch { main, key: RunKey { session: id, lease }, head, blob });
                }
            }
        }
        self.start_ready(now, out);
    }

    /// Takes an offer in, or hands it back; `false` when there is nothing to fetch for it.
    fn on_offer(
        &mut self,
        id: SessionId,
        lease: LeaseId,
        mut offered: Lease,
        out: &mut Outbox<WorkerCommand>,
    ) -> bool {
        let able = self.config.kinds.contains(&offered.kind)
            && offered.needs.fit(self.config.capacity.cores, self.config.capacity.memory);
        let draining = self.draining;
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        if let Some(known) = session.leases.get(&lease.job) {
            if known.number >= lease.number {
                return false;
            }
            if matches!(known.state, LeaseState::Done(_)) {
                // The result is on its way to the main node.
                session.hand_back(lease);
                return false;
            }
            let older = LeaseId { job: lease.job, number: known.number };
            self.on_cancel(id, older, out);
        }
        let clock = self.served_clock;
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        // A run that was told to stop may go on under this very number: after a main node's restart
        // the numbers begin again.
        let winding_down = self.batches.contains(RunKey { session: id, lease });
        if draining || winding_down || session.leases.len() >= MAX_LEASES {
            session.hand_back(lease);
            return false;
        }
        if session.leases.is_empty() {
            // Time it did not ask for is not owed to it.
            session.served = session.served.max(clock);
        }
        if !able {
            offered.state = unreadable(lease, &format!("this node does not handle {:?}", offered.kind));
        }
        match &offered.state {
            LeaseState::Ready { .. } => {
                session.ready.insert(offered.order, lease.job);
            }
            LeaseState::Done(done) => {
                session.report.done.push(done.clone());
                session.dirty = true;
            }
            LeaseState::Fetching | LeaseState::Asking { .. } | LeaseState::Running => {}
        }
        session.leases.insert(lease.job, offered);
        able
    }

    fn on_ack(&mut self, id: SessionId, lease: LeaseId, out: &mut Outbox<WorkerCommand>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if matches!(session.lease_mut(lease), Some(Lease { state: LeaseState::Done(_), .. }))
            && let Some(Lease { state: LeaseState::Done(done), .. }) = session.remove(lease)
        {
            forget(done, out);
        }
    }

    /// Ends a lease. A result is kept: it crossed the cancellation on the way, and the main node
    /// may be fetching it; it says when it no longer needs it.
    fn on_cancel(&mut self, id: SessionId, lease: LeaseId, out: &mut Outbox<WorkerCommand>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if matches!(session.lease_mut(lease), Some(Lease { state: LeaseState::Done(_), .. })) {
            return;
        }
        let Some(removed) = session.remove(lease) else { return };
        let key = RunKey { session: id, lease };
        match removed.state {
            LeaseState::Running => out.push(WorkerCommand::CancelRun { key }),
            LeaseState::Asking { .. } => {
                self.asking.remove(&key);
            }
            LeaseState::Fetching | LeaseState::Ready { .. } | LeaseState::Done(_) => {}
        }
    }

    /// Hands a lease back unless it runs; one still being fetched when its payload is there.
    fn on_recall(&mut self, id: SessionId, lease: LeaseId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(held) = session.lease_mut(lease) else { return };
        match held.state {
            LeaseState::Fetching => held.recalled = true,
            LeaseState::Ready { .. } => {
                session.remove(lease);
                session.hand_back(lease);
            }
            LeaseState::Asking { .. } | LeaseState::Running | LeaseState::Done(_) => {}
        }
    }
}

/// A result in place of a job whose offer cannot be run.
fn unreadable(lease: LeaseId, message: &str) -> LeaseState {
    let reason = FailReason::Handler { message: message.to_owned() };
    LeaseState::Done(Done { lease, result: DoneResult::Failed { reason, retry: false }, run_micros: 0 })
}

pub(super) fn forget(done: Done, out: &mut Outbox<WorkerCommand>) {
    if let DoneResult::Solved(ParcelRef::Blob { blob, .. }) = done.result {
        out.push(WorkerCommand::Forget { blob });
    }
}
