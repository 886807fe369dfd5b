//! Evolutionary Pareto search: every member of the front gets mutants, pairs of members are crossed, and a few random
//! candidates are mixed in.
//!
//! The rules are those of a generation: so many mutants of each member, so many crossings, so many random ones. A search
//! without generations goes through the same list again and again, from the front as it is when it is asked. The place in
//! the list is the number of candidates seen so far, so that nothing must be stored.

use super::ranked::{Ranked, comparable, rank};
use super::unseen::{first_unseen, propose_random};
use super::{Algorithm, AlgorithmSettings, History, Proposal};
use crate::core::dice::Dice;
use crate::core::space::{Genes, Space};

/// Mutants of one parent, or crossings, that are tried in a row.
const TRIES: usize = 30;
/// Members of the front whose mutants are tried when what was due gave nothing unseen.
const MEMBERS: usize = 10;

#[derive(Debug, Clone)]
pub struct EvolutionPareto {
    start: usize,
    population: usize,
    mutations: usize,
    crossovers: usize,
    random_mix: usize,
    mutation_rate: f64,
}

/// What an entry of a generation's list says.
enum Due {
    /// A mutant of this member of the front.
    Mutant(usize),
    Crossing,
    Random,
}

impl EvolutionPareto {
    pub fn new(settings: &AlgorithmSettings) -> Self {
        Self {
            start: settings.start.unwrap_or(10),
            population: settings.population.unwrap_or(100).max(1),
            mutations: settings.mutations.unwrap_or(1),
            crossovers: settings.crossovers.unwrap_or(5),
            random_mix: settings.random_mix.unwrap_or(5),
            mutation_rate: settings.mutation_rate.unwrap_or(0.3),
        }
    }

    /// The entry at a place of the list. A list longer than the population is drawn from, as is done with a generation.
    fn due(&self, front: usize, place: usize, dice: &mut Dice) -> Due {
        let mutants = front * self.mutations;
        let length = mutants + self.crossovers + self.random_mix;
        let entry = match length {
            0 => return Due::Random,
            length if length > self.population => dice.below(length),
            length => place % length,
        };
        if entry < mutants {
            Due::Mutant(entry / self.mutations)
        } else if entry < mutants + self.crossovers {
            Due::Crossing
        } else {
            Due::Random
        }
    }

    fn mutant(&self, history: &History<'_>, parent: &Genes, dice: &mut Dice) -> Option<Proposal> {
        let genes =
            first_unseen(history, TRIES, || resample(history.space, parent, self.mutation_rate, dice))?;
        Some(Proposal { genes, parents: vec![parent.clone()] })
    }
}

impl Algorithm for EvolutionPareto {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        let Some(place) = history.seen.len().checked_sub(self.start) else {
            return propose_random(history, dice);
        };
        let results = comparable(history.objectives, history.results);
        let mut front = rank(&results);
        front.truncate(front.partition_point(|member| member.rank == 0));
        let proposal = match self.due(front.len(), place, dice) {
            Due::Mutant(member) => front.get(member).and_then(|m| self.mutant(history, m.genes, dice)),
            Due::Crossing => crossing(history, &front, dice),
            Due::Random => return propose_random(history, dice),
        };
        proposal
            .or_else(|| {
                dice.shuffle(&mut front);
                front.iter().take(MEMBERS).find_map(|member| self.mutant(history, member.genes, dice))
            })
            .or_else(|| propose_random(history, dice))
    }
}

/// Draws every gene anew with a probability; it may get the choice it had. Genes that the parent does not use are always
/// drawn, in case that the mutant does.
pub(super) fn resample(space: &Space, parent: &Genes, rate: f64, dice: &mut Dice) -> Genes {
    let mut drawn: Vec<u16> = space.genes.iter().map(|gene| dice.below(gene.choices.len()) as u16).collect();
    for gene in space.active(parent) {
        if !dice.chance(rate) {
            drawn[gene] = parent.0[gene];
        }
    }
    space.fold(Genes(drawn))
}

/// A crossing of two random members, which may be the same.
fn crossing(history: &History<'_>, front: &[Ranked<'_>], dice: &mut Dice) -> Option<Proposal> {
    for _ in 0..TRIES {
        let (a, b) = (dice.pick(front)?.genes, dice.pick(front)?.genes);
        if a == b {
            continue;
        }
        if let Some(genes) = first_unseen(history, 1, || history.space.crossover(a, b, dice)) {
            return Some(Proposal { genes, parents: vec![a.clone(), b.clone()] });
        }
    }
    None
}
