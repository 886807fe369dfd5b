//! The candidates of a search: genes, of which each has a few choices, and of which some exist only with others.
//!
//! A candidate is *folded*: genes that it does not use are 0. Every method here returns folded candidates.

mod count;
#[cfg(test)]
mod tests;

use super::dice::Dice;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A candidate: the number of a choice per gene, in the space's order. Genes that a candidate does not use are 0, so that
/// equal candidates are equal here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Genes(pub Vec<u16>);

/// One thing to choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gene {
    pub name: String,
    pub choices: Vec<Choice>,
    pub activity: Activity,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// As a person reads it.
    pub label: String,
    /// Choices that all have numbers are ordered by them.
    pub number: Option<f64>,
}

/// When a gene exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    Always,
    /// Any of these, of which all needs are met.
    AnyOf(Vec<Vec<Need>>),
}

/// An earlier gene that exists and has one of some choices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    pub gene: usize,
    pub choices: Vec<u16>,
}

/// All candidates of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Space {
    pub genes: Vec<Gene>,
}

/// Why genes do not make a space.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    #[error("there are two genes called `{name}`")]
    TwoGenes { name: String },
    #[error("gene `{name}` has {count} choices; 1 to 65535 are possible")]
    ChoiceCount { name: String, count: usize },
    #[error("gene `{name}` has the choice `{label}` twice")]
    TwoChoices { name: String, label: String },
    #[error("gene `{name}` has a choice whose number is not finite: `{label}`")]
    NotFinite { name: String, label: String },
    #[error("gene `{name}` never exists: its condition has no alternative, or an alternative with no choice")]
    Never { name: String },
    #[error("gene `{name}` depends on gene {gene}, which is not an earlier one")]
    NotEarlier { name: String, gene: usize },
    #[error("gene `{name}` depends on choice {choice} of `{on}`, which has only {count}")]
    NoSuchChoice { name: String, on: String, choice: u16, count: usize },
}

impl Space {
    /// # Errors
    /// If a name or a label occurs twice, a gene has no choice or too many, or a condition names a gene that is not an
    /// earlier one or a choice that it does not have.
    pub fn new(genes: Vec<Gene>) -> Result<Self, SpaceError> {
        let mut names = BTreeSet::new();
        for (index, gene) in genes.iter().enumerate() {
            let name = || gene.name.clone();
            if !names.insert(gene.name.as_str()) {
                return Err(SpaceError::TwoGenes { name: name() });
            }
            check_choices(gene)?;
            let Activity::AnyOf(alternatives) = &gene.activity else { continue };
            let needs = || alternatives.iter().flatten();
            if alternatives.is_empty() || needs().any(|need| need.choices.is_empty()) {
                return Err(SpaceError::Never { name: name() });
            }
            for need in needs() {
                let Some(on) = genes[..index].get(need.gene) else {
                    return Err(SpaceError::NotEarlier { name: name(), gene: need.gene });
                };
                let count = on.choices.len();
                if let Some(&choice) = need.choices.iter().find(|choice| usize::from(**choice) >= count) {
                    return Err(SpaceError::NoSuchChoice {
                        name: name(),
                        on: on.name.clone(),
                        choice,
                        count,
                    });
                }
            }
        }
        Ok(Self { genes })
    }

    /// Whether a candidate has this gene. A gene that is needed for it must exist itself.
    pub fn is_active(&self, genes: &Genes, gene: usize) -> bool {
        match self.genes.get(gene).map(|gene| &gene.activity) {
            None => false,
            Some(Activity::Always) => true,
            Some(Activity::AnyOf(_)) => self.activity(genes, gene + 1)[gene],
        }
    }

    /// The genes that a candidate has, by their index.
    pub fn active(&self, genes: &Genes) -> Vec<usize> {
        let active = self.activity(genes, self.genes.len());
        (0..self.genes.len()).filter(|gene| active[*gene]).collect()
    }

    /// Whether each of the first genes exists.
    fn activity(&self, genes: &Genes, end: usize) -> Vec<bool> {
        let mut active = Vec::with_capacity(end);
        for gene in self.genes.iter().take(end) {
            active.push(gene.activity.holds(&active, &genes.0));
        }
        active
    }

    /// Genes that do not exist become 0. Genes of another space are made to fit: missing ones are 0, and a choice that
    /// does not exist is the last one.
    pub fn fold(&self, genes: Genes) -> Genes {
        self.complete(genes, |_| 0)
    }

    /// Folds; a gene that exists and is [`UNKNOWN`] gets what `fresh` returns.
    fn complete(&self, mut genes: Genes, mut fresh: impl FnMut(usize) -> u16) -> Genes {
        genes.0.resize(self.genes.len(), UNKNOWN);
        let mut active = Vec::with_capacity(self.genes.len());
        for (index, gene) in self.genes.iter().enumerate() {
            let exists = gene.activity.holds(&active, &genes.0);
            active.push(exists);
            genes.0[index] = match genes.0[index] {
                _ if !exists => 0,
                UNKNOWN => fresh(index),
                choice => choice.min(gene.last()),
            };
        }
        genes
    }

