//! Candidates that may still be proposed: not seen before, and not refused by what is known of them.
//!
//! Nothing here loops without a bound. Spaces of up to [`ENUMERATED`] candidates are found exhausted exactly.

use super::{History, Proposal};
use crate::core::dice::Dice;
use crate::core::space::Genes;

/// A space with at most this many candidates is enumerated before an algorithm gives up.
const ENUMERATED: usize = 10_000;
/// Random tries before a space is enumerated.
const RANDOM_TRIES: usize = 200;
/// Random tries in a space that is too large to enumerate.
const RANDOM_TRIES_LARGE: usize = 5_000;

/// Whether a candidate may be proposed. The cheap test comes first: what is known of a candidate may take a while.
pub(super) fn is_unseen(history: &History<'_>, genes: &Genes) -> bool {
    !history.seen.contains(genes) && history.known.known(genes).is_some()
}

/// The first proposable candidate among at most `tries` that `make` gives.
pub(super) fn first_unseen(
    history: &History<'_>,
    tries: usize,
    mut make: impl FnMut() -> Genes,
) -> Option<Genes> {
    (0..tries).map(|_| make()).find(|genes| is_unseen(history, genes))
}

/// A random proposable candidate; `None` if there is none left, or none was found in a very large space.
pub(super) fn random_unseen(history: &History<'_>, dice: &mut Dice) -> Option<Genes> {
    let space = history.space;
    let sampled = first_unseen(history, RANDOM_TRIES, || space.sample(dice));
    if sampled.is_some() {
        return sampled;
    }
    if space.candidates().nth(ENUMERATED).is_some() {
        let sampled = first_unseen(history, RANDOM_TRIES_LARGE, || space.sample(dice));
        if sampled.is_some() {
            return sampled;
        }
    }
    let mut left: Vec<Genes> =
        space.candidates().take(ENUMERATED).filter(|genes| !history.seen.contains(genes)).collect();
    dice.shuffle(&mut left);
    left.into_iter().find(|genes| is_unseen(history, genes))
}

/// [`random_unseen`] as a proposal without parents.
pub(super) fn propose_random(history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
    random_unseen(history, dice).map(|genes| Proposal { genes, parents: Vec::new() })
}
