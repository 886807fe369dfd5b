//! Random search: unseen candidates, of which every gene is drawn.

use super::unseen::propose_random;
use super::{Algorithm, AlgorithmSettings, History, Proposal};
use crate::core::dice::Dice;

#[derive(Debug, Clone, Copy)]
pub struct Random;

impl Random {
    pub fn new(_settings: &AlgorithmSettings) -> Self {
        Self
    }
}

impl Algorithm for Random {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        propose_random(history, dice)
    }
}
