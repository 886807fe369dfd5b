//! Nodes that come, die and freeze, and a driver that is slow.

use super::cluster::{Process, Rank, Upward};
use super::world::{Event, World};
use phalanx_types::Time;
use phalanx_wire::node::LostReason;
use std::time::Duration;

/// One death in so many freezes the node: nobody knows before the heartbeat.
const FROZEN: u32 = 4;

impl World<'_> {
    fn has_healed(&self) -> bool {
        self.now >= Time::ZERO + self.options.heals_at
    }

    fn exponential(&mut self, mean: Duration) -> Duration {
        let part = (self.dice.faults.number(1..1 << 20) as f64 / f64::from(1 << 20)).ln();
        mean.mul_f64(-part)
    }

    pub(super) fn on_starts(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.life += 1;
        (node.up, node.rank) = (true, Rank::default());
        let process = Process { node: number, life: node.life };
        self.send_up(process, Upward::Up);
        if let Some(mtbf) = self.options.mtbf {
            let lives = self.exponential(mtbf);
            self.queue.push(self.now + lives, Event::Dies { process });
        }
    }

    pub(super) fn on_dies(&mut self, process: Process) {
        if !self.lives(process) || self.has_healed() {
            return;
        }
        self.tally.deaths += 1;
        let frozen = self.dice.faults.chance(1, FROZEN);
        self.trace
            .line(self.now, format_args!("n{} {}", process.node, if frozen { "freezes" } else { "dies" }));
        let epoch = self.nodes[process.node].rank.group;
        self.nodes[process.node].up = false;
        self.interrupt(process);
        self.nodes[process.node].rank = Rank::default();
        self.owed.retain(|_, missing| !missing.contains(&process));
        let known = if frozen { self.options.heartbeat } else { Duration::ZERO };
        if let Some(epoch) = epoch {
            self.break_group(epoch, known);
        }
        // What has not left the node is lost; the rest is on its way.
        if let Some(uplink) = self.uplinks.get_mut(&process) {
            let sent = self.dice.faults.index(uplink.queue.len() + 1);
            uplink.queue.truncate(sent);
        }
        let heartbeat_ms = self.options.heartbeat.as_millis() as u64;
        self.send_up_after(process, known, Upward::Down { loss: LostReason::Silent { heartbeat_ms } });
        let back = self.exponential(self.options.mttr);
        self.queue.push(self.now + back, Event::Starts { node: process.node });
    }

    /// The driver does nothing for a while; what is said to it waits.
    pub(super) fn on_slow(&mut self) {
        if !self.has_healed() {
            self.slow_until = self.now + self.dice.faults.millis(100..25_000);
            let at = self.slow_until + self.dice.faults.millis(1000..30_000);
            self.queue.push(at, Event::Slow);
        }
    }
}
