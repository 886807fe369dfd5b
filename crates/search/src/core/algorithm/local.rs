//! Pareto local search: a member of the front is expanded by one neighbour, which differs in one gene. Of two random
//! members the one with more room around it on the front is chosen, so that gaps in the front are filled first.
//!
//! A member whose neighbours were all seen is a local optimum and left alone. When all members are, members of the next
//! front follow: that leads out of a plateau without starting anew.

use super::ranked::{Ranked, comparable, rank, tournament};
use super::unseen::{first_unseen, is_unseen, propose_random};
use super::{Algorithm, AlgorithmSettings, History, Proposal};
use crate::core::dice::Dice;
use crate::core::space::Genes;

/// Random mutants of a member before its neighbours are enumerated.
const TRIES: usize = 10;
/// Members that are looked at in one ask.
const MEMBERS: usize = 200;

#[derive(Debug, Clone)]
pub struct Local {
    start: usize,
}

impl Local {
    pub fn new(settings: &AlgorithmSettings) -> Self {
        Self { start: settings.start.unwrap_or(10) }
    }
}

impl Algorithm for Local {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        if history.seen.len() < self.start {
            return propose_random(history, dice);
        }
        let results = comparable(history.objectives, history.results);
        let mut ranked = rank(&results);
        ranked.truncate(MEMBERS);
        while let Some(first) = ranked.first() {
            let front = ranked.partition_point(|other| other.rank == first.rank);
            let mut members: Vec<Ranked<'_>> = ranked.drain(..front).collect();
            while let Some(parent) = tournament(&members, dice).map(|member| member.genes) {
                if let Some(genes) = unseen_neighbour(history, parent, dice) {
                    return Some(Proposal { genes, parents: vec![parent.clone()] });
                }
                members.retain(|member| member.genes != parent);
            }
        }
        propose_random(history, dice)
    }
}

/// A random neighbour; `None` if all were seen or are refused.
fn unseen_neighbour(history: &History<'_>, of: &Genes, dice: &mut Dice) -> Option<Genes> {
    let mutant = first_unseen(history, TRIES, || history.space.mutate(of, 1, dice));
    mutant.or_else(|| {
        let mut neighbours = history.space.neighbours(of);
        neighbours.retain(|genes| !history.seen.contains(genes));
        dice.shuffle(&mut neighbours);
        neighbours.into_iter().find(|genes| is_unseen(history, genes))
    })
}
