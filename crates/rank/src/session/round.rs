//! A round: several steps as one, which no other rank hears of before all are done.
//!
//! ```text
//!   anchor ──► local work ──► delta ──► Combine: the average of all members ──► next state ──► ballot
//!      ^         in order: steps one after the other, alone
//!      |         overlapping (asynchronous stages): forwards of the next steps go on while gradients of the last ones
//!      |           come back; each backward uses the parameters that its forward used; every stage updates by itself,
//!      |           a bounded number of updates after the forward
//!      +── a round happens as a whole or not at all: when the group breaks, the anchor is what remains
//! ```
//! Stages are empty where a round ends, so the numbers of asynchronous stages depend on where that is.

use super::Session;
use super::ballot::{self, Ballot};
use super::micro_batches::MicroBatches;
use super::step::{Held, Samples, marks};
use crate::error::RankError;
use crate::sync::{Combine, Linked, LocalWork, Round, Statistics};
use phalanx_data::Loaded;
use phalanx_engine::ParameterSet;
use phalanx_protocol::pipeline::{Move, ahead_in_flow, moves};
use phalanx_protocol::{Vote, Wish};
use phalanx_records::ModelState;
use phalanx_train::Culprit;
use phalanx_train::round::{Delta, Merge, set_values};
use phalanx_wire::train::{Activity, StageReport};
use phalanx_wire::train_reason::StepFailure;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// What one step of a round came to here.
#[derive(Debug, Default)]
struct Learned {
    loss: f64,
    norm: f64,
    finite: bool,
    samples: Vec<u64>,
    compute: Duration,
    staleness: u32,
    /// How often all parameters were kept as they had been.
    versions: usize,
}

/// Parameters as they were, for batches that are still on their way.
#[derive(Debug, Default)]
struct Versions {
    /// By number of updates that were behind them.
    kept: BTreeMap<u64, ParameterSet>,
    spare: Vec<ParameterSet>,
}

impl Versions {
    /// Lets go of those that are older than the oldest that is needed.
    fn forget_before(&mut self, oldest: u64) {
        while let Some(entry) = self.kept.first_entry().filter(|entry| *entry.key() < oldest) {
            self.spare.push(entry.remove());
        }
    }
}

impl Session<'_, '_> {
    /// Does some steps as one.
    pub(super) fn round(&mut self, round: Round) -> Result<Wish, RankError> {
        let anchor = self.part.state()?;
        let done = self.steps_as_one(round, &anchor);
        if done.is_err() {
            // No other rank has seen what was learned since: it will be learned again.
            self.part.take_over(&anchor)?;
            self.at = anchor.steps();
        }
        let wish = done?;
        if !self.is_planned {
            return Ok(wish);
        }
        // A rank that is past this knows that all others have done the round. One that is not may have to go back, or
        // others have to: both states are kept.
        if let Err(error) = self.lane.barrier("the round is done") {
            self.worker.copies.add(anchor.steps(), self.part.ops, anchor.to_bytes()?.into());
            return Err(error.into());
        }
        Ok(wish)
    }

    /// Gives what this rank learned since the anchor, and takes the state that all members make of it together.
    fn merge(
        &mut self,
        merge: Merge,
        anchor: &ModelState,
        batches: &[MicroBatches],
    ) -> Result<(), RankError> {
        let samples = |of: fn(&MicroBatches) -> usize| batches.iter().map(of).sum::<usize>();
        let (own, whole) = (samples(|micro| micro.len), samples(|micro| micro.whole));
        let now = self.part.state()?;
        let parameters = self.part.stepper.model.parameters().iter().map(|parameter| parameter.name.as_str());
        let delta = merge.delta(anchor, &now, &parameters.collect());
        let average = self.combine(delta, own, whole)?;
        self.part.take_over(&merge.next(anchor, now, &average)?)
    }

    /// The average of what all members have, weighted by samples. No other place knows how members are connected.
    fn combine(&mut self, own: Delta, samples: usize, of_all: usize) -> Result<Delta, RankError> {
        let Self { rings, lane, buffers, .. } = self;
        let mut members = Linked { rings, lane, buffers, samples: of_all as u64, given: Delta::default() };
        members.give(own, samples as u64)?;
        members.take()
    }

    /// Brings the statistics of batch norm of all replicas together, where each has its own.
    pub(super) fn share_buffers(&mut self) -> Result<(), RankError> {
        if self.sync.statistics() != Statistics::Averaged {
            return Ok(());
        }
        let mut buffers = self.part.stepper.buffers(&self.part.graph);
        let own = Delta::of_statistics(buffers.iter());
        let average = self.combine(own, self.shares.count(self.post.replica), self.shares.batch())?;
        for (name, values) in &average.statistics {
            set_values(&mut buffers, name, values)?;
        }
        Ok(self.part.stepper.set_buffers(buffers)?)
    }

