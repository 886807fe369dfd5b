//! NSGA-II in steady state: a population into which every result is taken and from which the worst is thrown out at once,
//! by front and by crowding. Two tournaments choose the parents of a child, which is crossed and mutated.
//!
//! The population follows from the results in their order; there is nothing to store.

use super::ranked::{Ranked, comparable, rank, tournament};
use super::unseen::{first_unseen, propose_random};
use super::{Algorithm, AlgorithmSettings, History, Proposal};
use crate::core::dice::Dice;
use crate::core::space::{Genes, Space};

/// Children that are tried of one couple.
const TRIES: usize = 10;
/// Couples that are tried before a random candidate is taken.
const COUPLES: usize = 10;

#[derive(Debug, Clone)]
pub struct Nsga2 {
    population: usize,
    crossover_rate: f64,
}

impl Nsga2 {
    pub fn new(settings: &AlgorithmSettings) -> Self {
        Self {
            population: settings.population.unwrap_or(20).max(2),
            crossover_rate: settings.crossover_rate.unwrap_or(0.9),
        }
    }
}

impl Algorithm for Nsga2 {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        if history.seen.len() < self.population {
            return propose_random(history, dice);
        }
        let results = comparable(history.objectives, history.results);
        let survivors = survivors(&results, self.population);
        let population = rank(&survivors);
        for _ in 0..COUPLES {
            let (Some(a), Some(b)) = (tournament(&population, dice), tournament(&population, dice)) else {
                break;
            };
            let crossed = a.genes != b.genes && dice.chance(self.crossover_rate);
            let second = crossed.then_some(b);
            if let Some(genes) = first_unseen(history, TRIES, || child(history.space, a, second, dice)) {
                let parents = std::iter::once(a).chain(second).map(|parent| parent.genes.clone()).collect();
                return Some(Proposal { genes, parents });
            }
        }
        propose_random(history, dice)
    }
}

/// A child of one or two parents. Each gene changes with one over the number of genes; one at least, if crossing gave
/// nothing new.
fn child(space: &Space, a: &Ranked<'_>, b: Option<&Ranked<'_>>, dice: &mut Dice) -> Genes {
    let crossed = b.map_or_else(|| a.genes.clone(), |b| space.crossover(a.genes, b.genes, dice));
    let active = space.active(&crossed).len();
    let drawn = (0..active).filter(|_| dice.below(active) == 0).count();
    let copied = crossed == *a.genes || b.is_some_and(|b| crossed == *b.genes);
    match drawn.max(usize::from(copied)) {
        0 => crossed,
        changes => space.mutate(&crossed, changes, dice),
    }
}

type Scored<'a> = (&'a Genes, Vec<f64>);

/// Those who remain when the worst is thrown out after each result.
fn survivors<'a>(results: &[Scored<'a>], population: usize) -> Vec<Scored<'a>> {
    let mut alive: Vec<Scored<'a>> = Vec::with_capacity(population + 1);
    for result in results {
        alive.push(result.clone());
        if alive.len() > population {
            let worst =
                rank(&alive).pop().and_then(|worst| alive.iter().position(|(g, _)| *g == worst.genes));
            alive.remove(worst.unwrap_or(0));
        }
    }
    alive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_the_last_front_leaves_first() {
        let genes: Vec<Genes> = (0..5).map(|i| Genes(vec![i])).collect();
        let points = [vec![1.0, 1.0], vec![2.0, 2.0], vec![0.0, 3.0], vec![3.0, 0.0], vec![0.9, 1.1]];
        let results: Vec<Scored<'_>> = genes.iter().zip(points).collect();
        let left = |n| survivors(&results, n).iter().map(|(g, _)| g.0[0]).collect::<Vec<_>>();
        // 1 is dominated. Then 0 and 4 are close to each other; the ends stay.
        assert_eq!(left(4), [0, 2, 3, 4]);
        assert_eq!(left(5), [0, 1, 2, 3, 4]);
        assert_eq!(left(2), [2, 3]);
    }
}
