//! What workers report about their leases.

use super::kept::Place;
use super::{MainCommand, MainCore, Outcome, Phase, State, WorkerKey};
use crate::core::bugs::{Bug, planted};
use phalanx_types::{JobId, LeaseId, Outbox, Parcel, ParcelHead, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::jobs::{Done, DoneResult, ParcelRef, Report};
use phalanx_wire::reason::FailReason;

impl MainCore {
    /// A worker tells what came up since its last report. One that comes again, and late, is no news: what it says of
    /// leases and copies is over.
    pub fn on_report(&mut self, now: Time, worker: WorkerKey, report: Report, out: &mut Outbox<MainCommand>) {
        if report.epoch != self.epoch {
            return;
        }
        let Some(w) = self.workers.get_mut(&worker) else { return };
        if report.number <= w.heard && !planted(Bug::HearsTwice) {
            return;
        }
        w.heard = report.number;
        w.set_window(report.window);
        w.draining = report.draining;
        w.set_taken(report.taken);
        if !report.started.is_empty() || !report.done.is_empty() {
            w.is_held_up = false;
        } else if !report.handed_back.is_empty() {
            w.is_held_up = true;
        }
        for lease in report.asks {
            self.on_ask(now, worker, lease, out);
        }
        for lease in report.started {
            self.on_started(now, worker, lease, out);
        }
        for progress in report.progress {
            if self.is_current(worker, progress.lease) {
                self.progress.insert(progress.lease.job, (progress.permille.min(1000), progress.note));
            }
        }
        for done in report.done {
            self.on_done(now, worker, done, out);
        }
        for lease in report.handed_back {
            if self.is_current(worker, lease) {
                if planted(Bug::KeepsHandedBack) {
                    continue;
                }
                self.requeue(lease.job);
            }
        }
        self.on_kept(worker, report.kept, out);
        for missing in report.missing {
            self.on_missing(worker, missing, out);
        }
    }

    pub(super) fn is_current(&self, worker: WorkerKey, lease: LeaseId) -> bool {
        let state = self.jobs.get(lease.job).map(|j| j.state);
        matches!(state, Some(State::Leased { worker: w, number, .. }) if (w, number) == (worker, lease.number))
    }

    /// A careful job could start: from here on it counts as running, before it really does.
    fn on_ask(&mut self, now: Time, worker: WorkerKey, lease: LeaseId, out: &mut Outbox<MainCommand>) {
        if self.is_current(worker, lease) {
            self.set_phase(now, lease.job, Phase::Running);
            out.push(MainCommand::Go { worker, lease });
        } else {
            out.push(MainCommand::Cancel { worker, lease });
        }
    }

    fn on_started(&mut self, now: Time, worker: WorkerKey, lease: LeaseId, out: &mut Outbox<MainCommand>) {
        if self.is_current(worker, lease) {
            self.set_phase(now, lease.job, Phase::Running);
        } else {
            out.push(MainCommand::Cancel { worker, lease });
        }
    }

    fn set_phase(&mut self, now: Time, job: JobId, to: Phase) {
        if let Some(State::Leased { since, phase, .. }) = self.jobs.get_mut(job).map(|j| &mut j.state)
            && *phase != Phase::Taking
            && *phase != to
        {
            *phase = to;
            *since = now;
        }
    }

    pub(super) fn on_done(
        &mut self,
        now: Time,
        worker: WorkerKey,
        done: Done,
        out: &mut Outbox<MainCommand>,
    ) {
        let Done { lease, result, .. } = done;
        if self.jobs.ending(lease.job).is_none() {
            out.push(MainCommand::CutOff { worker, why: "it solved a job that was never given out" });
            return;
        }
        if self.jobs.get(lease.job).is_none() || self.has_enough_of(lease.job) {
            self.counts.duplicates += 1;
            if planted(Bug::CountsDuplicates) {
                self.counts.solved += 1;
                out.push(MainCommand::Finished { job: lease.job, outcome: Outcome::Cancelled, solver: None });
            }
            out.push(MainCommand::Ack { worker, lease });
            return;
        }
        if !self.may_solve(worker, lease) {
            // It was never given this lease, or it was asked for it back: the job runs, or will, where it is known to.
            self.counts.duplicates += 1;
            out.push(MainCommand::Ack { worker, lease });
            return;
        }
        match result {
            DoneResult::Solved(ParcelRef::Inline { head, body }) => match Parcel::from_parts(head, body) {
                Ok(parcel) => self.solve(worker, lease, parcel, out),
                Err(_) => {
                    out.push(MainCommand::CutOff { worker, why: "its solution does not fit its own head" });
                }
            },
            DoneResult::Solved(ParcelRef::Blob { head, blob })
                if self.is_kept(lease.job) && (self.is_told(lease.job) || !self.is_wanted(lease.job)) =>
            {
                self.keep(worker, lease, (head, blob), out);
            }
            DoneResult::Solved(ParcelRef::Blob { head, blob }) => {
                self.take(now, worker, lease, (head, blob), out);
            }
            DoneResult::Failed { reason, .. } if !reason.is_reportable() => {
                out.push(MainCommand::CutOff { worker, why: "it gave a reason that no worker has" });
            }
            DoneResult::Failed { reason, retry } => {
                if self.is_current(worker, lease) {
                    self.fail(lease.job, reason, retry, out);
                }
                out.push(MainCommand::Ack { worker, lease });
            }
        }
    }

    /// The first solution of a job ends it, and the lease that is out for it, if another.
    fn solve(&mut self, worker: WorkerKey, lease: LeaseId, parcel: Parcel, out: &mut Outbox<MainCommand>) {
        self.cancel_elsewhere(worker, lease, out);
        if !self.is_kept(lease.job) {
            self.finish_by(lease.job, Outcome::Solved(parcel), Some(worker), out);
            out.push(MainCommand::Ack { worker, lease });
            return;
        }
        // Either small, or large and fetched because the user waits for it: then the worker keeps it, too.
        let taking = self.kept.get_mut(&lease.job).and_then(|kept| kept.taking.take());
        let is_linked = self.workers.contains_key(&worker);
        let place = match taking {
            Some((head, blob)) if is_linked => {
                out.push(MainCommand::Keep { worker, lease });
                Place::At { head, holders: [(worker, blob)].into() }
            }
            _ => {
                out.push(MainCommand::Ack { worker, lease });
                Place::Here(parcel.clone())
            }
        };
        self.store(lease.job, place, (Outcome::Solved(parcel), Some(worker)), out);
    }

    /// A large solution of a job that is kept stays at its worker.
    fn keep(
        &mut self,
        worker: WorkerKey,
        lease: LeaseId,
        (head, blob): (ParcelHead, BlobId),
        out: &mut Outbox<MainCommand>,
    ) {
        if !self.workers.contains_key(&worker) {
            return;
        }
        self.cancel_elsewhere(worker, lease, out);
        let len = head.body_len().unwrap_or(u64::MAX);
        let place = Place::At { head, holders: [(worker, blob)].into() };
        // Said first: what is not needed is dropped right after.
        out.push(MainCommand::Keep { worker, lease });
        self.store(lease.job, place, (Outcome::Kept { len }, Some(worker)), out);
    }

    fn cancel_elsewhere(&self, worker: WorkerKey, lease: LeaseId, out: &mut Outbox<MainCommand>) {
        if let Some(j) = self.jobs.get(lease.job)
            && let State::Leased { worker: other, number, .. } = j.state
            && (other, number) != (worker, lease.number)
        {
            out.push(MainCommand::Cancel { worker: other, lease: LeaseId { job: lease.job, number } });
        }
    }

    /// A large solution waits at a worker: fetch it, unless one is being fetched already.
    fn take(
        &mut self,
        now: Time,
        worker: WorkerKey,
        lease: LeaseId,
        (head, blob): (ParcelHead, BlobId),
        out: &mut Outbox<MainCommand>,
    ) {
        let Some(j) = self.jobs.get_mut(lease.job) else { return };
        match &mut j.state {
            // Said twice, or solved elsewhere too: one solution is enough.
            State::Leased { worker: holder, phase: Phase::Taking, .. } => {
                if *holder != worker {
                    out.push(MainCommand::Ack { worker, lease });
                }
                return;
            }
            State::Leased { worker: holder, number, phase, .. }
                if (*holder, *number) == (worker, lease.number) =>
            {
                *phase = Phase::Taking;
            }
            State::Leased { .. } => {
                self.cancel_elsewhere(worker, lease, out);
                self.requeue(lease.job);
                self.attach(now, worker, lease, Phase::Taking);
            }
            State::Waiting | State::Blocked => self.attach(now, worker, lease, Phase::Taking),
            State::Stored => return,
        }
        if let Some(kept) = self.kept.get_mut(&lease.job) {
            kept.taking = Some((head.clone(), blob));
        }
        out.push(MainCommand::Take { worker, lease, head, blob });
    }

    /// A large solution was fetched, or could not be.
    pub fn on_taken(
        &mut self,
        worker: WorkerKey,
        lease: LeaseId,
        result: Result<Parcel, String>,
        out: &mut Outbox<MainCommand>,
    ) {
        match result {
            Ok(parcel) if self.jobs.get(lease.job).is_some_and(|j| !j.told) => {
                self.solve(worker, lease, parcel, out)
            }
            Ok(_) => out.push(MainCommand::Ack { worker, lease }),
            Err(message) => {
                let held = self.jobs.get(lease.job).map(|j| j.state);
                if matches!(held, Some(State::Leased { worker: w, phase: Phase::Taking, .. }) if w == worker)
                {
                    self.fail(lease.job, FailReason::Unreadable { message }, true, out);
                }
                out.push(MainCommand::Ack { worker, lease });
            }
        }
    }

    pub(super) fn fail(
        &mut self,
        job: JobId,
        reason: FailReason,
        retry: bool,
        out: &mut Outbox<MainCommand>,
    ) {
        let Some(j) = self.jobs.get_mut(job) else { return };
        j.attempts += 1;
        if retry && j.attempts < j.max_attempts {
            self.counts.reruns += 1;
            out.push(MainCommand::Attempt { job, attempts: u32::from(j.attempts) });
            self.requeue(job);
        } else {
            self.finish(job, Outcome::Failed(reason), out);
        }
    }
}