    fn steps_as_one(&mut self, round: Round, anchor: &ModelState) -> Result<Wish, RankError> {
        let first = self.at;
        let steps = first..first + round.steps(self.progress_here()?);
        let batches: Vec<MicroBatches> =
            steps.map(|step| self.micro_batches(step)).collect::<Result<_, _>>()?;
        let (began, idle) = (self.spans.if_traced(), self.idle());
        let learned = match round.local {
            LocalWork::InOrder => self.steps_alone(&batches)?,
            LocalWork::Overlapping => self.stream(&batches, round.merge.is_some())?,
        };
        let idled = self.idle().saturating_sub(idle);
        self.spans.end(Activity::Compute, first, began);
        let began = self.spans.if_timed();
        if let Some(merge) = round.merge {
            self.merge(merge, anchor, &batches)?;
        }
        let exchanged = self.spans.end(Activity::Exchange, first, began) / batches.len().max(1) as u32;
        let vote = |(micro, of): (&MicroBatches, &Learned)| Vote {
            seen: marks(&of.samples),
            ..self.vote(micro, None, of.loss, of.finite, [of.compute, exchanged])
        };
        let votes: Vec<Vote> = batches.iter().zip(&learned).map(vote).collect();
        let own = Ballot::new(&votes, self.round_report(anchor, &batches, &learned, idled), Vec::new());
        let began = self.spans.if_timed();
        let ballots = self.agree(own)?;
        self.waited = self.spans.end(Activity::Vote, first, began);
        for (index, of) in learned.iter().enumerate() {
            let Some(rank) = ballots.outcomes[index].not_finite else { continue };
            let (step, samples) = (batches[index].step, of.samples.clone());
            return Err(match rank == self.rank {
                // Parameters have changed since it was computed.
                true => self.no_number(&ballots, (index, of.norm), step, samples, Culprit::Unknown),
                false => RankError::Step(StepFailure::NotFinite { rank: rank as u32 }),
            });
        }
        self.part.step = first + batches.len() as u64;
        for (index, (micro, of)) in batches.iter().zip(&learned).enumerate() {
            let lr = self.lr(micro.step);
            self.done(&ballots, index, micro.step, (lr, of.norm))?;
        }
        self.copy_after(&ballots);
        Ok(ballots.outcomes.iter().map(|outcome| outcome.wish).max().unwrap_or_default())
    }

    /// What a stage says of each step of a round.
    fn round_report(
        &mut self,
        anchor: &ModelState,
        batches: &[MicroBatches],
        learned: &[Learned],
        idle: Duration,
    ) -> StageReport {
        let Some(most) = batches.iter().max_by_key(|micro| micro.parts()) else {
            return StageReport::default();
        };
        let versions = learned.iter().map(|of| of.versions).max().unwrap_or(0) as u64;
        let bytes = anchor.tensor_bytes() + versions * self.part.parameter_bytes();
        let staleness = learned.iter().map(|of| of.staleness).max().unwrap_or(0);
        self.stage_report(most, batches.len(), idle, Held { bytes, staleness })
    }

    /// Steps of this replica alone, one after the other.
    fn steps_alone(&mut self, batches: &[MicroBatches]) -> Result<Vec<Learned>, RankError> {
        let mut all = Vec::new();
        for micro in batches {
            let (began, idle) = (Instant::now(), self.idle());
            let loaded = self.load(micro.step)?;
            let parts = micro.parts();
            let mut of = Learned { samples: self.samples(loaded.as_ref()), ..Learned::default() };
            of.loss = self.forward_backward(micro, loaded.as_ref().map(Samples::of), false)?;
            if parts > 0 {
                // The mean over the samples of this replica, which learns from them alone.
                self.part.stepper.scale_gradients(micro.whole as f32 / micro.len as f32);
            }
            // Also without samples: the others wait for a ballot of this stage.
            let norm = self.norm_of_replica()?;
            if parts > 0 {
                of.norm = norm;
                of.finite = of.loss.is_finite() && of.norm.is_finite();
                if of.finite {
                    self.part.stepper.apply(of.norm, self.lr(micro.step));
                }
            } else {
                of.finite = true;
                self.part.stepper.skip();
            }
            self.recycle(loaded);
            of.compute = began.elapsed().saturating_sub(self.idle().saturating_sub(idle));
            all.push(of);
        }
        Ok(all)
    }

    /// The norm of the gradients of this replica where gradients are limited by it; else that of this stage.
    fn norm_of_replica(&mut self) -> Result<f64, RankError> {
        if self.is_uncut() || self.worker.task.config.train.clip_norm.is_none() {
            return Ok(self.part.stepper.grad_norm());
        }
        let squares = self.part.stepper.squares().to_vec();
        let own_norm = squares.iter().sum::<f64>().sqrt();
        let ballots = ballot::exchange(&self.lane, Ballot::new(&[], StageReport::default(), squares))?;
        Ok(self.norm(&ballots, own_norm))
    }

