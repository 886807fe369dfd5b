//! Counts the candidates of a space without listing them.
//!
//! Genes are decided one after the other. What matters of the decisions so far is only which alternatives of later
//! genes' conditions are still possible, so all decisions that agree in this are counted together.

use super::{Activity, Gene};
use std::collections::BTreeMap;

/// More states than this are too hard to count: some hundred MiB and seconds.
const MAX_STATES: usize = 50_000;

/// One alternative of the condition of one gene.
struct Alternative<'a> {
    gene: usize,
    needs: Vec<(usize, &'a [u16])>,
    /// The last gene it needs; with this decided, so is the alternative.
    decided_by: Option<usize>,
}

/// Whether each alternative is still possible. Normalised, so that states with the same future are equal.
type State = Vec<bool>;

pub(super) fn count(genes: &[Gene]) -> Option<u128> {
    let alternatives = alternatives(genes);
    let mut states: BTreeMap<State, u128> = BTreeMap::new();
    let mut start = vec![true; alternatives.len()];
    normalise(&mut start, &alternatives, None);
    states.insert(start, 1);
    for (index, gene) in genes.iter().enumerate() {
        let groups = group_choices(index, gene, &alternatives);
        let without = alternatives.iter().map(|alternative| !alternative.depends_on(index)).collect();
        let absent = BTreeMap::from([(without, 1)]);
        let mut after: BTreeMap<State, u128> = BTreeMap::new();
        for (state, ways) in states {
            // All of its alternatives are decided by now.
            let exists = gene.activity == Activity::Always
                || alternatives
                    .iter()
                    .zip(&state)
                    .any(|(alternative, possible)| alternative.gene == index && *possible);
            for (keeps, choices) in if exists { &groups } else { &absent } {
                let mut next: State =
                    state.iter().zip(keeps).map(|(possible, keeps)| *possible && *keeps).collect();
                normalise(&mut next, &alternatives, Some(index));
                let sum = after.entry(next).or_insert(0);
                *sum = sum.checked_add(ways.checked_mul(*choices)?)?;
            }
        }
        if after.len() > MAX_STATES {
            return None;
        }
        states = after;
    }
    states.into_values().try_fold(0_u128, u128::checked_add)
}

impl Alternative<'_> {
    fn depends_on(&self, gene: usize) -> bool {
        self.needs.iter().any(|(on, _)| *on == gene)
    }
}

fn alternatives(genes: &[Gene]) -> Vec<Alternative<'_>> {
    let mut found = Vec::new();
    for (gene, Gene { activity, .. }) in genes.iter().enumerate() {
        let Activity::AnyOf(alternatives) = activity else { continue };
        found.extend(alternatives.iter().map(|needs| Alternative {
            gene,
            needs: needs.iter().map(|need| (need.gene, need.choices.as_slice())).collect(),
            decided_by: needs.iter().map(|need| need.gene).max(),
        }));
    }
    found
}

/// How many choices of a gene leave the same alternatives possible.
fn group_choices(index: usize, gene: &Gene, alternatives: &[Alternative<'_>]) -> BTreeMap<State, u128> {
    let mut groups = BTreeMap::new();
    for choice in 0..=gene.last() {
        let keeps = |alternative: &Alternative<'_>| {
            alternative.needs.iter().all(|(on, choices)| *on != index || choices.contains(&choice))
        };
        *groups.entry(alternatives.iter().map(keeps).collect()).or_insert(0) += 1;
    }
    groups
}

/// `decided`: the last gene that is decided. A gene of which one alternative is certain exists, whatever the others are;
/// the alternatives of a decided gene do not matter any more.
fn normalise(state: &mut State, alternatives: &[Alternative<'_>], decided: Option<usize>) {
    let mut start = 0;
    while start < alternatives.len() {
        let gene = alternatives[start].gene;
        let end =
            start + alternatives[start..].iter().take_while(|alternative| alternative.gene == gene).count();
        let is_certain = |index: usize| state[index] && alternatives[index].decided_by <= decided;
        if decided.is_some_and(|decided| gene <= decided) {
            state[start..end].fill(false);
        } else if (start..end).any(is_certain) {
            state[start..end].fill(true);
        }
        start = end;
    }
}
