//! What must hold at every moment.

use super::link::{Link, LinkId};
use super::world::World;
use phalanx_jobs::core::MainCommand;
use phalanx_types::{JobId, LeaseId};
use phalanx_wire::jobs::{Dispatch, Held, Report};

/// Every so many events the cores check all their books.
const FULL_CHECK: u64 = 24;

impl Link {
    /// The lease is no longer out here, as far as the main node knows.
    pub(super) fn release(&mut self, lease: LeaseId) {
        if self.leased.get(&lease.job).is_some_and(|(number, _)| *number == lease.number) {
            self.leased.remove(&lease.job);
        }
    }

    pub(super) fn note_report(&mut self, report: &Report) {
        if !is_news(report.number, &mut self.heard_by_main) {
            return;
        }
        self.window = report.window;
        let ended = report.done.iter().map(|d| d.lease);
        let missing = report.missing.iter().map(|m| m.lease);
        for lease in ended.chain(missing).chain(report.handed_back.iter().copied()) {
            self.release(lease);
        }
    }

    /// What a worker holds after it heard this.
    pub(super) fn note_dispatch(&mut self, dispatch: &Dispatch) {
        if !is_news(dispatch.number, &mut self.heard_by_worker) {
            return;
        }
        for lease in dispatch.acks.iter().chain(&dispatch.keeps).chain(&dispatch.cancels) {
            self.let_go(*lease);
        }
        for offer in dispatch.offers.iter().flat_map(|g| &g.offers) {
            let number = self.held.entry(offer.lease.job).or_default();
            *number = offer.lease.number.max(*number);
        }
    }

    /// The worker finished the lease or handed it back.
    pub(super) fn let_go(&mut self, lease: LeaseId) {
        if self.held.get(&lease.job) == Some(&lease.number) {
            self.held.remove(&lease.job);
        }
    }
}

/// Whether a message comes for the first time; notes that it came.
fn is_news(number: u64, heard: &mut u64) -> bool {
    let is_news = number > *heard;
    *heard = number.max(*heard);
    is_news
}

impl World {
    /// Notes which leases a main node kept when a worker joined.
    pub(super) fn note_join(&mut self, id: LinkId, window: u32, held: &[Held], answers: &[MainCommand]) {
        // Said a second time it is no news.
        if std::mem::replace(&mut self.links[id.0].joined, true) {
            return;
        }
        self.links[id.0].window = window;
        self.end_older_links(id);
        for Held { lease, .. } in held {
            let refused = |c: &MainCommand| matches!(c, MainCommand::Cancel { lease: l, .. } if l == lease);
            if answers.iter().any(refused) {
                continue;
            }
            if let Some(other) = self.leased_anywhere(id, lease.job) {
                let what = format!("{lease} is adopted from l{}, while it is leased to l{other}", id.0);
                self.violate(what);
            }
            self.links[id.0].leased.insert(lease.job, (lease.number, true));
        }
    }

    /// A worker that joins again over a new link has left the one before, heard of or not.
    fn end_older_links(&mut self, id: LinkId) {
        let ends = |l: &Link| (l.main, l.main_life, l.worker, l.worker_life);
        let same = ends(&self.links[id.0]);
        for (at, link) in self.links.iter_mut().enumerate() {
            if at != id.0 && ends(link) == same {
                link.leased.clear();
            }
        }
    }

    fn leased_anywhere(&self, id: LinkId, job: JobId) -> Option<usize> {
        let (main, life) = (self.links[id.0].main, self.links[id.0].main_life);
        self.links.iter().position(|l| l.main == main && l.main_life == life && l.leased.contains_key(&job))
    }

    /// One lease at a time, numbers that rise, no more than the window, nothing that has ended.
    pub(super) fn check_offer(&mut self, main: usize, id: LinkId, lease: LeaseId) {
        if let Some(other) = self.leased_anywhere(id, lease.job) {
            self.violate(format!("m{main} offers {lease} to l{} while l{other} has it", id.0));
        }
        let node = &mut self.mains[main];
        let before = node.numbers.insert(lease.job, lease.number).unwrap_or(0);
        let kept = |plan: usize| self.plan.jobs[plan].spec.keep;
        let ended = node.journal.get(lease.job).is_none_or(|r| r.outcome.is_some() && !kept(r.plan));
        if lease.number <= before {
            self.violate(format!("m{main} offers {lease} after lease {before}"));
        }
        if ended {
            self.violate(format!("m{main} offers {lease}, which has ended"));
        }
        let link = &mut self.links[id.0];
        let out = link.leased.values().filter(|(_, adopted)| !adopted).count();
        let window = link.window;
        link.leased.insert(lease.job, (lease.number, false));
        if !link.main_up {
            self.violate(format!("m{main} offers {lease} to l{}, which is gone", id.0));
        } else if out >= window as usize {
            self.violate(format!("m{main} has {out} leases at l{}, whose window is {window}", id.0));
        }
    }

    /// Checks after an event; the full books less often, for they take longer than the event.
    pub(super) fn check(&mut self) {
        for worker in 0..self.workers.len() {
            self.check_room(worker);
        }
        if self.events.is_multiple_of(FULL_CHECK) {
            self.check_books();
        }
    }

    pub(super) fn check_books(&mut self) {
        for core in self.mains.iter().filter_map(|m| m.core.as_ref()) {
            core.check_invariants();
        }
        for core in self.workers.iter().filter_map(|w| w.core.as_ref()) {
            core.check_invariants();
        }
        if self.events.is_multiple_of(FULL_CHECK * 8) {
            self.check_listing();
        }
    }

    /// The listing knows every job, and as ended those that are recorded so.
    fn check_listing(&mut self) {
        let mut wrong = None;
        for (main, node) in self.mains.iter().enumerate() {
            let Some(core) = node.core.as_ref() else { continue };
            let listed = core.list(self.now, JobId(0), true).count();
            let recorded = node.journal.records().len();
            let ended = node.journal.records().iter().filter(|r| r.outcome.is_some()).count() as u64;
            if listed != recorded || core.counts().ended() < ended {
                wrong = Some(format!("m{main} lists {listed} jobs of {recorded}, {ended} ended"));
            }
        }
        if let Some(what) = wrong {
            self.violate(what);
        }
    }

    /// Counts what the threads really hold, whatever the core thinks.
    fn check_room(&mut self, worker: usize) {
        let node = &self.workers[worker];
        let capacity = self.plan.workers[worker].capacity;
        let (cores, memory) = node.threads.in_use();
        let trained = node.trained_with();
        if cores + trained.cores > capacity.cores || memory + trained.memory.0 > capacity.memory.0 {
            let what =
                format!("w{worker} runs {cores} cores and {memory} B beside {trained:?} of {capacity:?}");
            self.violate(what);
        }
    }
}
