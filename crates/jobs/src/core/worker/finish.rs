//! Payloads arriving, jobs making progress and ending.

use super::dispatch::forget;
use super::{HandlerEnd, LeaseState, RunKey, WorkerCommand, WorkerCore};
use phalanx_types::{Outbox, Parcel, Time};
use phalanx_wire::jobs::{Done, DoneResult, Progress};
use phalanx_wire::reason::FailReason;

impl WorkerCore {
    /// A large payload arrived, or could not be had: then the lease goes back.
    pub fn on_fetched(
        &mut self,
        now: Time,
        key: RunKey,
        payload: Option<Parcel>,
        out: &mut Outbox<WorkerCommand>,
    ) {
        let Some(session) = self.sessions.get_mut(&key.session) else { return };
        let Some(lease) = session.lease_mut(key.lease) else { return };
        if !matches!(lease.state, LeaseState::Fetching { payload: None }) {
            return;
        }
        let Some(payload) = payload else {
            session.remove(key.lease);
            session.hand_back(key.lease);
            return;
        };
        lease.state = LeaseState::Fetching { payload: Some(payload) };
        self.complete(now, &[key], out);
    }

    /// The payload of a lease is larger than this node may take in: the attempt has failed, and another node may try.
    pub fn on_too_large(&mut self, key: RunKey, message: String) {
        let Some(session) = self.sessions.get_mut(&key.session) else { return };
        let Some(lease) = session.lease_mut(key.lease) else { return };
        if !matches!(lease.state, LeaseState::Fetching { payload: None }) {
            return;
        }
        let result = DoneResult::Failed { reason: FailReason::Handler { message }, retry: true };
        let done = Done { lease: key.lease, result, run_micros: 0 };
        lease.state = LeaseState::Done(done.clone());
        session.report.done.push(done);
        session.dirty = true;
    }

    /// A handler tells how far it is.
    pub fn on_progress(&mut self, key: RunKey, permille: u16, note: String) {
        let Some(session) = self.sessions.get_mut(&key.session) else { return };
        if session.lease_mut(key.lease).is_some() {
            session.report.progress.retain(|p| p.lease != key.lease);
            session.report.progress.push(Progress { lease: key.lease, permille, note });
            session.dirty = true;
        }
    }

    /// A handler ended. The caller starts the next with [`WorkerCore::on_room`] when it has told
    /// all that ended.
    pub fn on_finished(
        &mut self,
        now: Time,
        key: RunKey,
        end: HandlerEnd,
        run_micros: u64,
        out: &mut Outbox<WorkerCommand>,
    ) {
        let Some(ended) = self.batches.end(now, key) else { return };
        self.pace.observe(&ended.kind, run_micros);
        self.done += 1;
        let result = match end {
            HandlerEnd::Solved(parcel) => Some(DoneResult::Solved(parcel)),
            HandlerEnd::Failed { reason, retry } => Some(DoneResult::Failed { reason, retry }),
            HandlerEnd::Cancelled => None,
        };
        let done = result.map(|result| Done { lease: key.lease, result, run_micros });
        let session = self.sessions.get_mut(&key.session);
        let wanted = session.and_then(|s| {
            let used = run_micros.saturating_mul(u64::from(ended.cores));
            s.served = s.served.saturating_add(used).saturating_sub(ended.charge);
            s.lease_mut(key.lease).is_some().then_some(s)
        });
        match (wanted, done) {
            (Some(session), Some(done)) => {
                session.report.done.push(done.clone());
                session.dirty = true;
                if let Some(lease) = session.lease_mut(key.lease) {
                    lease.state = LeaseState::Done(done);
                }
            }
            // It stopped without having been told to by its main node: another node may try.
            (Some(session), None) => {
                session.remove(key.lease);
                session.hand_back(key.lease);
            }
            (None, Some(done)) => forget(done, out),
            (None, None) => {}
        }
        if self.config.once {
            self.on_drain(out);
        }
    }

    /// Room may have come free: start what fits.
    pub fn on_room(&mut self, now: Time, out: &mut Outbox<WorkerCommand>) {
        self.start_ready(now, out);
        self.fetch_more(now, out);
        self.check_drained(out);
    }
}
