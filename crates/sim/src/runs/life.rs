//! The lives of a run: its driver dies, the user stops it, it fails; each time it is resumed from its directory.

use super::event::Event;
use super::pace::Pace;
use super::world::World;
use phalanx_protocol::driver::{DriverEvent, DriverFailure, Ticket};
use phalanx_protocol::holdings::{Inventory, newest};
use phalanx_protocol::progress::End;
use std::time::Duration;

impl<P: Pace> World<'_, P> {
    pub(super) fn schedule_death_of_driver(&mut self) {
        if let Some(mean) = self.options.driver_mtbf {
            let at = self.now + self.exponential(mean);
            self.schedule(at, Event::DriverDies);
        }
    }

    /// The driver is killed: between two events, or between two commands of one.
    pub(super) fn on_driver_dies(&mut self) {
        if self.has_healed() {
            return;
        }
        self.schedule_death_of_driver();
        if !self.driver.up {
            return;
        }
        match self.dice.driver.chance(1, 3) {
            true => self.kill_driver(),
            false => self.driver.dies_within = Some(self.dice.driver.number(0..12)),
        }
    }

    /// Counts a command that the driver carries out; whether it is killed before it.
    pub(super) fn is_killed_here(&mut self) -> bool {
        match &mut self.driver.dies_within {
            Some(0) => true,
            Some(commands) => {
                *commands -= 1;
                false
            }
            None => false,
        }
    }

    pub(super) fn kill_driver(&mut self) {
        self.tally.restarts += 1;
        self.trace.line(self.now, format_args!("the driver dies"));
        let busy = self.options.heartbeat;
        self.end_driver(busy);
    }

    /// There is no driver any more; nodes leave the run when they notice, and another driver takes it up later.
    fn end_driver(&mut self, noticed: Duration) {
        let driver = &mut self.driver;
        driver.life += 1;
        (driver.up, driver.dies_within, driver.slow_until) = (false, None, self.now);
        self.uplinks.clear();
        self.downlinks.clear();
        self.linked.clear();
        self.group = None;
        self.owed.clear();
        self.book.forget_driver();
        self.queries.clear();
        for node in &mut self.nodes {
            node.rank = super::cluster::Rank::default();
            node.link += 1;
            node.connected = false;
            if self.options.private {
                node.up = false;
            } else if self.dice.driver.chance(1, 4) {
                node.busy_until = self.now + noticed;
            }
        }
        let at = self.now + self.dice.driver.millis(50..20_000);
        self.schedule(at, Event::Resumes);
    }

    pub(super) fn on_resumes(&mut self) {
        if self.driver.up {
            return;
        }
        self.start_driver();
        for node in 0..self.nodes.len() {
            if self.nodes[node].up {
                self.link(node);
            } else if self.options.private {
                let at = self.now + self.pace.starting();
                self.schedule(at, Event::Starts { node });
            }
        }
    }

    pub(super) fn on_stop_asked(&mut self) {
        if self.driver.up {
            self.tally.stops += 1;
            self.driver.stopping = true;
            self.schedule(self.now, Event::ToDriver(Box::new(DriverEvent::StopAsked)));
        }
    }

    /// The driver writes the result; an interrupted run is resumed later.
    pub(super) fn finish(&mut self, step: u64, end: End, states: &[Ticket]) -> Result<(), String> {
        let stopping = self.driver.stopping;
        if (end == End::Finished) != (step == self.last_step) && !stopping {
            return Err(format!("the run ends after step {step}: {end:?}"));
        }
        if let Some(held) = self.newest_held().filter(|held| *held > step) {
            return Err(format!("the run ends with step {step}, and nodes hold step {held}"));
        }
        if states.is_empty() && step != self.book.newest() {
            let newest = self.book.newest();
            return Err(format!("the run ends after step {step} with the checkpoint of step {newest}"));
        }
        if !states.is_empty() {
            self.book.save_last(step, states, self.options.operators)?;
        }
        if self.is_killed_here() {
            // The last checkpoint is written, and nothing else.
            self.kill_driver();
            return Ok(());
        }
        self.check_end(step, end)?;
        match end {
            End::Finished => self.finished = true,
            End::Interrupted => self.end_driver(Duration::ZERO),
        }
        Ok(())
    }

    /// The newest step of which nodes that the driver has a link to hold all of the model.
    fn newest_held(&self) -> Option<u64> {
        let linked = self.linked.iter().filter(|(_, process)| self.lives(**process));
        let holds = |process: &super::cluster::Process| self.nodes[process.node].rank.holds();
        let held: Inventory = linked.map(|(node, process)| (node.clone(), holds(process))).collect();
        newest(&held, self.options.operators as usize).map(|resume| resume.step)
    }

    /// The run fails: only when it cannot go on. It is resumed, as after a change of what was wrong.
    pub(super) fn fail(&mut self, failure: &DriverFailure) -> Result<(), String> {
        let expected = match failure {
            DriverFailure::Rank { .. } => self.has_failed,
            DriverFailure::AllRefuse { .. } => self.options.private && self.fails_at_first(),
            DriverFailure::NoPlan { .. } => self.fails_at_first(),
            DriverFailure::ModelLost => self.driver.stopping && self.book.newest() == 0,
        };
        if !expected {
            return Err(format!("the run fails: {failure:?}"));
        }
        self.tally.failures += 1;
        self.end_driver(Duration::ZERO);
        Ok(())
    }

    /// Whether the first driver is to fail at once.
    pub(super) fn fails_at_first(&self) -> bool {
        self.options.fails_at_first && self.tally.failures == 0
    }
}
