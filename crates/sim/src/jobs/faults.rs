//! What goes wrong, and how it gets well again.

use super::event::Event;
use super::link::{LinkId, RESET, SILENCE};
use super::plan::Fault;
use super::world::World;
use std::time::Duration;

impl World {
    pub(super) fn on_fault(&mut self, index: usize) {
        let (_, fault) = self.plan.faults[index];
        self.trace.line(self.now, format_args!("FAULT {fault:?}"));
        match fault {
            Fault::LinkBreaks { main, worker } => {
                if let Some(link) = self.pairs[main][worker] {
                    let notice = if self.dice.faults.chance(1, 2) { RESET } else { SILENCE };
                    self.cut(link, notice);
                }
            }
            Fault::Partition { apart, lasts } => {
                self.partitions.push((index, apart));
                for link in self.links_of_pairs() {
                    if self.apart(self.links[link.0].main, self.links[link.0].worker) {
                        self.cut(link, SILENCE);
                    }
                }
                self.queue.push(self.now + lasts, Event::PartitionHeals { index });
            }
            Fault::WorkerCrashes { worker, down } => self.crash_worker(worker, down),
            Fault::WorkerFreezes { worker, lasts } => self.freeze(worker, lasts),
            Fault::WorkerDrains { worker } => {
                let node = &mut self.workers[worker];
                // A process that is stopped cannot be asked to drain.
                if let Some(core) = node.core.as_mut().filter(|_| !node.frozen) {
                    node.draining = true;
                    core.on_drain(&mut node.out);
                    self.touch_worker(worker);
                }
            }
            Fault::MainCrashes { main, down } => {
                self.crash_main(main);
                for worker in 0..self.workers.len() {
                    if let Some(link) = self.pairs[main][worker] {
                        self.cut(link, RESET);
                    }
                }
                self.queue.push(self.now + down, Event::StartMain { main });
            }
        }
    }

    fn links_of_pairs(&self) -> Vec<LinkId> {
        self.pairs.iter().flatten().flatten().copied().collect()
    }

    /// Whether some partition stands between the two.
    pub(super) fn apart(&self, main: usize, worker: usize) -> bool {
        let side = |mask: u32, node: usize| mask >> node & 1;
        self.partitions.iter().any(|(_, mask)| side(*mask, main) != side(*mask, self.plan.mains + worker))
    }

    /// The same for two workers.
    pub(super) fn workers_apart(&self, one: usize, other: usize) -> bool {
        let side = |mask: u32, worker: usize| mask >> (self.plan.mains + worker) & 1;
        self.partitions.iter().any(|(_, mask)| side(*mask, one) != side(*mask, other))
    }

    pub(super) fn on_partition_heals(&mut self, index: usize) {
        self.partitions.retain(|(i, _)| *i != index);
        self.plan_all_connects();
    }

    fn plan_all_connects(&mut self) {
        for main in 0..self.mains.len() {
            for worker in 0..self.workers.len() {
                self.plan_connect(main, worker);
            }
        }
    }

    /// Kills the process of a worker; another takes its place later.
    pub(super) fn crash_worker(&mut self, worker: usize, down: Duration) {
        if self.workers[worker].core.is_none() {
            return;
        }
        self.trace.line(self.now, format_args!("w{worker} crashes"));
        self.end_worker(worker);
        for main in 0..self.mains.len() {
            if let Some(link) = self.pairs[main][worker] {
                self.cut(link, RESET);
            }
        }
        self.queue.push(self.now + down, Event::StartWorker { worker });
    }

    fn freeze(&mut self, worker: usize, lasts: Duration) {
        let node = &mut self.workers[worker];
        if node.core.is_none() || node.frozen {
            return;
        }
        node.frozen = true;
        node.freeze += 1;
        let freeze = node.freeze;
        self.queue.push(self.now + lasts, Event::Thaw { worker, freeze });
        for main in 0..self.mains.len() {
            if let Some(link) = self.pairs[main][worker] {
                let silence = self.dice.faults.micros(SILENCE);
                self.queue.push(self.now + silence, Event::HeartbeatMissed { link, freeze });
            }
        }
    }

    pub(super) fn on_heartbeat_missed(&mut self, link: LinkId, freeze: u64) {
        let worker = &self.workers[self.links[link.0].worker];
        if worker.frozen && worker.freeze == freeze {
            self.cut(link, 0..1_000);
        }
    }

    /// Lets a frozen process go on with what it had received.
    pub(super) fn on_thaw(&mut self, worker: usize, freeze: u64) {
        let node = &mut self.workers[worker];
        if !node.frozen || node.freeze != freeze {
            return;
        }
        node.frozen = false;
        self.trace.line(self.now, format_args!("w{worker} thaws"));
        for event in std::mem::take(&mut self.workers[worker].backlog) {
            match event {
                // It had arrived before the link was cut, if it was.
                Event::Deliver { link, to, bytes } => self.deliver(link, to, &bytes),
                other => self.handle(other),
            }
        }
        for main in 0..self.mains.len() {
            self.plan_connect(main, worker);
        }
    }

    /// The end of all faults: everybody is up and can reach everybody.
    pub(super) fn on_heal(&mut self) {
        self.trace.line(self.now, format_args!("HEAL"));
        self.partitions.clear();
        for main in 0..self.mains.len() {
            self.on_start_main(main);
        }
        for worker in 0..self.workers.len() {
            let freeze = self.workers[worker].freeze;
            self.on_thaw(worker, freeze);
            self.on_start_worker(worker);
        }
        self.plan_all_connects();
    }
}
