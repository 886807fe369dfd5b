//! Solutions of other jobs: what this node keeps of them, and how a lease comes to those it takes.

use super::dispatch::{forget, unreadable};
use super::lease::{Arriving, KeptHere, LeaseInput, LeaseInputPlace, Session};
use super::{Lease, LeaseState, RunInput, RunKey, WorkerCommand, WorkerCore};
use phalanx_types::{JobId, LeaseId, Outbox, Parcel, SessionId, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::jobs::{
    Done, DoneResult, Input, InputPlace, KeptSolution, MAX_INPUTS, MissingInput, ParcelRef,
};

impl Session {
    /// What a lease takes, as far as it is here; `None` if some of it is not.
    pub(super) fn inputs_of(&self, lease: LeaseId) -> Option<Vec<RunInput>> {
        let held = self.leases.get(&lease.job)?;
        let find = |input: &LeaseInput| match &input.place {
            LeaseInputPlace::Given(parcel) => Some(RunInput::Given(parcel.clone())),
            LeaseInputPlace::At { .. } => self.kept.get(&input.job).map(|kept| RunInput::Held(kept.blob)),
        };
        held.inputs.iter().map(find).collect()
    }

    /// An input that was here has been dropped: the lease waits again until it was fetched from where it was said to be.
    pub(super) fn fetch_again(&mut self, id: SessionId, lease: LeaseId, out: &mut Outbox<WorkerCommand>) {
        let Some(held) = self.lease_mut(lease) else { return };
        let (order, state) = (held.order, &mut held.state);
        if let LeaseState::Ready { payload } | LeaseState::Asking { payload } = state {
            *state = LeaseState::Fetching { payload: Some(std::mem::take(payload)) };
            self.ready.remove(&order);
            self.fetch_inputs(id, lease, out);
        }
    }

    /// Fetches the inputs of a lease that are neither here nor on their way.
    pub(super) fn fetch_inputs(&mut self, id: SessionId, lease: LeaseId, out: &mut Outbox<WorkerCommand>) {
        let Some(held) = self.leases.get(&lease.job) else { return };
        for input in &held.inputs {
            let LeaseInputPlace::At { node, head, blob } = &input.place else { continue };
            if self.kept.contains_key(&input.job) || self.arriving.contains_key(&input.job) {
                continue;
            }
            let (node, head, blob) = (node.clone(), head.clone(), *blob);
            let asked = Arriving { head: head.clone(), node: node.clone(), blob };
            self.arriving.insert(input.job, asked);
            out.push(WorkerCommand::FetchInput { session: id, input: input.job, node, head, blob });
        }
    }

    /// Leases that wait until this input has arrived.
    fn waiting_for(&self, input: JobId) -> Vec<LeaseId> {
        let waits = |lease: &Lease| {
            let takes =
                |taken: &LeaseInput| taken.job == input && matches!(taken.place, LeaseInputPlace::At { .. });
            matches!(lease.state, LeaseState::Fetching { .. }) && lease.inputs.iter().any(takes)
        };
        let waiting = self.leases.iter().filter(|(_, lease)| waits(lease));
        waiting.map(|(job, lease)| LeaseId { job: *job, number: lease.number }).collect()
    }

    /// Hands a lease back because the copy of an input that was asked for could not be had; `false` if its own offer
    /// named another copy, which nobody has asked for.
    fn misses(&mut self, lease: LeaseId, input: JobId, asked: &Arriving, is_gone: bool) -> bool {
        let Some(held) = self.leases.get(&lease.job) else { return true };
        let named = |taken: &LeaseInput| match &taken.place {
            LeaseInputPlace::At { node, blob, .. } => {
                taken.job == input && (node, *blob) == (&asked.node, asked.blob)
            }
            LeaseInputPlace::Given(_) => false,
        };
        if !held.inputs.iter().any(named) {
            return false;
        }
        self.remove(lease);
        let (node, blob) = (asked.node.clone(), asked.blob);
        self.report.missing.push(MissingInput { lease, input, node, blob, is_gone });
        self.dirty = true;
        true
    }
}

impl WorkerCore {
    /// Takes an offer apart: the state of its lease, its inputs, and how many bytes are to be fetched.
    pub(super) fn unpack(
        &self,
        session: SessionId,
        lease: LeaseId,
        payload: ParcelRef,
        inputs: Vec<Input>,
    ) -> (LeaseState, Vec<LeaseInput>, u64) {
        let session = self.sessions.get(&session);
        if inputs.len() > MAX_INPUTS {
            return (unreadable(lease, "the job takes too many solutions"), Vec::new(), 0);
        }
        let mut to_fetch = 0_u64;
        let mut taken = Vec::with_capacity(inputs.len());
        for Input { job, place } in inputs {
            let place = match place {
                InputPlace::Inline { head, body } => match Parcel::from_parts(head, body) {
                    Ok(parcel) => LeaseInputPlace::Given(parcel),
                    Err(error) => return (unreadable(lease, &error.to_string()), Vec::new(), 0),
                },
                InputPlace::At { node, head, blob } => {
                    if !session.is_some_and(|session| session.kept.contains_key(&job)) {
                        to_fetch = to_fetch.saturating_add(head.body_len().unwrap_or(u64::MAX));
                    }
                    LeaseInputPlace::At { node, head, blob }
                }
            };
            taken.push(LeaseInput { job, place });
        }
        let is_at_hand = |input: &LeaseInput| match &input.place {
            LeaseInputPlace::Given(_) => true,
            LeaseInputPlace::At { .. } => {
                session.is_some_and(|session| session.kept.contains_key(&input.job))
            }
        };
        let all_at_hand = taken.iter().all(is_at_hand);
        let state = match payload {
            ParcelRef::Inline { head, body } => match Parcel::from_parts(head.clone(), body.clone()) {
                Ok(payload) if all_at_hand => LeaseState::Ready { payload },
                Ok(_) => LeaseState::Unfetched { payload: ParcelRef::Inline { head, body } },
                Err(error) => unreadable(lease, &error.to_string()),
            },
            ParcelRef::Blob { head, blob } => {
                to_fetch = to_fetch.saturating_add(head.body_len().unwrap_or(u64::MAX));
                LeaseState::Unfetched { payload: ParcelRef::Blob { head, blob } }
            }
        };
        (state, taken, to_fetch)
    }

    /// An input arrived and is held here, or could not be had; `is_gone` if its node does not have it.
    pub fn on_input(
        &mut self,
        now: Time,
        id: SessionId,
        input: JobId,
        result: Result<BlobId, bool>,
        out: &mut Outbox<WorkerCommand>,
    ) {
        let arrived = self.sessions.get_mut(&id).and_then(|s| Some((s.arriving.remove(&input)?, s)));
        let Some((asked, session)) = arrived else {
            if let Ok(blob) = result {
                out.push(WorkerCommand::Forget { blob });
            }
            return;
        };
        let waiting = session.waiting_for(input);
        match result {
            Ok(blob) if session.kept.contains_key(&input) => out.push(WorkerCommand::Forget { blob }),
            Ok(blob) => {
                let head = asked.head;
                session.kept.insert(input, KeptHere { head: head.clone(), blob });
                session.report.kept.push(KeptSolution { job: input, head, blob });
                session.dirty = true;
            }
            Err(is_gone) if !session.kept.contains_key(&input) => {
                for lease in waiting {
                    if !session.misses(lease, input, &asked, is_gone) {
                        session.fetch_inputs(id, lease, out);
                    }
                }
                self.fetch_more(now, out);
                return;
            }
            Err(_) => {}
        }
        let keys: Vec<RunKey> = waiting.into_iter().map(|lease| RunKey { session: id, lease }).collect();
        self.complete(now, &keys, out);
    }

    /// Makes leases ready that have all they waited for.
    pub(super) fn complete(&mut self, now: Time, keys: &[RunKey], out: &mut Outbox<WorkerCommand>) {
        let mut recalled = Vec::new();
        for key in keys {
            let Some(session) = self.sessions.get_mut(&key.session) else { continue };
            if session.inputs_of(key.lease).is_none() {
                // What was here when it was offered may have been dropped meanwhile.
                session.fetch_inputs(key.session, key.lease, out);
                continue;
            }
            let Some(lease) = session.lease_mut(key.lease) else { continue };
            let LeaseState::Fetching { payload } = &mut lease.state else { continue };
            let Some(payload) = payload.take() else { continue };
            lease.state = LeaseState::Ready { payload };
            let order = lease.order;
            if lease.recalled {
                recalled.push(*key);
            }
            session.ready.insert(order, key.lease.job);
        }
        self.start_ready(now, out);
        self.fetch_more(now, out);
        for key in recalled {
            let Some(session) = self.sessions.get_mut(&key.session) else { continue };
            let waits = |lease: &mut Lease| matches!(lease.state, LeaseState::Ready { .. });
            if session.lease_mut(key.lease).is_some_and(waits) {
                session.remove(key.lease);
                session.hand_back(key.lease);
            }
        }
    }

    /// A solution is recorded; other jobs may take it.
    pub(super) fn on_keep(&mut self, id: SessionId, lease: LeaseId, out: &mut Outbox<WorkerCommand>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if !matches!(session.lease_mut(lease), Some(Lease { state: LeaseState::Done(_), .. })) {
            return;
        }
        let Some(Lease { state: LeaseState::Done(done), .. }) = session.remove(lease) else { return };
        match done {
            Done { result: DoneResult::Solved(ParcelRef::Blob { head, blob }), .. }
                if !session.kept.contains_key(&lease.job) =>
            {
                session.kept.insert(lease.job, KeptHere { head, blob });
            }
            done => forget(done, out),
        }
    }

    /// A solution is not needed any more.
    pub(super) fn on_drop(&mut self, id: SessionId, job: JobId, out: &mut Outbox<WorkerCommand>) {
        let kept = self.sessions.get_mut(&id).and_then(|session| session.kept.remove(&job));
        if let Some(KeptHere { blob, .. }) = kept {
            out.push(WorkerCommand::Forget { blob });
        }
    }
}