    /// Whether this is a candidate of the space: each gene has an existing choice, and those that do not exist are 0.
    pub fn contains(&self, genes: &Genes) -> bool {
        genes.0.len() == self.genes.len() && self.fold(genes.clone()) == *genes
    }

    /// How many candidates there are. `None` if a `u128` cannot hold it, or it is too hard to count.
    pub fn count(&self) -> Option<u128> {
        count::count(&self.genes)
    }

    /// Every candidate once, in order.
    pub fn candidates(&self) -> impl Iterator<Item = Genes> + '_ {
        let first = Genes(vec![0; self.genes.len()]);
        std::iter::successors(Some(first), |genes| self.successor(genes))
    }

    /// The smallest candidate after this one: whether a gene exists depends on earlier ones alone, so that raising the
    /// last gene that can be raised and lowering all after it gives a folded candidate.
    fn successor(&self, genes: &Genes) -> Option<Genes> {
        let raised = self.active(genes).into_iter().rfind(|&gene| genes.0[gene] < self.genes[gene].last())?;
        let mut next = genes.clone();
        next.0[raised] += 1;
        next.0[raised + 1..].fill(0);
        Some(next)
    }

    /// Draws each gene that exists, one after the other: a gene's choices are equally likely, whatever depends on them.
    pub fn sample(&self, dice: &mut Dice) -> Genes {
        self.complete(Genes(vec![UNKNOWN; self.genes.len()]), |gene| self.draw(gene, dice))
    }

    fn draw(&self, gene: usize, dice: &mut Dice) -> u16 {
        dice.below(self.genes[gene].choices.len()) as u16
    }

    /// Gives so many genes another choice, fewer if there are not so many; genes that exist only now are drawn. The
    /// result differs from the parent if any of its genes has two choices and `changes` is not 0.
    pub fn mutate(&self, parent: &Genes, changes: usize, dice: &mut Dice) -> Genes {
        let mut child = self.fold(parent.clone());
        // Genes of the parent that still have its choice. Whatever is changed stays changed, so that the first gene
        // that differs cannot be lost: it depends on none that does.
        let mut unchanged: BTreeSet<usize> = self.active(&child).into_iter().collect();
        for _ in 0..changes {
            let before = self.activity(&child, self.genes.len());
            let possible: Vec<usize> = unchanged
                .iter()
                .copied()
                .filter(|&gene| before[gene] && self.genes[gene].choices.len() > 1)
                .collect();
            let Some(&gene) = dice.pick(&possible) else { break };
            unchanged.remove(&gene);
            child.0[gene] = self.another(gene, child.0[gene], dice);
            for (choice, was_active) in child.0.iter_mut().zip(&before) {
                if !was_active {
                    *choice = UNKNOWN;
                }
            }
            child = self.complete(child, |gene| {
                unchanged.remove(&gene);
                self.draw(gene, dice)
            });
        }
        child
    }

    fn another(&self, gene: usize, choice: u16, dice: &mut Dice) -> u16 {
        let drawn = dice.below(self.genes[gene].choices.len() - 1) as u16;
        if drawn < choice { drawn } else { drawn + 1 }
    }

    /// Takes each gene from either. A gene that only one of both has comes from that one; one that only the child has
    /// is drawn.
    pub fn crossover(&self, a: &Genes, b: &Genes, dice: &mut Dice) -> Genes {
        let parents = [self.fold(a.clone()), self.fold(b.clone())];
        let active = parents.each_ref().map(|parent| self.activity(parent, self.genes.len()));
        let inherited = (0..self.genes.len()).map(|gene| {
            let from = usize::from(dice.chance(0.5));
            [from, 1 - from]
                .into_iter()
                .find(|&from| active[from][gene])
                .map_or(UNKNOWN, |from| parents[from].0[gene])
        });
        let inherited = Genes(inherited.collect());
        self.complete(inherited, |gene| self.draw(gene, dice))
    }

    /// Candidates that differ in one gene, and in those that exist only by that difference: these have their first choice.
    pub fn neighbours(&self, of: &Genes) -> Vec<Genes> {
        let of = self.fold(of.clone());
        let of = &of;
        let other_choices = |gene: usize| {
            (0..=self.genes[gene].last()).filter(move |choice| *choice != of.0[gene]).map(move |choice| {
                let mut neighbour = of.clone();
                neighbour.0[gene] = choice;
                self.fold(neighbour)
            })
        };
        self.active(of).into_iter().flat_map(other_choices).collect()
    }

    /// Whether all choices of a gene have numbers.
    pub fn is_ordered(&self, gene: usize) -> bool {
        self.genes.get(gene).is_some_and(Gene::is_ordered)
    }

    /// How different two candidates are in one gene, from 0 to 1: by the order of its numbers, or whether they are equal.
    /// A gene that only one of both has is as different as possible.
    pub fn mismatch(&self, gene: usize, a: &Genes, b: &Genes) -> f64 {
        let position = |genes: &Genes| {
            let choice = genes.0.get(gene).copied().unwrap_or(0);
            self.is_active(genes, gene).then(|| self.genes[gene].position(choice))
        };
        mismatch(self.is_ordered(gene), position(a), position(b))
    }

    /// Where the choice of each gene stands between 0 and 1, by the order of its numbers; for words the number of the
    /// choice; `None` for a gene that does not exist. [`mismatch`] of these is [`Space::mismatch`], computed once for
    /// many comparisons.
    pub fn positions(&self, genes: &Genes) -> Vec<Option<f64>> {
        let active = self.activity(genes, self.genes.len());
        let choices = genes.0.iter().copied().chain(std::iter::repeat(0));
        let of_gene = self.genes.iter().zip(active).zip(choices);
        of_gene.map(|((gene, active), choice)| active.then(|| gene.position(choice))).collect()
    }

    /// A candidate as numbers, for predictors: the number of the choice, or its index if the choices are words. NaN for
    /// a gene that does not exist.
    pub fn encode(&self, genes: &Genes) -> Vec<f64> {
        let number = |gene: usize, choice: u16| match self.genes[gene].choices.get(usize::from(choice)) {
            Some(Choice { number: Some(number), .. }) if self.is_ordered(gene) => *number,
            _ => f64::from(choice),
        };
        let choices = self.choices(genes).into_iter().enumerate();
        choices.map(|(gene, choice)| choice.map_or(f64::NAN, |choice| number(gene, choice))).collect()
    }

    /// A candidate as a person reads it: `(1, 3, 32)`, with `-` for a gene that does not exist.
    pub fn archid(&self, genes: &Genes) -> String {
        let label = |(gene, choice): (&Gene, Option<u16>)| {
            let choice = choice.and_then(|choice| gene.choices.get(usize::from(choice)));
            choice.map_or_else(|| "-".to_owned(), |choice| choice.label.clone())
        };
        let labels: Vec<String> = self.genes.iter().zip(self.choices(genes)).map(label).collect();
        format!("({})", labels.join(", "))
    }

    /// The choice of each gene; `None` for a gene that does not exist.
    fn choices(&self, genes: &Genes) -> Vec<Option<u16>> {
        let active = self.activity(genes, self.genes.len());
        let choices = genes.0.iter().copied().chain(std::iter::repeat(0));
        active.into_iter().zip(choices).map(|(active, choice)| active.then_some(choice)).collect()
    }
}

