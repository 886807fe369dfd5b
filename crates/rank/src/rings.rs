//! The same parameters in other replicas: one ring for each range between all cuts of all replicas.

use super::exchange::Exchange;
use crate::error::RankError;
use phalanx_collective::{CollectiveError, GroupAborter};
use phalanx_train::Stepper;
use phalanx_train::round::Named;
use std::time::Instant;

/// One ring, as this stage sees it.
#[derive(Debug)]
pub(super) struct RingLane {
    pub(super) exchange: Exchange,
    /// Its parameters, in the order of its buckets.
    pub(super) names: Vec<String>,
}

/// All rings that this stage is in; none when there is one replica.
#[derive(Debug)]
pub(super) struct Rings {
    lanes: Vec<RingLane>,
    /// By parameter of this stage: its ring, and its place there.
    places: Vec<Option<(usize, usize)>>,
}

impl Rings {
    pub(super) fn new(lanes: Vec<RingLane>) -> Self {
        Self { lanes, places: Vec::new() }
    }

    /// Whether there are other replicas.
    pub(super) fn any(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Finds the place of every parameter of a stage.
    pub(super) fn place(&mut self, stepper: &mut Stepper) {
        let find = |name: &str| {
            let in_lane = |(ring, lane): (usize, &RingLane)| {
                Some((ring, lane.names.iter().position(|own| own == name)?))
            };
            self.lanes.iter().enumerate().find_map(in_lane)
        };
        self.places = stepper.model().parameters().iter().map(|parameter| find(&parameter.name)).collect();
    }

    /// Takes a gradient that is final here; see [`Exchange::give`].
    pub(super) fn give(
        &mut self,
        parameter: usize,
        gradient: &[f32],
        counts: bool,
    ) -> Result<(), CollectiveError> {
        match self.places.get(parameter).copied().flatten() {
            Some((ring, place)) => self.lanes[ring].exchange.give(place, gradient, counts),
            None => Ok(()),
        }
    }

    /// Waits for all sums, and makes them the gradients.
    pub(super) fn take_sums(&mut self, stepper: &mut Stepper) -> Result<(), RankError> {
        if !self.any() {
            return Ok(());
        }
        for lane in &mut self.lanes {
            lane.exchange.wait()?;
        }
        let mut taken = Ok(());
        stepper.model().update(&mut |parameter, _, gradient| {
            if let Some((ring, place)) = self.places.get(parameter).copied().flatten() {
                match self.lanes[ring].exchange.sum(place) {
                    Ok(sum) => gradient.copy_from_slice(sum),
                    Err(error) => taken = Err(error),
                }
            }
        });
        Ok(taken?)
    }

    /// Adds up what this stage has of parameters over all replicas, on all rings at the same time. What is `exact` is not
    /// compressed; what is in no ring stays as it is.
    pub(super) fn add_up(&mut self, own: &mut Named, exact: bool) -> Result<(), RankError> {
        let mut begun = Vec::new();
        for lane in &mut self.lanes {
            let parts: Vec<&[f32]> = lane.names.iter().filter_map(|name| Some(&own.get(name)?[..])).collect();
            if !parts.is_empty() {
                let adding = lane.exchange.begin(parts.concat(), "what was learned", exact);
                begun.push((lane, adding));
            }
        }
        for (lane, adding) in begun {
            let sum = lane.exchange.end(adding)?;
            let mut rest = &sum[..];
            for name in &lane.names {
                let Some(values) = own.get_mut(name) else { continue };
                let (sums, others) = rest.split_at(values.len());
                values.copy_from_slice(sums);
                rest = others;
            }
        }
        Ok(())
    }

    /// Begin and end of the exchanges of the last step, over all rings.
    pub(super) fn times(&self) -> impl Iterator<Item = (Instant, Instant)> + '_ {
        self.lanes.iter().flat_map(|lane| lane.exchange.times()).copied()
    }

    /// Bytes given to other replicas.
    pub(super) fn sent(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.exchange.sent()).sum()
    }

    pub(super) fn aborters(&self) -> impl Iterator<Item = GroupAborter> {
        self.lanes.iter().map(|lane| lane.exchange.aborter())
    }
}
