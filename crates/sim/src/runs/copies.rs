//! Copies that stages keep of each other, so that a stage that is lost can be made up for.

use super::event::Event;
use super::pace::Pace;
use super::world::World;
use phalanx_types::Epoch;
use std::collections::BTreeSet;

impl<P: Pace> World<'_, P> {
    /// Copies are made after a round that passed a step at which they are due.
    pub(super) fn copy_after_round(&mut self, steps: u64) {
        self.let_go_of_copies();
        let Some(group) = &self.group else { return };
        let every = self.options.copies;
        let due = every > 0 && group.step / every != (group.step - steps) / every;
        if group.copies() && due && group.copying.is_none() {
            self.copy_now();
        }
    }

    /// Every stage keeps a copy of its part, and sends it to the next stage.
    pub(super) fn copy_now(&mut self) {
        let Some(group) = &mut self.group else { return };
        let (epoch, step, members) = (group.epoch, group.step, group.members.clone());
        group.copying = Some((step, BTreeSet::new()));
        for (rank, process) in members.iter().enumerate() {
            let own = &mut self.nodes[process.node].rank;
            let Some(part) = own.part else { continue };
            own.keep_copy(part.ops, step);
            let at = self.now + self.pace.transfer();
            self.schedule(at, Event::CopyArrives { epoch, step, rank });
        }
    }

    pub(super) fn on_copy_arrives(&mut self, epoch: Epoch, step: u64, rank: usize) {
        let Some(group) = self.group.as_mut().filter(|group| group.epoch == epoch && !group.over) else {
            return;
        };
        let Some(ops) = group.post(rank).map(|post| post.ops) else { return };
        let keeper = group.members[(rank + 1) % group.members.len()];
        if let Some((of, arrived)) = &mut group.copying
            && *of == step
        {
            arrived.insert(rank);
            self.nodes[keeper.node].rank.keep_copy(ops, step);
        }
    }

    /// Copies are let go when newer ones have arrived everywhere.
    fn let_go_of_copies(&mut self) {
        let Some(group) = &mut self.group else { return };
        let ranks = group.members.len();
        if let Some((step, _)) = group.copying.take_if(|(_, arrived)| arrived.len() == ranks) {
            for process in &group.members {
                self.nodes[process.node].rank.copies.retain(|(_, of)| *of >= step);
            }
        }
    }
}
