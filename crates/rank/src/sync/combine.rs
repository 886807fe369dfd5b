//! How the deltas of all members of a round become their average.

use super::Delta;
use crate::control_lane::ControlLane;
use crate::error::RankError;
use crate::rings::{Rings, Sums};
use phalanx_protocol::aggregate::weight;
use std::collections::BTreeMap;

/// Values by name of a parameter or buffer.
pub(crate) type Named = BTreeMap<String, Vec<f32>>;

/// One member's end of a round. Members give first and take then, so they need no links to each other: a coordinator may
/// stand between them.
pub(crate) trait Combine {
    /// Hands over what this member learned from a number of samples; does not wait for other members.
    fn give(&mut self, own: Delta, samples: u64) -> Result<(), RankError>;

    /// Waits for the average of what all members gave, weighted by their samples.
    fn take(&mut self) -> Result<Delta, RankError>;
}

/// A rank that is linked to the other ranks: rings add up parameters over replicas, the control lane adds up
/// statistics over all ranks.
#[derive(Debug)]
pub(crate) struct Linked<'s> {
    rings: &'s mut Rings,
    lane: &'s ControlLane,
    /// Statistics of the whole model, in the order in which they travel, and how many values each has.
    buffers: &'s [(String, usize)],
    /// Samples of all members: ranks know them, because they share out batches.
    samples: u64,
    given: Given,
}

/// What is on its way.
#[derive(Debug, Default)]
struct Given {
    parameters: Sums,
    optimizer: BTreeMap<&'static str, Sums>,
    statistics: Named,
}

impl<'s> Linked<'s> {
    pub(crate) fn new(
        rings: &'s mut Rings,
        lane: &'s ControlLane,
        buffers: &'s [(String, usize)],
        samples: u64,
    ) -> Self {
        Self { rings, lane, buffers, samples, given: Given::default() }
    }
}

impl Combine for Linked<'_> {
    fn give(&mut self, own: Delta, samples: u64) -> Result<(), RankError> {
        let Delta { mut parameters, mut optimizer, mut statistics } = own;
        let weight = weight(samples, self.samples);
        let all = [&mut parameters, &mut statistics].into_iter().chain(optimizer.values_mut());
        for value in all.flat_map(BTreeMap::values_mut).flatten() {
            *value *= weight;
        }
        // A second moment that compression made negative would be the end of its parameter.
        let parameters = self.rings.begin(parameters, false);
        let optimizer = optimizer.into_iter().map(|(kind, of)| (kind, self.rings.begin(of, true))).collect();
        self.given = Given { parameters, optimizer, statistics };
        Ok(())
    }

    fn take(&mut self) -> Result<Delta, RankError> {
        let Given { parameters, optimizer, statistics: own } = std::mem::take(&mut self.given);
        let parameters = self.rings.end(parameters)?;
        let mut averages = BTreeMap::new();
        for (kind, sums) in optimizer {
            averages.insert(kind, self.rings.end(sums)?);
        }
        let mut flat: Vec<f64> = Vec::new();
        for (name, elements) in self.buffers {
            let start = flat.len();
            flat.extend(own.get(name).into_iter().flatten().map(|value| f64::from(*value)));
            flat.resize(start + elements, 0.0);
        }
        if !flat.is_empty() {
            self.lane.all_reduce(&mut flat, "statistics of the round")?;
        }
        let mut statistics = Named::new();
        let mut rest = &flat[..];
        for (name, elements) in self.buffers {
            let (sums, others) = rest.split_at(*elements);
            rest = others;
            if own.contains_key(name) {
                statistics.insert(name.clone(), sums.iter().map(|sum| *sum as f32).collect());
            }
        }
        Ok(Delta { parameters, optimizer: averages, statistics })
    }
}
