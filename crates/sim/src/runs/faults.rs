//! Nodes that come, die and freeze, links that are cut, and a driver that is slow.

use super::cluster::{Process, Rank, Upward};
use super::event::Event;
use super::pace::{Pace, Progressed};
use super::world::World;
use phalanx_types::Time;
use std::time::Duration;

/// One failure in this many freezes the node: no other node knows before the heartbeat.
const FROZEN: u32 = 4;
/// One failure in this many cuts the link of a node that goes on, where links are cut.
const CUT: u32 = 3;

impl<P: Pace> World<'_, P> {
    pub(super) fn has_healed(&self) -> bool {
        self.now.since(Time::ZERO) >= self.options.heals_at || self.tally.deaths >= self.options.most_deaths
    }

    /// A time of which the mean is known, and nothing else.
    pub(super) fn exponential(&mut self, mean: Duration) -> Duration {
        const FINE: u64 = 1 << 53;
        let part = (self.dice.faults.number(0..FINE) as f64 + 0.5) / FINE as f64;
        Duration::try_from_secs_f64(-part.ln() * mean.as_secs_f64()).unwrap_or(Duration::MAX)
    }

    pub(super) fn on_starts(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.up || (self.options.private && !self.driver.up) {
            return;
        }
        node.life = node.life.wrapping_add(1);
        (node.up, node.rank, node.busy_until) = (true, Rank::default(), Time::ZERO);
        let process = Process { node: number, life: node.life };
        self.progress(Progressed::NodeCame);
        self.link(number);
        self.schedule_failure(process);
    }

    /// The process of a node connects to the driver, if there is one.
    pub(super) fn link(&mut self, node: usize) {
        let process = Process { node, life: self.nodes[node].life };
        let node = &mut self.nodes[node];
        node.link += 1;
        node.connected = self.driver.up;
        let link = node.link;
        self.send_up(process, Upward::Up { link });
    }

    fn schedule_failure(&mut self, process: Process) {
        if let Some(mtbf) = self.options.mtbf {
            let lives = self.exponential(mtbf);
            self.schedule(self.now + lives, Event::Fails { process });
        }
    }

    pub(super) fn on_fails(&mut self, process: Process) {
        if !self.lives(process) || self.has_healed() {
            return;
        }
        self.tally.deaths += 1;
        if self.options.cut_links && self.dice.faults.chance(1, CUT) {
            self.trace.line(self.now, format_args!("the link of n{} is cut", process.node));
            self.lose(process, Duration::ZERO);
            self.schedule_failure(process);
            let back = self.exponential(self.options.mttr);
            return self.schedule(self.now + back, Event::Relinks { process });
        }
        let frozen = self.dice.faults.chance(1, FROZEN);
        self.trace
            .line(self.now, format_args!("n{} {}", process.node, if frozen { "freezes" } else { "dies" }));
        self.nodes[process.node].up = false;
        self.lose(process, if frozen { self.options.heartbeat } else { Duration::ZERO });
        let back = self.exponential(self.options.mttr);
        self.schedule(self.now + back, Event::Starts { node: process.node });
    }

    /// A process is gone from the run with all it held; others know after some time.
    pub(super) fn lose(&mut self, process: Process, known: Duration) {
        let node = &mut self.nodes[process.node];
        let epoch = node.rank.group;
        node.link += 1;
        node.connected = false;
        self.interrupt(process);
        self.nodes[process.node].rank = Rank::default();
        self.owed.retain(|_, missing| !missing.contains(&process));
        if let Some(epoch) = epoch {
            self.break_group(epoch, known);
        }
        // What has not left the node is lost; the rest is on its way.
        if let Some(uplink) = self.uplinks.get_mut(&process) {
            let sent = self.dice.faults.index(uplink.queue.len() + 1);
            uplink.queue.truncate(sent);
        }
        self.send_up_after(process, known, Upward::Down);
    }

    pub(super) fn on_relinks(&mut self, process: Process) {
        if self.lives(process) && !self.nodes[process.node].connected {
            self.link(process.node);
        }
    }

    /// The driver does nothing for a while; what is said to it waits.
    pub(super) fn on_slow(&mut self) {
        if !self.has_healed() {
            self.driver.slow_until = self.now + self.dice.driver.millis(100..25_000);
            let at = self.driver.slow_until + self.dice.driver.millis(1000..30_000);
            self.schedule(at, Event::Slow);
        }
    }
}