/// A choice still to be made; no gene has so many choices.
const UNKNOWN: u16 = u16::MAX;

/// How different two [`Space::positions`] of a gene are, from 0 to 1.
pub fn mismatch(ordered: bool, a: Option<f64>, b: Option<f64>) -> f64 {
    match (a, b) {
        (None, None) => 0.0,
        (Some(a), Some(b)) if ordered => (a - b).abs(),
        (Some(a), Some(b)) if a == b => 0.0,
        _ => 1.0,
    }
}

impl Gene {
    /// Whether all choices have numbers.
    pub fn is_ordered(&self) -> bool {
        self.choices.iter().all(|choice| choice.number.is_some())
    }

    /// The last choice. A gene has between 1 and 65535.
    fn last(&self) -> u16 {
        self.choices.len().saturating_sub(1).min(usize::from(UNKNOWN - 1)) as u16
    }

    fn position(&self, choice: u16) -> f64 {
        let number = self.choices.get(usize::from(choice)).and_then(|choice| choice.number);
        let Some(number) = number.filter(|_| self.is_ordered()) else { return f64::from(choice) };
        let rank =
            self.choices.iter().filter(|other| other.number.is_some_and(|other| other < number)).count();
        rank as f64 / f64::from(self.last().max(1))
    }
}

impl Activity {
    /// Whether the gene exists, given whether earlier ones do and which choices they have.
    fn holds(&self, active: &[bool], choices: &[u16]) -> bool {
        let met = |need: &Need| {
            active.get(need.gene).copied().unwrap_or(false)
                && choices.get(need.gene).is_some_and(|choice| need.choices.contains(choice))
        };
        match self {
            Self::Always => true,
            Self::AnyOf(alternatives) => alternatives.iter().any(|needs| needs.iter().all(met)),
        }
    }
}

fn check_choices(gene: &Gene) -> Result<(), SpaceError> {
    let (name, count) = (|| gene.name.clone(), gene.choices.len());
    if count == 0 || count > usize::from(u16::MAX) {
        return Err(SpaceError::ChoiceCount { name: name(), count });
    }
    let mut labels = BTreeSet::new();
    for Choice { label, number } in &gene.choices {
        if !labels.insert(label.as_str()) {
            return Err(SpaceError::TwoChoices { name: name(), label: label.clone() });
        }
        if number.is_some_and(|number| !number.is_finite()) {
            return Err(SpaceError::NotFinite { name: name(), label: label.clone() });
        }
    }
    Ok(())
}
