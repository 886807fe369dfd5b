//! When a part of a template is there, and from this when a gene exists.

use super::tree::Value;
use crate::core::space::{Activity, Choice, Gene, Need};
use std::collections::{BTreeMap, BTreeSet};

/// Genes that have one of some choices, all of them. Genes are numbered as they were declared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Condition(BTreeMap<usize, BTreeSet<u16>>);

/// The choice of each declared gene; `None` if the candidate does not have it.
pub(super) type Choices = [Option<u16>];

impl Condition {
    /// Narrows a condition; `None` if no choice is left.
    pub(super) fn and(&self, gene: usize, choices: &BTreeSet<u16>) -> Option<Self> {
        let mut both = self.clone();
        let narrowed = match both.0.get(&gene) {
            None => choices.clone(),
            Some(earlier) => earlier.intersection(choices).copied().collect(),
        };
        if narrowed.is_empty() {
            return None;
        }
        both.0.insert(gene, narrowed);
        Some(both)
    }

    pub(super) fn and_all(&self, other: &Self) -> Option<Self> {
        other.0.iter().try_fold(self.clone(), |both, (gene, choices)| both.and(*gene, choices))
    }

    /// Whether the other one is met whenever this is.
    fn implies(&self, other: &Self) -> bool {
        let implied = |(gene, choices): (&usize, &BTreeSet<u16>)| {
            self.0.get(gene).is_some_and(|narrower| narrower.is_subset(choices))
        };
        other.0.iter().all(implied)
    }

    pub(super) fn holds(&self, choices: &Choices) -> bool {
        let met = |(gene, wanted): (&usize, &BTreeSet<u16>)| {
            choices.get(*gene).copied().flatten().is_some_and(|choice| wanted.contains(&choice))
        };
        self.0.iter().all(met)
    }

    fn without(&self, genes: &Self) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(gene, _)| !genes.0.contains_key(gene))
                .map(|(g, c)| (*g, c.clone()))
                .collect(),
        )
    }
}

/// A gene of the file, before it is known when it exists.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) choices: Vec<Value>,
    /// Its own `when`.
    pub(super) when: Condition,
    /// Where it is used: any of these, none of which implies another.
    uses: Vec<Condition>,
}

impl Declared {
    pub(super) fn new(name: String, line: usize, choices: Vec<Value>, when: Condition) -> Self {
        Self { name, line, choices, when, uses: Vec::new() }
    }

    pub(super) fn is_used(&self) -> bool {
        !self.uses.is_empty()
    }

    /// Notes that it is used under a condition, as far as its own `when` holds.
    pub(super) fn use_where(&mut self, condition: &Condition) {
        let Some(place) = condition.and_all(&self.when) else { return };
        if self.uses.iter().any(|earlier| place.implies(earlier)) {
            return;
        }
        self.uses.retain(|earlier| !earlier.implies(&place));
        self.uses.push(place);
    }
}

/// What is missing in a condition so that a gene exists wherever it is met: a need of the gene's `when`.
pub(super) fn missing_need<'a>(
    genes: &'a [Declared],
    gene: usize,
    place: &Condition,
) -> Option<(&'a Declared, &'a BTreeSet<u16>)> {
    let known = closure(genes, place);
    let unmet = |(on, choices): &(&usize, &BTreeSet<u16>)| {
        !known.get(*on).is_some_and(|narrower: &BTreeSet<u16>| narrower.is_subset(choices))
    };
    let (on, choices) = genes[gene].when.0.iter().find(unmet)?;
    Some((&genes[*on], choices))
}

/// A condition with the conditions of the genes in it, and so on: a gene that has a choice exists.
fn closure(genes: &[Declared], condition: &Condition) -> BTreeMap<usize, BTreeSet<u16>> {
    let mut known: BTreeMap<usize, BTreeSet<u16>> = BTreeMap::new();
    let mut open = vec![condition];
    let mut seen = BTreeSet::new();
    while let Some(condition) = open.pop() {
        for (gene, choices) in &condition.0 {
            let narrowed = known.entry(*gene).or_insert_with(|| choices.clone());
            *narrowed = narrowed.intersection(choices).copied().collect();
            if seen.insert(*gene) {
                open.push(&genes[*gene].when);
            }
        }
    }
    known
}

/// The genes of a space, and where each declared gene stands in it.
pub(super) fn into_space(mut declared: Vec<Declared>) -> (Vec<Gene>, Vec<Declared>, Vec<usize>) {
    spread_uses(&mut declared);
    let order = order(&declared);
    let mut place = vec![usize::MAX; declared.len()];
    let mut genes: Vec<Gene> = Vec::with_capacity(order.len());
    for index in order {
        let Declared { name, choices, uses, .. } = &declared[index];
        let choices = choices.iter().map(|value| Choice { label: value.label(), number: value.as_number() });
        let activity = activity(uses, &place, &genes);
        place[index] = genes.len();
        genes.push(Gene { name: name.clone(), choices: choices.collect(), activity });
    }
    (genes, declared, place)
}

/// A gene in the `when` of another is used where the other one may be.
fn spread_uses(declared: &mut [Declared]) {
    for later in (0..declared.len()).rev() {
        let when = declared[later].when.clone();
        let places: Vec<Condition> = declared[later].uses.iter().map(|place| place.without(&when)).collect();
        for gene in when.0.keys() {
            places.iter().for_each(|place| declared[*gene].use_where(place));
        }
    }
}

/// The order of the file, but each gene after those that decide whether it exists.
fn order(declared: &[Declared]) -> Vec<usize> {
    let deciding: Vec<BTreeSet<usize>> = declared
        .iter()
        .map(|gene| gene.uses.iter().flat_map(|place| place.0.keys().copied()).collect())
        .collect();
    let mut order: Vec<usize> = Vec::with_capacity(declared.len());
    let mut placed = BTreeSet::new();
    let mut open: Vec<usize> = (0..declared.len()).collect();
    while !open.is_empty() {
        // Genes that decide each other mutually keep the order of the file; then the first exists more often than it
        // is used.
        let next = open.iter().position(|gene| deciding[*gene].is_subset(&placed)).unwrap_or(0);
        let gene = open.remove(next);
        placed.insert(gene);
        order.push(gene);
    }
    order
}

/// `place` has the genes that are placed already.
fn activity(uses: &[Condition], place: &[usize], genes: &[Gene]) -> Activity {
    let need = |(gene, choices): (&usize, &BTreeSet<u16>)| {
        let at = place[*gene];
        let on = genes.get(at)?;
        let says_nothing = on.activity == Activity::Always && on.choices.len() == choices.len();
        (!says_nothing).then(|| Need { gene: at, choices: choices.iter().copied().collect() })
    };
    let mut alternatives: Vec<Vec<Need>> =
        uses.iter().map(|condition| condition.0.iter().filter_map(need).collect()).collect();
    alternatives.iter_mut().for_each(|needs| needs.sort_by_key(|need| need.gene));
    if alternatives.is_empty() || alternatives.iter().any(Vec::is_empty) {
        Activity::Always
    } else {
        Activity::AnyOf(alternatives)
    }
}
