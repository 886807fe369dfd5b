//! Replicas that learn alone for some steps, and then exchange what they have learned.
//!
//! ```text
//!   anchor ──► steps of this replica alone ──► what it learned = anchor - parameters
//!      ^                                             | averaged over replicas, weighted by their samples
//!      |     parameters:  anchor - average           v
//!      +─────outer:       anchor - lr (momentum · velocity + average), Nesterov
//! ```
//! A round happens as a whole or not at all: when the group breaks, the anchor is what remains.

use super::session::{Computed, Session};
use crate::error::DistributedError;
use phalanx_graph::Weights;
use phalanx_protocol::progress::Progress;
use phalanx_protocol::{Vote, Wish, count};
use phalanx_records::ModelState;
use phalanx_train::TrainError;
use phalanx_train::config::ExchangeOf;
use phalanx_types::{DType, Tensor, Time};
use phalanx_wire::train::Activity;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Ends the names of what belongs to the optimizer over rounds.
const OUTER: &str = ".outer_velocity";

/// What of an optimizer's state belongs to the one over rounds.
pub(super) fn outer_of(optimizer: &Weights) -> Weights {
    let of =
        |(name, tensor): (&String, &Tensor)| Some((name.strip_suffix(OUTER)?.to_owned(), tensor.clone()));
    optimizer.iter().filter_map(of).collect()
}

/// Adds it to an optimizer's state.
pub(super) fn add_outer(outer: &Weights, optimizer: &mut Weights) {
    optimizer.extend(outer.iter().map(|(name, tensor)| (format!("{name}{OUTER}"), tensor.clone())));
}

/// Does one round.
pub(super) fn run(session: &mut Session<'_>) -> Result<Wish, DistributedError> {
    let (anchor, at) = (session.worker.state()?, session.at);
    let done = learn(session, &anchor);
    if done.is_err() {
        // Nobody has seen what was learned since: it will be learned again.
        session.worker.stepper.set_state(&anchor)?;
        session.worker.outer = outer_of(&anchor.optimizer);
        (session.at, session.worker.step) = (at, Some(at));
    }
    done
}

/// How many steps the next round has: it ends early where the model is to be looked at.
fn length(session: &Session<'_>) -> u64 {
    let task = &session.worker.task;
    let progress = Progress::new(task.plan(), session.worker.place(session.at), Time::ZERO);
    progress.until_looked_at(task.config.sync.every)
}

fn learn(session: &mut Session<'_>, anchor: &ModelState) -> Result<Wish, DistributedError> {
    let steps = length(session);
    let first = anchor.steps();
    let mut all: Vec<(Computed, f64)> = Vec::new();
    for index in 0..steps {
        let mut computed = session.compute(false)?;
        let (mut norm, whole) = (0.0, computed.loaded.whole);
        if computed.vote.samples > 0 {
            norm = session.worker.stepper.grad_norm();
            computed.vote.finite = computed.vote.loss.is_finite() && norm.is_finite();
            if computed.vote.finite {
                session.worker.stepper.apply(norm, computed.lr);
            }
            // Its part of the mean over the whole batch.
            computed.vote.loss *= f64::from(computed.vote.samples) / whole.max(1) as f64;
        } else {
            session.worker.stepper.skip();
        }
        session.at = first + index + 1;
        let finite = computed.vote.finite;
        all.push((computed, norm));
        if !finite {
            break;
        }
    }
    // Whoever stopped early says so with every vote that is missing.
    let mut votes: Vec<Vote> = all.iter().map(|(computed, _)| computed.vote).collect();
    while let (Some(last), true) = (votes.last().copied(), (votes.len() as u64) < steps) {
        votes.push(Vote { step: last.step + 1, samples: 0, seen: 0, ..last });
    }
    let began = Instant::now();
    let learned = exchange(session, anchor, &votes)?;
    session.spans.add(Activity::Exchange, first, began);
    let began = Instant::now();
    let heard = session.together.vote(&votes)?;
    session.spans.add(Activity::Vote, first, began);
    let mut wish = Wish::GoOn;
    let mut outcomes = Vec::new();
    for (votes, (computed, _)) in heard.iter().zip(&all) {
        let outcome = count(votes)?;
        session.check(&outcome, computed)?;
        wish = wish.max(outcome.wish);
        outcomes.push(outcome);
    }
    session.worker.stepper.model().load(&learned.weights)?;
    session.worker.outer = learned.outer;
    for ((votes, outcome), (computed, norm)) in heard.iter().zip(&outcomes).zip(all) {
        session.done(&computed, votes, outcome, norm);
        session.recycle(computed.loaded.batch);
    }
    Ok(wish)
}

