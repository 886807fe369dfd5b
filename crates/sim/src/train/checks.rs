//! What must hold at every moment.
//!
//! - Every sample of every global batch belongs to exactly one rank.
//! - A step that has happened is done once and never undone while anybody holds it, nor when it is on disk.
//! - The ranks of one group have the same steps behind them, and belong to no other group.
//! - The driver knows as active exactly those who train.

use super::node::Process;
use super::world::{SMALL, World};
use phalanx_types::Epoch;

impl World<'_> {
    /// Checks after every event.
    pub(super) fn check(&mut self) {
        let epoch = self.core.epoch();
        if epoch < self.last_epoch {
            self.violate(format!("epoch {} follows {}", epoch.0, self.last_epoch.0));
        }
        self.last_epoch = epoch;
        if self.nodes.len() <= SMALL {
            self.check_group();
        }
    }

    /// All members of a group that trains are there and level, and the driver knows them.
    pub(super) fn check_group(&mut self) {
        let Some(group) = self.group.as_ref().filter(|group| group.begun && !group.over) else { return };
        let mut wrong = None;
        for process in &group.members {
            let node = &self.nodes[process.node];
            if !self.lives(*process) || node.epoch != Some(group.epoch) {
                wrong = Some(format!("n{} trains in group {} and is not in it", process.node, group.epoch.0));
            } else if node.holds != Some(group.step) {
                let (holds, step) = (node.holds, group.step);
                wrong = Some(format!("n{} holds step {holds:?}, its group step {step}", process.node));
            }
        }
        if group.step != self.committed {
            wrong = Some(format!("the group is at step {}, the run at {}", group.step, self.committed));
        }
        if self.nodes.len() <= SMALL {
            let mut members: Vec<_> = group.members.iter().map(|process| process.id()).collect();
            members.sort();
            if !self.core.active().eq(members.iter()) {
                let active: Vec<_> = self.core.active().collect();
                wrong = Some(format!("the driver takes {active:?} for active, {members:?} train"));
            }
        }
        if let Some(what) = wrong {
            self.violate(what);
        }
    }

    /// Every sample of a batch has one rank.
    pub(super) fn check_shares(&mut self) {
        let Some(group) = &self.group else { return };
        let (shares, batch) = (&group.shares, self.options.batch);
        let mut next = 0;
        for rank in 0..shares.ranks() {
            let range = shares.range(rank, batch);
            if range.start != next {
                break;
            }
            next = range.end;
        }
        if next != batch || shares.ranks() != group.members.len() {
            let ranks = shares.ranks();
            self.violate(format!("{ranks} ranks do not take every one of {batch} samples once: {next}"));
        }
    }

    /// The step that a group begins with, which must be the newest that anybody holds.
    pub(super) fn check_connect(
        &mut self,
        epoch: Epoch,
        members: &[Process],
        step: Option<u64>,
    ) -> Option<u64> {
        let Some(step) = step else {
            self.violate(format!("nobody in group {} holds the state of the run", epoch.0));
            return None;
        };
        if let Some(process) = members.iter().find(|p| self.lives(**p) && self.nodes[p.node].epoch.is_some())
        {
            self.violate(format!("n{} is still in a group when group {} forms", process.node, epoch.0));
        }
        let held = self.nodes.iter().filter_map(|node| node.holds).max();
        let newest = held.unwrap_or(self.saved);
        if step < newest || step < self.saved {
            let saved = self.saved;
            self.violate(format!("the run goes back to step {step}; {held:?} is held, {saved} is on disk"));
        }
        if step > self.committed {
            self.violate(format!("group {} begins with step {step}, which nobody has done", epoch.0));
        }
        // Whoever held more is gone.
        let lost = self.committed.saturating_sub(step);
        if lost > 0 {
            self.tally.steps_lost += lost;
            self.tally.lost_samples += lost as f64 * self.options.batch as f64;
            self.committed = step;
        }
        Some(step)
    }
}