    fn samples(&self, loaded: Option<&Loaded>) -> Vec<u64> {
        let loaded = loaded.filter(|_| self.post.is_first());
        loaded.map(|loaded| loaded.batch.indices.clone()).unwrap_or_default()
    }

    /// Steps that overlap: what one stage computes of the next does not wait for the others to end the last.
    /// `alone` says that this replica learns from its own samples, not from its part of the whole batch.
    fn stream(&mut self, batches: &[MicroBatches], alone: bool) -> Result<Vec<Learned>, RankError> {
        let parts_of =
            |(step, micro): (usize, &MicroBatches)| (0..micro.parts()).map(move |part| (step, part));
        let items: Vec<(usize, usize)> = batches.iter().enumerate().flat_map(parts_of).collect();
        let in_flight = self.worker.task.config.formation.in_flight_of(self.post.stages);
        let ahead = ahead_in_flow(self.post.stage, self.post.stages, in_flight);
        let mut all: Vec<Learned> =
            batches.iter().map(|_| Learned { finite: true, ..Learned::default() }).collect();
        let mut versions = Versions::default();
        // Of those that went forward and have not come back: how many updates were behind their parameters.
        let mut used: VecDeque<u64> = VecDeque::new();
        let (mut updates, mut finite) = (0, true);
        let mut loaded: Option<(usize, Option<Loaded>)> = None;
        self.skip_absent(batches);
        for next in moves(ahead, items.len()) {
            let (began, idle) = (Instant::now(), self.idle());
            let (Move::Forward(item) | Move::Backward(item)) = next;
            let (step, part) = items[item];
            let micro = &batches[step];
            match next {
                Move::Forward(_) => {
                    if loaded.as_ref().is_none_or(|(of, _)| *of != step) {
                        let before = loaded.take();
                        let passed = before.as_ref().map_or(0, |(of, _)| of + 1)..step;
                        self.recycle(before.and_then(|(_, old)| old));
                        self.pass_absent(&batches[passed])?;
                        let new = self.load(micro.step)?;
                        all[step].samples = self.samples(new.as_ref());
                        loaded = Some((step, new));
                    }
                    let own = loaded.as_ref().and_then(|(_, loaded)| loaded.as_ref());
                    all[step].loss += self.forward(micro, part, item % ahead, own.map(Samples::of))?;
                    used.push_back(updates);
                }
                Move::Backward(_) => {
                    let version = used.pop_front().unwrap_or(updates);
                    let stale = u32::try_from(updates - version).unwrap_or(u32::MAX);
                    all[step].staleness = all[step].staleness.max(stale);
                    let of = (part, micro.parts());
                    let slot = item % ahead;
                    match versions.kept.remove(&version).filter(|_| version != updates) {
                        Some(mut old) => {
                            self.part.stepper.model.swap_parameters(&mut old);
                            let back = self.backward(micro, part, slot, of, false);
                            self.part.stepper.model.swap_parameters(&mut old);
                            versions.kept.insert(version, old);
                            back?;
                        }
                        None => self.backward(micro, part, slot, of, false)?,
                    }
                    if part + 1 == micro.parts() {
                        if alone {
                            // The mean over the samples of this replica, which learns from them alone.
                            self.part.stepper.scale_gradients(micro.whole as f32 / micro.len as f32);
                        }
                        let norm = self.part.stepper.grad_norm();
                        all[step].norm = norm;
                        finite &= norm.is_finite() && all[step].loss.is_finite();
                        all[step].finite = finite;
                        if used.back() == Some(&updates) {
                            let mut copy = versions.spare.pop().unwrap_or_default();
                            self.part.stepper.model.copy_parameters(&mut copy);
                            versions.kept.insert(updates, copy);
                        }
                        all[step].versions = versions.kept.len() + versions.spare.len();
                        versions.forget_before(used.front().copied().unwrap_or(updates + 1));
                        if finite {
                            self.part.stepper.apply(norm, self.lr(micro.step));
                        }
                        updates += 1;
                        self.skip_absent(&batches[step + 1..]);
                    }
                }
            }
            all[step].compute += began.elapsed().saturating_sub(self.idle().saturating_sub(idle));
        }
        let rest = loaded.as_ref().map_or(0, |(of, _)| of + 1)..;
        self.recycle(loaded.and_then(|(_, old)| old));
        self.pass_absent(&batches[rest])?;
        Ok(all)
    }

    /// Counts the steps at the front in which this replica has no samples.
    fn skip_absent(&mut self, batches: &[MicroBatches]) {
        batches.iter().take_while(|micro| micro.parts() == 0).for_each(|_| self.part.stepper.skip());
    }

    /// Lets the loader pass by steps in which this replica has no samples.
    fn pass_absent(&mut self, batches: &[MicroBatches]) -> Result<(), RankError> {
        for micro in batches {
            let nothing = self.load(micro.step)?;
            self.recycle(nothing);
        }
        Ok(())
    }
}