/// What all replicas learned together.
struct Learned {
    weights: Weights,
    outer: Weights,
}

fn exchange(
    session: &mut Session<'_>,
    anchor: &ModelState,
    votes: &[Vote],
) -> Result<Learned, DistributedError> {
    let mut weights = session.worker.stepper.weights(&session.worker.task.graph);
    let names: Vec<String> = weights
        .iter()
        .filter(|(_, tensor)| tensor.dtype() == DType::F32)
        .map(|(name, _)| name.clone())
        .collect();
    let samples = |votes: &[Vote]| votes.iter().map(|vote| f64::from(vote.samples)).sum::<f64>();
    let mut total = [samples(votes)];
    let own = total[0];
    session.together.all_reduce(&mut total, "samples of the round")?;
    let weight = if total[0] > 0.0 { (own / total[0]) as f32 } else { 1.0 / session.together.ranks() as f32 };
    let value = |weights: &Weights, name: &str| -> Result<Vec<f32>, DistributedError> {
        let values = weights.get(name).and_then(|tensor| tensor.to_f32().ok());
        values.ok_or_else(|| TrainError::MissingState { name: name.to_owned() }.into())
    };
    let parameters: BTreeSet<String> =
        session.worker.stepper.model().parameters().iter().map(|parameter| parameter.name.clone()).collect();
    // Statistics are few, and a variance that compression made negative would be the end of the model.
    let (mut flat, mut statistics) = (Vec::new(), Vec::new());
    let mut starts = BTreeMap::new();
    for name in &names {
        let (before, now) = (value(&anchor.weights, name)?, value(&weights, name)?);
        let learned = before.iter().zip(&now).map(|(before, now)| weight * (before - now));
        if parameters.contains(name) {
            starts.insert(name.as_str(), flat.len());
            flat.extend(learned);
        } else {
            starts.insert(name.as_str(), statistics.len());
            statistics.extend(learned.map(f64::from));
        }
    }
    let flat = session.together.exchange.all_reduce(flat, "what was learned")?;
    session.together.all_reduce(&mut statistics, "statistics of the round")?;
    let statistics: Vec<f32> = statistics.iter().map(|value| *value as f32).collect();
    let sync = &session.worker.task.config.sync;
    let (outer_lr, momentum) = (sync.outer_lr, sync.outer_momentum);
    let mut outer = Weights::new();
    for name in &names {
        let start = starts.get(name.as_str()).copied().unwrap_or(0);
        let mut values = value(&anchor.weights, name)?;
        let is_parameter = parameters.contains(name);
        let average = &(if is_parameter { &flat } else { &statistics })[start..start + values.len()];
        // The statistics of batch norm are averaged as they are.
        if sync.exchange == ExchangeOf::Outer && is_parameter {
            let mut velocity =
                value(&session.worker.outer, name).unwrap_or_else(|_first_round| vec![0.0; values.len()]);
            outer_step(&mut values, &mut velocity, average, [outer_lr, momentum]);
            insert(&mut outer, name, &weights, &velocity)?;
        } else {
            values.iter_mut().zip(average).for_each(|(value, average)| *value -= average);
        }
        insert(&mut weights, name, &anchor.weights, &values)?;
    }
    Ok(Learned { weights, outer })
}

/// A step of the optimizer over rounds, against what was learned on average.
pub(super) fn outer_step(
    values: &mut [f32],
    velocity: &mut [f32],
    average: &[f32],
    [lr, momentum]: [f32; 2],
) {
    for ((value, velocity), average) in values.iter_mut().zip(velocity).zip(average) {
        *velocity = momentum * *velocity + average;
        *value -= lr * (momentum * *velocity + average);
    }
}

/// Puts values under a name, in the shape that they have in another map.
pub(super) fn insert(
    into: &mut Weights,
    name: &str,
    shaped: &Weights,
    values: &[f32],
) -> Result<(), DistributedError> {
    let wrong = || DistributedError::from(TrainError::MissingState { name: name.to_owned() });
    let shape = shaped.get(name).map(|tensor| tensor.shape().to_vec()).ok_or_else(wrong)?;
    let tensor = Tensor::from_f32(shape, values).map_err(|_misfit| wrong())?;
    into.insert(name.to_owned(), tensor);
    Ok(())
}
