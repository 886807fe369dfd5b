//! Successive halving: random candidates, of which the best of each rung go on together.

use super::unseen::propose_random;
use super::{Algorithm, History, Proposal};
use crate::core::dice::Dice;

#[derive(Debug, Clone, Copy)]
pub struct SuccessiveHalving;

impl Algorithm for SuccessiveHalving {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        propose_random(history, dice)
    }

    fn waits_for_rungs(&self) -> bool {
        true
    }
}
