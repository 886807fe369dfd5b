//! The candidates among which one choice is made: neighbours of the best results, their mutants and crossings.

use crate::core::algorithm::History;
use crate::core::dice::Dice;
use crate::core::space::Genes;
use std::collections::{BTreeMap, BTreeSet};

/// Neighbours that are listed for one choice, before those that were seen are left out. Only large spaces have more of
/// a front; then each choice looks at the neighbours of other members.
const MAX_NEIGHBOURS: usize = 6_000;
/// What is known of so many candidates is kept for the next choices.
const MAX_KNOWN: usize = 50_000;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Candidate {
    pub(super) genes: Genes,
    pub(super) parents: Vec<Genes>,
    /// Values of the cheap objectives, if there are any.
    pub(super) cheap: Vec<f64>,
}

/// What is known of candidates, so that it is asked for once.
#[derive(Debug, Default)]
pub(super) struct KnownValues(BTreeMap<Genes, Option<Vec<f64>>>);

impl KnownValues {
    /// The values of the cheap objectives; `None` if the candidate must not be tried.
    pub(super) fn of(&mut self, genes: &Genes, history: &History<'_>) -> Option<Vec<f64>> {
        if self.0.len() > MAX_KNOWN {
            self.0.clear();
        }
        if let Some(known) = self.0.get(genes) {
            return known.clone();
        }
        let cheap = history.objectives.iter().filter(|objective| objective.cheap).count();
        let complete = |values: &Vec<f64>| values.len() == cheap && values.iter().all(|v| v.is_finite());
        let known = history.known.known(genes).filter(complete);
        self.0.insert(genes.clone(), known.clone());
        known
    }
}

/// Neighbours of all members of the front; as many again from mutants and crossings of the first two fronts and from
/// the whole space. Of all these, `most` drawn at random. None of them was seen.
pub(super) fn draw(
    history: &History<'_>,
    fronts: &[Vec<&Genes>],
    most: usize,
    dice: &mut Dice,
) -> Vec<Candidate> {
    let mut found = Pool { history, taken: BTreeSet::new(), candidates: Vec::new() };
    let front = fronts.first().map_or(&[][..], Vec::as_slice);
    let mut members = front.to_vec();
    dice.shuffle(&mut members);
    let mut listed = 0;
    for member in members {
        if listed >= MAX_NEIGHBOURS {
            break;
        }
        let neighbours = history.space.neighbours(member);
        listed += neighbours.len();
        neighbours.into_iter().for_each(|neighbour| found.add(neighbour, &[member]));
    }
    let parents: Vec<&Genes> = fronts.iter().take(2).flatten().copied().collect();
    let others = most / 2;
    for number in 0..others {
        let pair = (dice.pick(&parents).copied(), dice.pick(&parents).copied());
        let (Some(a), Some(b)) = pair else { break };
        let share = number as f64 / others as f64;
        if share < 0.4 {
            found.add(history.space.mutate(a, 2, dice), &[a]);
        } else if share < 0.9 {
            let mut child = history.space.crossover(a, b, dice);
            if dice.chance(0.5) {
                child = history.space.mutate(&child, 1, dice);
            }
            found.add(child, &[a, b]);
        } else {
            found.add(history.space.sample(dice), &[]);
        }
    }
    let mut candidates = found.candidates;
    dice.shuffle(&mut candidates);
    candidates
}

struct Pool<'a, 'h> {
    history: &'a History<'h>,
    taken: BTreeSet<Genes>,
    candidates: Vec<Candidate>,
}

impl Pool<'_, '_> {
    fn add(&mut self, genes: Genes, parents: &[&Genes]) {
        if !self.history.seen.contains(&genes) && self.taken.insert(genes.clone()) {
            let parents = parents.iter().map(|parent| (*parent).clone()).collect();
            self.candidates.push(Candidate { genes, parents, cheap: Vec::new() });
        }
    }
}
