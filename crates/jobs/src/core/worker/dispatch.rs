//! What main nodes say.

use super::{Lease, LeaseState, MainKey, RunKey, WorkerCommand, WorkerCore, pace};
use crate::core::bugs::{Bug, planted};
use phalanx_types::{LeaseId, Needs, Outbox, Parcel, SessionId, Time};
use phalanx_wire::jobs::{Dispatch, Done, DoneResult, Offer, OfferGroup, ParcelRef};
use phalanx_wire::reason::FailReason;
use std::cmp::Reverse;

impl WorkerCore {
    /// A main node tells what came up since its last message. One that comes again, and late, is no news: it would drop
    /// solutions that are needed, and run jobs that have ended.
    pub fn on_dispatch(
        &mut self,
        now: Time,
        main: MainKey,
        dispatch: Dispatch,
        out: &mut Outbox<WorkerCommand>,
    ) {
        let Some((id, session)) = self.session_of(main) else { return };
        if session.epoch != dispatch.epoch || dispatch.number <= session.heard && !planted(Bug::HearsTwice) {
            return;
        }
        session.heard = dispatch.number;
        for lease in dispatch.acks {
            self.on_ack(id, lease, out);
        }
        for lease in dispatch.keeps {
            self.on_keep(id, lease, out);
        }
        for job in dispatch.drops {
            self.on_drop(id, job, out);
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
                let Offer { lease, priority, careful, payload, inputs } = offer;
                self.arrivals += 1;
                let (state, inputs, blob_len) = self.unpack(id, lease, payload, inputs);
                let offered = Lease {
                    number: lease.number,
                    kind: kind.clone(),
                    // A job without cores would start without end.
                    needs: Needs { cores: needs.cores.max(1), ..needs },
                    order: (Reverse(priority), self.arrivals),
                    careful,
                    recalled: false,
                    blob_len,
                    inputs,
                    state,
                };
                self.on_offer(id, lease, offered, out);
            }
        }
        self.start_ready(now, out);
        self.fetch_more(now, out);
    }

    /// Takes an offer in, or hands it back.
    fn on_offer(
        &mut self,
        id: SessionId,
        lease: LeaseId,
        mut offered: Lease,
        out: &mut Outbox<WorkerCommand>,
    ) {
        let able = self.config.kinds.contains(&offered.kind)
            && offered.needs.fit(self.config.capacity.cores, self.config.capacity.memory);
        let (draining, share) = (self.draining, self.share);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some(known) = session.leases.get(&lease.job) {
            if known.number >= lease.number {
                return;
            }
            if matches!(known.state, LeaseState::Done(_)) {
                // The result is on its way to the main node.
                session.hand_back(lease);
                return;
            }
            let older = LeaseId { job: lease.job, number: known.number };
            self.on_cancel(id, older, out);
        }
        let clock = self.served_clock;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        // A run that was told to stop may go on under this very number: after a main node's restart
        // the numbers begin again.
        let winding_down = self.batches.contains(RunKey { session: id, lease });
        // Twice what any window asks for, so that only a main node that ignores windows meets it.
        let too_many = session.leases.len() >= 2 * pace::max_window(self.config.capacity.cores);
        // The main node had not heard yet what others use of this node.
        let no_room = able && !offered.needs.fit(share.cores, share.memory);
        if draining || winding_down || too_many || no_room {
            session.hand_back(lease);
            return;
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
            LeaseState::Unfetched { .. } => {
                session.unfetched.insert(offered.order, lease.job);
            }
            LeaseState::Fetching { .. } | LeaseState::Asking { .. } | LeaseState::Running => {}
        }
        session.leases.insert(lease.job, offered);
    }

    /// Fetches payloads while those in hand are not too much; one, however large, always.
    pub(super) fn fetch_more(&mut self, now: Time, out: &mut Outbox<WorkerCommand>) {
        let begun = self.begin_fetches(out);
        if !begun.is_empty() {
            // Its inputs may have come for another job meanwhile.
            self.complete(now, &begun, out);
        }
    }

    /// Gives the leases that have their payload and wait for inputs alone.
    fn begin_fetches(&mut self, out: &mut Outbox<WorkerCommand>) -> Vec<RunKey> {
        let mut begun = Vec::new();
        if self.sessions.values().all(|s| s.unfetched.is_empty()) {
            return begun;
        }
        let waits = |l: &&Lease| {
            !matches!(l.state, LeaseState::Unfetched { .. } | LeaseState::Running | LeaseState::Done(_))
        };
        let leases = self.sessions.values().flat_map(|s| s.leases.values());
        let mut held: u64 = leases.filter(waits).fold(0, |sum, l| sum.saturating_add(l.blob_len));
        loop {
            let heads =
                self.sessions.iter().filter_map(|(id, s)| Some((*s.unfetched.first_key_value()?.0, *id)));
            let Some((order, id)) = heads.min() else { return begun };
            let Some(session) = self.sessions.get_mut(&id) else { return begun };
            let (Some(main), Some(job)) = (session.main, session.unfetched.get(&order).copied()) else {
                return begun;
            };
            let Some(lease) = session.leases.get_mut(&job) else { return begun };
            if held > 0 && held.saturating_add(lease.blob_len) > self.config.prefetch.0 {
                return begun;
            }
            held = held.saturating_add(lease.blob_len);
            session.unfetched.remove(&order);
            let fetching = LeaseState::Fetching { payload: None };
            if let LeaseState::Unfetched { payload } = std::mem::replace(&mut lease.state, fetching) {
                let key = RunKey { session: id, lease: LeaseId { job, number: lease.number } };
                match payload {
                    ParcelRef::Blob { head, blob } => {
                        out.push(WorkerCommand::Fetch { main, key, head, blob });
                    }
                    // It was whole when it came.
                    ParcelRef::Inline { head, body } => {
                        lease.state = LeaseState::Fetching { payload: Parcel::from_parts(head, body).ok() };
                        begun.push(key);
                    }
                }
                session.fetch_inputs(id, key.lease, out);
            }
        }
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
            LeaseState::Unfetched { .. }
            | LeaseState::Fetching { .. }
            | LeaseState::Ready { .. }
            | LeaseState::Done(_) => {}
        }
    }

    /// Hands a lease back unless it runs; one still being fetched when its payload is there.
    fn on_recall(&mut self, id: SessionId, lease: LeaseId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(held) = session.lease_mut(lease) else { return };
        match held.state {
            LeaseState::Fetching { .. } => held.recalled = true,
            LeaseState::Unfetched { .. } | LeaseState::Ready { .. } => {
                session.remove(lease);
                session.hand_back(lease);
            }
            LeaseState::Asking { .. } | LeaseState::Running | LeaseState::Done(_) => {}
        }
    }
}

/// A result in place of a job whose offer cannot be run.
pub(super) fn unreadable(lease: LeaseId, message: &str) -> LeaseState {
    let reason = FailReason::Handler { message: message.to_owned() };
    LeaseState::Done(Done { lease, result: DoneResult::Failed { reason, retry: false }, run_micros: 0 })
}

pub(super) fn forget(done: Done, out: &mut Outbox<WorkerCommand>) {
    if let DoneResult::Solved(ParcelRef::Blob { blob, .. }) = done.result {
        out.push(WorkerCommand::Forget { blob });
    }
}
