//! Final improvements: applies every small change that helps, until none does.

use crate::cuts::{self, Lane};
use crate::evaluate::{Formation, Timed};
use crate::search::Patience;
use crate::search::build::{Builder, Found};
use crate::search::mutate;
use std::rc::Rc;

/// Up to this many cuts are tried one by one with the whole formation evaluated.
const FEW_CUTS: usize = 40;
/// The largest stages × places² for which dynamic programming is fast enough.
const MOST_LABELS: usize = 400_000;

pub(crate) fn polish(builder: &mut Builder<'_>, mut best: Found, patience: &mut Patience<'_>) -> Found {
    for _ in 0..4 {
        let before = best.total();
        best = programmed(builder, best, patience);
        best = shifted(builder, best, patience);
        best = micro_batches(builder, best);
        if best.total() >= before * (1.0 - 1e-9) || !patience.lasts() {
            break;
        }
    }
    best
}

/// Cuts every replica by dynamic programming for its share.
fn programmed(builder: &mut Builder<'_>, best: Found, patience: &mut Patience<'_>) -> Found {
    let micro_batches = best.formation.micro_batches;
    let problem = builder.problem;
    let stages: usize = best.formation.replicas.iter().map(|r| r.parts.len()).sum();
    if stages * problem.end().pow(2) > MOST_LABELS {
        return best;
    }
    let mut formation: Formation = best.formation.clone();
    for (replica, share) in formation.replicas.iter_mut().zip(&best.score.shares) {
        let count = replica.parts.len();
        if count == 1 || !patience.lasts() {
            continue;
        }
        let nodes: Vec<usize> = replica.parts.iter().map(|p| p.node).collect();
        let lane = Lane {
            nodes: &nodes,
            micro_batches: micro_batches.min(*share),
            m: share.div_ceil(micro_batches),
        };
        let limit = replica.seconds(problem, *share) * (1.0 - 1e-6);
        if let Some((_, parts)) = cuts::nearly_best(problem, lane, limit) {
            *replica = Rc::new(Timed::new(problem, parts, micro_batches));
        }
    }
    match builder.evaluate(formation) {
        Some(found) if found.total() < best.total() => found,
        _ => best,
    }
}

/// Tries each cut at its neighbouring places.
fn shifted(builder: &mut Builder<'_>, mut best: Found, patience: &mut Patience<'_>) -> Found {
    let all: usize = best.formation.replicas.iter().map(|r| r.parts.len() - 1).sum();
    if all > FEW_CUTS {
        return best;
    }
    for replica in 0..best.formation.replicas.len() {
        for cut in 1..best.formation.replicas[replica].parts.len() {
            for by in [-2isize, -1, 1, 2] {
                let mut parts = best.formation.replicas[replica].parts.clone();
                let Some(to) = parts[cut].from.checked_add_signed(by) else { continue };
                let moved =
                    mutate::with_cut(builder.problem, &best.formation, replica, &mut parts, (cut, to));
                let found = moved.and_then(|formation| builder.evaluate(formation));
                best = found.filter(|f| f.total() < best.total()).unwrap_or(best);
            }
            if !patience.lasts() {
                return best;
            }
        }
    }
    best
}

fn micro_batches(builder: &mut Builder<'_>, best: Found) -> Found {
    let lists = best.lists();
    let choices = builder.problem.options.micro_batch_choices();
    let near = |m: &usize| *m == best.formation.micro_batches / 2 || *m == best.formation.micro_batches * 2;
    let tried: Vec<Found> =
        choices.into_iter().filter(near).filter_map(|m| builder.raise(&lists, m)).collect();
    tried.into_iter().fold(best, |best, found| if found.total() < best.total() { found } else { best })
}
