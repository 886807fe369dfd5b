//! Starting what there is room for.

use super::{BatchId, LeaseState, Run, RunKey, WorkerCommand, WorkerCore};
use crate::core::bugs::{Bug, planted};
use phalanx_types::{LeaseId, Needs, Outbox, Parcel, SessionId, Time};
use std::collections::VecDeque;

impl WorkerCore {
    /// Starts jobs while there is room: best priority first, then the main node served least. A
    /// job too large for what is free makes all wait, so that small ones never starve it.
    pub(super) fn start_ready(&mut self, now: Time, out: &mut Outbox<WorkerCommand>) {
        while !(self.draining || self.config.once && self.batches.len() + self.asking.len() > 0) {
            let Some(id) = self.next_session() else { break };
            let Some(session) = self.sessions.get(&id) else { break };
            let head = session.ready.values().next().and_then(|job| session.leases.get(job));
            let Some((needs, careful)) = head.map(|l| (l.needs, l.careful)) else { break };
            if !self.has_room(needs) {
                break;
            }
            self.served_clock = self.served_clock.max(session.served);
            if careful {
                self.ask(id, needs);
            } else {
                self.start_batch(now, id, needs, out);
            }
        }
    }

    /// Whose turn it is: priority counts across main nodes, then who was served least.
    fn next_session(&self) -> Option<SessionId> {
        let heads = self.sessions.iter().filter(|(_, s)| s.main.is_some()).filter_map(|(id, s)| {
            let ((priority, _), _) = s.ready.first_key_value()?;
            Some((*priority, s.served, *id))
        });
        heads.min().map(|(_, _, id)| id)
    }

    fn has_room(&self, needs: Needs) -> bool {
        let used = self.in_use();
        let share = if planted(Bug::IgnoresTraining) { self.config.capacity } else { self.share };
        let free_cores = share.cores.saturating_sub(used.cores);
        let free_memory = share.memory.0.saturating_sub(used.memory.0);
        needs.cores <= free_cores && (needs.memory.0 <= free_memory || planted(Bug::IgnoresMemory))
    }

    /// Reserves room for the first ready job and asks its main node whether it may start.
    fn ask(&mut self, id: SessionId, needs: Needs) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some((_, job)) = session.ready.pop_first() else { return };
        let Some(lease) = session.leases.get_mut(&job) else { return };
        if let LeaseState::Ready { payload } = &mut lease.state {
            lease.state = LeaseState::Asking { payload: std::mem::take(payload) };
        }
        let lease = LeaseId { job, number: lease.number };
        session.report.asks.push(lease);
        session.dirty = true;
        self.asking.insert(RunKey { session: id, lease }, needs);
    }

    pub(super) fn on_go(
        &mut self,
        now: Time,
        id: SessionId,
        lease: LeaseId,
        out: &mut Outbox<WorkerCommand>,
    ) {
        let key = RunKey { session: id, lease };
        let Some(needs) = self.asking.remove(&key) else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(inputs) = session.inputs_of(lease) else {
            session.fetch_again(id, lease, out);
            return;
        };
        let Some(held) = session.lease_mut(lease) else { return };
        if let LeaseState::Asking { payload } = &mut held.state {
            let payload = std::mem::take(payload);
            held.state = LeaseState::Running;
            let kind = held.kind.clone();
            let charge = self.pace.expected(&kind) * u64::from(needs.cores);
            session.served += charge;
            let batch = self.batches.start(now, needs, VecDeque::from([(key, kind.clone())]), charge, true);
            out.push(WorkerCommand::Start { batch, runs: vec![Run { key, kind, payload, inputs }] });
        }
    }

    /// Starts as many jobs like the first ready one as are worth starting together, leaving
    /// enough for the other free cores.
    fn start_batch(&mut self, now: Time, id: SessionId, needs: Needs, out: &mut Outbox<WorkerCommand>) {
        let free_cores = self.share.cores.saturating_sub(self.in_use().cores);
        let lanes = (free_cores / needs.cores.max(1)).max(1) as usize;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(first) = session.ready.values().next().and_then(|job| session.leases.get(job)) else {
            return;
        };
        let kind = first.kind.clone();
        if let Some(most) = self.gathered.get(&kind).copied().filter(|_| !self.config.once) {
            return self.start_together(now, &kind, needs, (most, lanes), out);
        }
        let most = self.pace.batch(&kind).min(session.ready.len().div_ceil(lanes));
        let most = if self.config.once { 1 } else { most };
        let mut runs = Vec::with_capacity(most);
        while runs.len() < most {
            let Some((order, job)) = session.ready.first_key_value().map(|(order, job)| (*order, *job))
            else {
                break;
            };
            let Some(lease) = session.leases.get(&job) else { break };
            let lease = LeaseId { job, number: lease.number };
            let Some(inputs) = session.inputs_of(lease) else {
                session.fetch_again(id, lease, out);
                continue;
            };
            let Some(lease) = session.leases.get_mut(&job) else { break };
            let alike = !lease.careful && lease.kind == kind && lease.needs == needs;
            let LeaseState::Ready { payload } = &mut lease.state else { break };
            if !alike {
                break;
            }
            let payload: Parcel = std::mem::take(payload);
            lease.state = LeaseState::Running;
            let lease = LeaseId { job, number: lease.number };
            runs.push(Run { key: RunKey { session: id, lease }, kind: kind.clone(), payload, inputs });
            session.ready.remove(&order);
        }
        if runs.is_empty() {
            return;
        }
        let charge = self.pace.expected(&kind) * u64::from(needs.cores);
        session.served += charge * runs.len() as u64;
        let keys = runs.iter().map(|r| (r.key, r.kind.clone())).collect();
        let batch = self.batches.start(now, needs, keys, charge, false);
        out.push(WorkerCommand::Start { batch, runs });
    }

    /// These had not begun when the shell took them out of a slow batch: they wait again.
    pub fn on_taken_back(
        &mut self,
        now: Time,
        batch: BatchId,
        runs: Vec<Run>,
        out: &mut Outbox<WorkerCommand>,
    ) {
        let keys: Vec<RunKey> = runs.iter().map(|r| r.key).collect();
        let charge = self.batches.take_back(now, batch, &keys);
        for Run { key, payload, .. } in runs {
            let Some(session) = self.sessions.get_mut(&key.session) else { continue };
            session.served = session.served.saturating_sub(charge);
            let linked = session.main.is_some();
            let Some(lease) = session.lease_mut(key.lease) else { continue };
            if linked && !self.draining {
                lease.state = LeaseState::Ready { payload };
                let order = lease.order;
                session.ready.insert(order, key.lease.job);
            } else {
                session.leases.remove(&key.lease.job);
                if linked {
                    session.hand_back(key.lease);
                }
            }
        }
        self.start_ready(now, out);
    }

    /// Names the jobs that have run long enough to be worth telling.
    pub(super) fn report_started(&mut self, now: Time) {
        for key in self.batches.newly_started(now) {
            let Some(session) = self.sessions.get_mut(&key.session) else { continue };
            if session.lease_mut(key.lease).is_some() {
                session.report.started.push(key.lease);
                session.dirty = true;
            }
        }
    }
}
