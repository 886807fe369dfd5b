//! Links: in order and reliable while they last, like TCP, but for messages that come twice.

use super::event::Event;
use super::world::World;
use bytes::BytesMut;
use phalanx_jobs::core::{MainKey, WorkerKey};
use phalanx_types::{JobId, Time};
use phalanx_wire::codec::encode_into;
use phalanx_wire::jobs::{FromWorker, ToWorker};
use std::collections::BTreeMap;
use std::ops::Range;

/// A link, numbered in the order they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkId(pub(super) usize);

impl LinkId {
    pub(super) fn worker_key(self) -> WorkerKey {
        WorkerKey(self.0 as u64)
    }

    pub(super) fn main_key(self) -> MainKey {
        MainKey(self.0 as u64)
    }
}

impl From<WorkerKey> for LinkId {
    fn from(key: WorkerKey) -> Self {
        LinkId(key.0 as usize)
    }
}

impl From<MainKey> for LinkId {
    fn from(key: MainKey) -> Self {
        LinkId(key.0 as usize)
    }
}

/// An end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Main,
    Worker,
}

/// One connection between two processes.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) main: usize,
    pub(super) main_life: u64,
    pub(super) worker: usize,
    pub(super) worker_life: u64,
    /// Nothing passes any more, whether or not the ends have noticed.
    pub(super) cut: bool,
    pub(super) main_up: bool,
    pub(super) worker_up: bool,
    last_to_main: Time,
    last_to_worker: Time,
    /// The numbers of the last messages, as the shells count them.
    said_to_main: u64,
    said_to_worker: u64,
    /// The numbers of the newest messages that the ends have heard.
    pub(super) heard_by_main: u64,
    pub(super) heard_by_worker: u64,
    pub(super) joined: bool,
    /// What the main node was last told it may have out here.
    pub(super) window: u32,
    /// Leases the main node has out here: number, and whether it was adopted.
    pub(super) leased: BTreeMap<JobId, (u32, bool)>,
    /// Leases the worker was given or kept, and has neither finished nor handed back.
    pub(super) held: BTreeMap<JobId, u32>,
}

impl Link {
    pub(super) fn new(main: (usize, u64), worker: (usize, u64)) -> Self {
        Self {
            main: main.0,
            main_life: main.1,
            worker: worker.0,
            worker_life: worker.1,
            cut: false,
            main_up: true,
            worker_up: true,
            last_to_main: Time::ZERO,
            last_to_worker: Time::ZERO,
            said_to_main: 0,
            said_to_worker: 0,
            heard_by_main: 0,
            heard_by_worker: 0,
            joined: false,
            window: 0,
            leased: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }
}

/// How long an end takes to notice that its link is cut, in microseconds.
pub(super) const RESET: Range<u64> = 50..5_000;
/// The same when only silence tells.
pub(super) const SILENCE: Range<u64> = 20_000..150_000;

impl World {
    pub(super) fn send_to_worker(&mut self, link: LinkId, mut message: ToWorker) {
        if let ToWorker::Dispatch(dispatch) = &mut message {
            let said = &mut self.links[link.0].said_to_worker;
            *said += 1;
            dispatch.number = *said;
        }
        self.trace.line(self.now, format_args!("send l{} {message:?}", link.0));
        let mut bytes = BytesMut::new();
        encode_into(&message, &mut bytes).expect("messages encode");
        self.send(link, Side::Worker, bytes);
    }

    pub(super) fn send_to_main(&mut self, link: LinkId, mut message: FromWorker) {
        if let FromWorker::Report(report) = &mut message {
            let said = &mut self.links[link.0].said_to_main;
            *said += 1;
            report.number = *said;
        }
        self.trace.line(self.now, format_args!("send l{} {message:?}", link.0));
        let mut bytes = BytesMut::new();
        encode_into(&message, &mut bytes).expect("messages encode");
        self.send(link, Side::Main, bytes);
    }

