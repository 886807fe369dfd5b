//! Main nodes coming, coming back and going.

use super::dispatch::forget;
use super::lease::KeptHere;
use super::{LeaseState, MainKey, RunKey, Session, WorkerCommand, WorkerCore};
use phalanx_types::{Epoch, LeaseId, Outbox, SessionId, Time};
use phalanx_wire::jobs::{Held, Join, KeptSolution, Report};

impl WorkerCore {
    /// A main node asks this node to join. One that was here before gets its results.
    pub fn on_invite(&mut self, main: MainKey, id: SessionId, epoch: Epoch, out: &mut Outbox<WorkerCommand>) {
        let window = self.window();
        let clock = self.served_clock;
        let session = self.sessions.entry(id).or_insert_with(|| Session::new(main, epoch, clock));
        let known_here = self.mains.get(&main) == Some(&id);
        if session.epoch > epoch || known_here && session.epoch == epoch {
            return;
        }
        if let Some(old) = session.main.replace(main) {
            self.mains.remove(&old);
        }
        self.mains.insert(main, id);
        session.epoch = epoch;
        session.heard = 0;
        session.orphaned = None;
        session.report = Report::default();
        // The main node gave these to others when the old link went.
        for lease in session.take_unstarted() {
            self.asking.remove(&RunKey { session: id, lease });
        }
        let mut held = Vec::new();
        let mut done = Vec::new();
        for (job, lease) in &session.leases {
            match &lease.state {
                LeaseState::Done(result) => done.push(result.clone()),
                _ => held.push(Held { lease: LeaseId { job: *job, number: lease.number }, running: true }),
            }
        }
        session.dirty = self.draining;
        let kinds = self.config.kinds.iter().cloned().collect();
        let (capacity, taken) = (self.config.capacity, self.taken.clone());
        let kept = session.kept.iter().map(|(job, KeptHere { head, blob })| KeptSolution {
            job: *job,
            head: head.clone(),
            blob: *blob,
        });
        let kept = kept.collect();
        let join = Join { session: id, epoch, kinds, capacity, window, taken, held, done, kept };
        out.push(WorkerCommand::Join { main, join });
    }

    /// A link to a main node is gone; `goodbye` when it left on purpose and will not be back.
    pub fn on_main_lost(&mut self, now: Time, main: MainKey, goodbye: bool, out: &mut Outbox<WorkerCommand>) {
        let Some(id) = self.mains.remove(&main) else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.main != Some(main) {
            return;
        }
        session.main = None;
        session.orphaned = Some(now);
        session.report = Report::default();
        for lease in session.take_unstarted() {
            self.asking.remove(&RunKey { session: id, lease });
        }
        if goodbye || session.leases.is_empty() && session.kept.is_empty() {
            self.end_session(id, out);
        }
        self.start_ready(now, out);
        self.check_drained(out);
    }

    /// Gives up on main nodes that did not come back in time.
    pub(super) fn drop_orphans(&mut self, now: Time, out: &mut Outbox<WorkerCommand>) {
        let grace = self.config.orphan_grace;
        let expired = |s: &Session| s.orphaned.is_some_and(|at| now.since(at) >= grace);
        let gone: Vec<SessionId> =
            self.sessions.iter().filter(|(_, s)| expired(s)).map(|(id, _)| *id).collect();
        for id in gone {
            self.end_session(id, out);
        }
    }

    /// Stops what runs for a session and forgets what it solved.
    fn end_session(&mut self, id: SessionId, out: &mut Outbox<WorkerCommand>) {
        let Some(session) = self.sessions.remove(&id) else { return };
        for KeptHere { blob, .. } in session.kept.into_values() {
            out.push(WorkerCommand::Forget { blob });
        }
        for (job, lease) in session.leases {
            let key = RunKey { session: id, lease: LeaseId { job, number: lease.number } };
            match lease.state {
                LeaseState::Running => out.push(WorkerCommand::CancelRun { key }),
                LeaseState::Done(done) => forget(done, out),
                LeaseState::Unfetched { .. }
                | LeaseState::Fetching { .. }
                | LeaseState::Ready { .. }
                | LeaseState::Asking { .. } => {}
            }
        }
    }
}