    fn send(&mut self, id: LinkId, to: Side, bytes: BytesMut) {
        let link = &mut self.links[id.0];
        if link.cut {
            return;
        }
        let bytes = bytes.freeze();
        let slow = self.dice.network.chance(1, 20);
        let delay = self.dice.network.micros(if slow { 1_000..20_000 } else { 20..800 });
        let last = match to {
            Side::Main => &mut link.last_to_main,
            Side::Worker => &mut link.last_to_worker,
        };
        let at = (self.now + delay).max(*last);
        *last = at;
        self.queue.push(at, Event::Deliver { link: id, to, bytes: bytes.clone() });
        if self.plan.duplicates > 0 && self.dice.network.chance(1, self.plan.duplicates) {
            let again = at + self.dice.network.micros(0..30_000);
            self.queue.push(again, Event::Deliver { link: id, to, bytes });
        }
    }

    /// The worker's last word on a link, behind all it sent before.
    pub(super) fn say_goodbye(&mut self, link: LinkId) {
        let at = self.links[link.0].last_to_main.max(self.now);
        self.links[link.0].worker_up = false;
        self.queue.push(at, Event::Goodbye { link });
    }

    /// Cuts a link; what is under way is lost and each end notices in its own time.
    pub(super) fn cut(&mut self, id: LinkId, notice: Range<u64>) {
        let link = &mut self.links[id.0];
        if link.cut {
            return;
        }
        link.cut = true;
        let (main, worker) = (link.main, link.worker);
        self.trace.line(self.now, format_args!("cut l{} m{main} w{worker}", id.0));
        for side in [Side::Main, Side::Worker] {
            let delay = self.dice.network.micros(notice.clone());
            self.queue.push(self.now + delay, Event::LinkDown { link: id, side });
        }
        self.plan_connect(main, worker);
    }

    pub(super) fn plan_connect(&mut self, main: usize, worker: usize) {
        let delay = self.dice.network.micros(100..60_000);
        self.queue.push(self.now + delay, Event::Connect { main, worker });
    }

    fn reachable(&self, main: usize, worker: usize) -> bool {
        let (m, w) = (&self.mains[main], &self.workers[worker]);
        m.core.is_some() && w.core.is_some() && !w.frozen && !self.apart(main, worker)
    }

    /// Makes a link when both ends can; otherwise whatever is in the way plans it again.
    pub(super) fn on_connect(&mut self, main: usize, worker: usize) {
        let old = self.pairs[main][worker];
        if !self.reachable(main, worker) || old.is_some_and(|l| !self.links[l.0].cut) {
            return;
        }
        if let Some(old) = old {
            // Usually an end sees the old link go before the new one comes, but not always.
            for side in [Side::Main, Side::Worker] {
                if self.dice.network.chance(2, 3) {
                    self.on_link_down(old, side);
                }
            }
        }
        // A worker that drains may have left when it saw the old link go.
        if !self.reachable(main, worker) {
            return;
        }
        let link = Link::new((main, self.mains[main].life), (worker, self.workers[worker].life));
        let id = LinkId(self.links.len());
        self.trace.line(self.now, format_args!("link l{} m{main} w{worker}", id.0));
        self.links.push(link);
        self.pairs[main][worker] = Some(id);
        let node = self.workers[worker].node_id(worker);
        let m = &mut self.mains[main];
        let Some(core) = &mut m.core else { return };
        core.on_worker_up(id.worker_key(), node, &mut m.out);
        self.touch_main(main);
    }

    pub(super) fn on_link_down(&mut self, id: LinkId, side: Side) {
        match side {
            Side::Main => self.main_loses(id, false),
            Side::Worker => self.worker_loses(id),
        }
    }

    pub(super) fn on_goodbye(&mut self, id: LinkId) {
        if !self.links[id.0].cut {
            self.links[id.0].cut = true;
            self.main_loses(id, true);
            // The next process may have tried already and found the old link there.
            self.plan_connect(self.links[id.0].main, self.links[id.0].worker);
        }
    }
}
